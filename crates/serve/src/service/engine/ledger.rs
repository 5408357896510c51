//! Memory budget of all loaded sessions, and eviction of idle ones when memory runs short.
//!
//! Invariant: when a lease is granted, the sum of all leases does not exceed the budget. Only idle
//! sessions are evicted, the least recently used first, and waiters are served in order. Sessions
//! that give way to others are evicted first, even during a run. Lock order: first the ledger's
//! books, then an endpoint, never the reverse.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time that others may stay busy before a busy session is asked to end after its run.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// A session that was used within this time is not evicted for one that gives way, in milliseconds.
const RECENT_USE_MS: u64 = 60_000;

/// Callback that makes the holder of a lease check it.
pub(super) type WakeCallback = Arc<dyn Fn() + Send + Sync>;

/// The memory ledger of one server.
#[derive(Debug)]
pub(super) struct Ledger {
    budget: u64,
    books: Mutex<Books>,
    changed: Condvar,
    /// Number of waiters, readable without the lock.
    waiting: AtomicUsize,
    /// Counter of uses, which orders them in time.
    clock: AtomicU64,
    start: Instant,
}

#[derive(Debug, Default)]
struct Books {
    used: u64,
    next: u64,
    entries: BTreeMap<u64, Arc<LedgerEntry>>,
    /// The waiters, the next one first: those that give way to others after all of these.
    line: VecDeque<LedgerTicket>,
}

/// A place among the waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LedgerTicket {
    number: u64,
    gives_way: bool,
}

struct LedgerEntry {
    id: u64,
    endpoint: u64,
    gives_way: bool,
    /// Changed only while the books are locked.
    bytes: AtomicU64,
    state: AtomicU8,
    wanted: AtomicBool,
    used_at: AtomicU64,
    /// Milliseconds from the start of the ledger to the last use.
    last_use_ms: AtomicU64,
    bell: WakeCallback,
}

const BUSY: u8 = 0;
const IDLE: u8 = 1;
/// It was idle and is being evicted.
const EVICTED: u8 = 2;

/// Memory reserved for one session, released on drop.
#[derive(Debug)]
pub(super) struct MemoryLease {
    ledger: Arc<Ledger>,
    entry: Arc<LedgerEntry>,
}

/// A request for memory.
pub(super) struct MemoryRequest<'a> {
    /// Number of the endpoint, whose own sessions are not evicted for it.
    pub(super) endpoint: u64,
    /// Required bytes.
    pub(super) bytes: u64,
    /// True if the endpoint has no other session. Busy sessions are then asked to end too.
    pub(super) urgent: bool,
    /// True if its requests give way to all others. It then evicts only sessions that were not used
    /// for a while, and is evicted first.
    pub(super) gives_way: bool,
    /// Returns whether the memory is still wanted; called while the books are locked.
    pub(super) wants: &'a dyn Fn() -> bool,
    /// Called when the lease must be checked.
    pub(super) bell: WakeCallback,
}

/// Error of a session that needs more memory than the whole budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge {
    /// Required bytes.
    pub(super) bytes: u64,
    /// Budget, in bytes.
    pub(super) budget: u64,
}

impl Ledger {
    /// Creates an empty ledger.
    pub(super) fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            books: Mutex::default(),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            clock: AtomicU64::new(0),
            start: Instant::now(),
        })
    }

    /// Returns the budget, in bytes.
    pub(super) fn budget(&self) -> u64 {
        self.budget
    }

    /// Checks that the budget is large enough for this many bytes.
    pub(super) fn check(&self, bytes: u64) -> Result<(), TooLarge> {
        let budget = self.budget;
        if bytes > budget {
            return Err(TooLarge { bytes, budget });
        }
        Ok(())
    }

    /// Returns the number of leased bytes.
    pub(super) fn used(&self) -> u64 {
        self.lock().used
    }

    /// Makes the waiters check again.
    pub(super) fn wake(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits for memory. Returns `None` if the request was withdrawn.
    pub(super) fn reserve(
        self: &Arc<Self>,
        asker: &MemoryRequest<'_>,
    ) -> Result<Option<MemoryLease>, TooLarge> {
        self.check(asker.bytes)?;
        let start = Instant::now();
        let mut books = self.lock();
        let ticket = LedgerTicket {
            number: books.number(),
            gives_way: asker.gives_way,
        };
        books.join_line(ticket);
        self.waiting.fetch_add(1, SeqCst);
        let lease = loop {
            if !(asker.wants)() {
                break None;
            }
            if books.line.front() == Some(&ticket) {
                if books.used.saturating_add(asker.bytes) <= self.budget {
                    break Some(self.enter(&mut books, asker));
                }
                let missing = books.used.saturating_add(asker.bytes) - self.budget;
                let goes = Evictions {
                    except: asker.endpoint,
                    busy: asker.urgent && !asker.gives_way && start.elapsed() >= BUSY_PATIENCE,
                    unused_since: asker
                        .gives_way
                        .then(|| self.now().saturating_sub(RECENT_USE_MS)),
                };
                let bells = books.make_room(missing, &goes);
                if !bells.is_empty() {
                    drop(books);
                    ring(&bells);
                    books = self.lock();
                    // A session that was asked to end may already have ended.
                    if books.used.saturating_add(asker.bytes) <= self.budget {
                        continue;
                    }
                }
            }
            let waited = self.changed.wait_timeout(books, BUSY_PATIENCE);
            books = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        books.line.retain(|other| *other != ticket);
        self.waiting.fetch_sub(1, SeqCst);
        drop(books);
        self.changed.notify_all();
        Ok(lease)
    }

    fn enter(self: &Arc<Self>, books: &mut Books, asker: &MemoryRequest<'_>) -> MemoryLease {
        let entry = Arc::new(LedgerEntry {
            id: books.number(),
            endpoint: asker.endpoint,
            gives_way: asker.gives_way,
            bytes: AtomicU64::new(asker.bytes),
            state: AtomicU8::new(BUSY),
            wanted: AtomicBool::new(false),
            used_at: AtomicU64::new(self.clock.fetch_add(1, SeqCst)),
            last_use_ms: AtomicU64::new(self.now()),
            bell: Arc::clone(&asker.bell),
        });
        books.used = books.used.saturating_add(asker.bytes);
        books.entries.insert(entry.id, Arc::clone(&entry));
        MemoryLease {
            ledger: Arc::clone(self),
            entry,
        }
    }

    /// Returns the milliseconds since its start.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Adds a waiter, before those that give way to it.
    fn join_line(&mut self, ticket: LedgerTicket) {
        let mut line = self.line.iter();
        let place = line.position(|other| other.gives_way && !ticket.gives_way);
        self.line.insert(place.unwrap_or(self.line.len()), ticket);
    }

    /// Evicts sessions until `missing` bytes will be freed, and returns the bells to ring: sessions
    /// that give way, then idle ones. If they are not enough, busy ones are asked to end after their
    /// run.
    fn make_room(&mut self, missing: u64, goes: &Evictions) -> Vec<WakeCallback> {
        let mut others: Vec<&Arc<LedgerEntry>> = self
            .entries
            .values()
            .filter(|entry| entry.endpoint != goes.except && goes.includes(entry))
            .collect();
        others.sort_by_key(|entry| (!entry.gives_way, entry.used_at.load(SeqCst)));
        let going = others.iter().filter(|it| it.is_evicted());
        let going = going.fold(0_u64, |sum, it| sum.saturating_add(it.bytes()));
        let mut missing = missing.saturating_sub(going);
        let mut bells = Vec::new();
        for entry in &others {
            if missing == 0 {
                break;
            }
            if entry.change(IDLE, EVICTED) || entry.gives_way && !entry.wanted.swap(true, SeqCst) {
                missing = missing.saturating_sub(entry.bytes());
                bells.push(Arc::clone(&entry.bell));
            }
        }
        for entry in others.iter().filter(|_| goes.busy) {
            if missing == 0 {
                break;
            }
            if entry.state.load(SeqCst) == BUSY && !entry.gives_way {
                missing = missing.saturating_sub(entry.bytes());
                entry.wanted.store(true, SeqCst);
            }
        }
        bells
    }
}

/// The sessions that go when memory runs short.
struct Evictions {
    /// The endpoint whose own sessions stay.
    except: u64,
    /// Busy sessions are asked to end, too.
    busy: bool,
    /// Only sessions go that were last used before this time of the ledger, if set.
    unused_since: Option<u64>,
}

impl Evictions {
    fn includes(&self, entry: &LedgerEntry) -> bool {
        let unused_since = self.unused_since;
        unused_since.is_none_or(|time| entry.last_use_ms.load(SeqCst) < time)
    }
}

impl LedgerEntry {
    fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    /// Returns whether its session ends without waiting for its run.
    fn is_evicted(&self) -> bool {
        self.state.load(SeqCst) == EVICTED || self.gives_way && self.wanted.load(SeqCst)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        let changed = self.state.compare_exchange(from, to, SeqCst, SeqCst);
        changed.is_ok()
    }
}

impl MemoryLease {
    /// Marks the session as busy. Returns `false` if it must end instead.
    pub(super) fn begin_use(&self) -> bool {
        let used_at = self.ledger.clock.fetch_add(1, SeqCst);
        self.entry.used_at.store(used_at, SeqCst);
        self.entry.last_use_ms.store(self.ledger.now(), SeqCst);
        self.entry.state.load(SeqCst) == BUSY || self.entry.change(IDLE, BUSY)
    }

    /// Marks the session as idle. If it returns `true`, somebody waits for memory, and the caller
    /// must call [`Self::wake_others`] without the endpoint's lock.
    #[must_use]
    pub(super) fn end_use(&self) -> bool {
        self.entry.change(BUSY, IDLE) && self.ledger.waiting.load(SeqCst) > 0
    }

    /// Makes those who wait for its ledger's memory check again.
    pub(super) fn wake_others(&self) {
        self.ledger.wake();
    }

    /// Returns whether the session must end, because it was evicted or its memory is wanted.
    pub(super) fn must_go(&self) -> bool {
        self.entry.state.load(SeqCst) == EVICTED || self.entry.wanted.load(SeqCst)
    }

    /// Records the measured memory use, which may evict others.
    pub(super) fn measured(&self, bytes: u64) {
        let mut books = self.ledger.lock();
        let before = self.entry.bytes.swap(bytes, SeqCst);
        books.used = books.used.saturating_sub(before).saturating_add(bytes);
        let excess = books.used.saturating_sub(self.ledger.budget);
        let goes = Evictions {
            except: self.entry.endpoint,
            busy: false,
            unused_since: None,
        };
        let bells = books.make_room(excess, &goes);
        drop(books);
        self.ledger.changed.notify_all();
        ring(&bells);
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        let mut books = self.ledger.lock();
        books.entries.remove(&self.entry.id);
        books.used = books.used.saturating_sub(self.entry.bytes());
        drop(books);
        self.ledger.changed.notify_all();
    }
}

impl fmt::Debug for LedgerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerEntry")
            .field("endpoint", &self.endpoint)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

fn ring(bells: &[WakeCallback]) {
    for bell in bells {
        bell();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn asker(endpoint: u64, bytes: u64, bell: &WakeCallback) -> MemoryRequest<'static> {
        MemoryRequest {
            endpoint,
            bytes,
            urgent: true,
            gives_way: false,
            wants: &|| true,
            bell: Arc::clone(bell),
        }
    }

    fn silent() -> WakeCallback {
        Arc::new(|| {})
    }

    fn room(ledger: &Arc<Ledger>, endpoint: u64, bytes: u64) -> MemoryLease {
        let lease = ledger.reserve(&asker(endpoint, bytes, &silent()));
        lease.expect("it is small").expect("it is wanted")
    }

    #[test]
    fn more_than_all_is_refused_at_once() {
        let ledger = Ledger::new(100);
        let error = ledger.reserve(&asker(1, 101, &silent())).err();
        let too_large = TooLarge {
            bytes: 101,
            budget: 100,
        };
        assert_eq!(error, Some(too_large));
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn the_least_recently_used_idle_session_goes() {
        let ledger = Ledger::new(100);
        let (older, newer) = (room(&ledger, 1, 40), room(&ledger, 2, 40));
        // Used again after the other one, so it is now the more recent.
        assert!(!older.end_use() && older.begin_use());
        assert!(!older.end_use() && !newer.end_use());
        let (told, hears) = mpsc::channel();
        let thread = std::thread::spawn({
            let ledger = Arc::clone(&ledger);
            move || {
                let lease = room(&ledger, 3, 60);
                told.send(()).expect("somebody listens");
                lease
            }
        });
        while !newer.must_go() {
            std::thread::yield_now();
        }
        assert!(!older.must_go(), "one is enough");
        assert!(!newer.begin_use(), "what goes is not used again");
        drop(newer);
        hears.recv().expect("there is room now");
        assert_eq!(ledger.used(), 100);
        drop(thread.join().expect("no panic"));
        assert_eq!(ledger.used(), 40);
        assert!(older.begin_use());
    }

    #[test]
    fn a_session_that_is_always_busy_is_asked_to_go_in_the_end() {
        let ledger = Ledger::new(100);
        let busy = room(&ledger, 1, 100);
        let thread = std::thread::spawn({
            let ledger = Arc::clone(&ledger);
            move || room(&ledger, 2, 50)
        });
        while !busy.must_go() {
            std::thread::yield_now();
        }
        assert!(busy.begin_use(), "its run may end");
        drop(busy);
        drop(thread.join().expect("no panic"));
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn a_session_that_gives_way_goes_first_and_evicts_no_recent_one() {
        let ledger = Ledger::new(100);
        let old = room(&ledger, 1, 40);
        let back = MemoryRequest {
            gives_way: true,
            ..asker(2, 40, &silent())
        };
        let back = ledger.reserve(&back).expect("it is small");
        let back = back.expect("it is wanted");
        assert!(!old.end_use());
        let rounds = AtomicUsize::new(0);
        let more = MemoryRequest {
            gives_way: true,
            wants: &|| rounds.fetch_add(1, SeqCst) < 2,
            ..asker(3, 40, &silent())
        };
        assert!(ledger.reserve(&more).expect("it is small").is_none());
        assert!(!old.must_go(), "it was used a moment ago");
        let thread = std::thread::spawn({
            let ledger = Arc::clone(&ledger);
            move || room(&ledger, 4, 60)
        });
        while !back.must_go() {
            std::thread::yield_now();
        }
        assert!(!old.must_go(), "one is enough");
        drop(back);
        drop(thread.join().expect("no panic"));
    }

    #[test]
    fn who_gives_way_waits_behind_all_others() {
        let mut books = Books::default();
        for (number, gives_way) in [(1, true), (2, false), (3, true), (4, false)] {
            books.join_line(LedgerTicket { number, gives_way });
        }
        let line: Vec<u64> = books.line.iter().map(|ticket| ticket.number).collect();
        assert_eq!(line, [2, 4, 1, 3]);
    }

    #[test]
    fn who_does_not_want_it_any_more_does_not_wait() {
        let ledger = Ledger::new(100);
        let busy = room(&ledger, 1, 100);
        let given_up = MemoryRequest {
            wants: &|| false,
            ..asker(2, 10, &silent())
        };
        assert!(ledger.reserve(&given_up).expect("it is small").is_none());
        busy.measured(120);
        assert_eq!(ledger.used(), 120);
        drop(busy);
        assert_eq!(ledger.used(), 0);
    }
}
