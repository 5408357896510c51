//! The memory that loaded sessions may take together, and which of them goes when it runs short.
//!
//! Invariant: leases add up to no more than the budget when one is given; only a session that is idle
//! is taken away, the least recently used first, and whoever asks for room is served in order. Lock
//! order: the books, then an endpoint; never the other way.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long others may stay busy before one of them is asked to go after its run.
const PATIENCE: Duration = Duration::from_secs(1);

/// Called when the holder of a lease has to look at it.
pub(super) type Bell = Arc<dyn Fn() + Send + Sync>;

/// The books of one server.
#[derive(Debug)]
pub(super) struct Ledger {
    budget: u64,
    books: Mutex<Books>,
    changed: Condvar,
    /// How many wait for room; read without the lock.
    waiting: AtomicUsize,
    /// Counts uses, which orders them.
    clock: AtomicU64,
}

#[derive(Debug, Default)]
struct Books {
    used: u64,
    next: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
    /// Those that wait for room, the next one first.
    line: VecDeque<u64>,
}

struct Entry {
    id: u64,
    endpoint: u64,
    /// Changed with the books locked.
    bytes: AtomicU64,
    state: AtomicU8,
    wanted: AtomicBool,
    used_at: AtomicU64,
    bell: Bell,
}

const BUSY: u8 = 0;
const IDLE: u8 = 1;
/// It was idle, and its session is ending.
const GOING: u8 = 2;

/// Room for one session, until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    ledger: Arc<Ledger>,
    entry: Arc<Entry>,
}

/// Who asks for room.
pub(super) struct Asker<'a> {
    /// The endpoint's number: its own sessions do not go for it.
    pub(super) endpoint: u64,
    /// Bytes that it needs.
    pub(super) bytes: u64,
    /// Whether the endpoint has nothing else to answer with: then busy sessions are asked to go too.
    pub(super) urgent: bool,
    /// Whether it still wants the room; called with the books locked.
    pub(super) wants: &'a dyn Fn() -> bool,
    /// Called when the lease is to be looked at.
    pub(super) bell: Bell,
}

/// There will never be room: it alone needs more than the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge {
    /// Bytes it needs.
    pub(super) bytes: u64,
    /// Bytes there are.
    pub(super) budget: u64,
}

impl Ledger {
    /// Empty books.
    pub(super) fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            books: Mutex::default(),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            clock: AtomicU64::new(0),
        })
    }

    /// The budget, in bytes.
    pub(super) fn budget(&self) -> u64 {
        self.budget
    }

    /// Whether so many bytes can ever be had.
    pub(super) fn check(&self, bytes: u64) -> Result<(), TooLarge> {
        let budget = self.budget;
        if bytes > budget {
            return Err(TooLarge { bytes, budget });
        }
        Ok(())
    }

    /// Bytes that are leased.
    pub(super) fn used(&self) -> u64 {
        self.lock().used
    }

    /// Lets those who wait for room look again.
    pub(super) fn wake(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits for room. `None` if the asker does not want it any more.
    pub(super) fn reserve(self: &Arc<Self>, asker: &Asker<'_>) -> Result<Option<Lease>, TooLarge> {
        self.check(asker.bytes)?;
        let start = Instant::now();
        let mut books = self.lock();
        let ticket = books.number();
        books.line.push_back(ticket);
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
                let ask_busy = asker.urgent && start.elapsed() >= PATIENCE;
                let bells = books.make_room(missing, Some(asker.endpoint), ask_busy);
                if !bells.is_empty() {
                    drop(books);
                    ring(&bells);
                    books = self.lock();
                    // What was asked to go may have gone already.
                    if books.used.saturating_add(asker.bytes) <= self.budget {
                        continue;
                    }
                }
            }
            let waited = self.changed.wait_timeout(books, PATIENCE);
            books = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        books.line.retain(|other| *other != ticket);
        self.waiting.fetch_sub(1, SeqCst);
        drop(books);
        self.changed.notify_all();
        Ok(lease)
    }

    fn enter(self: &Arc<Self>, books: &mut Books, asker: &Asker<'_>) -> Lease {
        let entry = Arc::new(Entry {
            id: books.number(),
            endpoint: asker.endpoint,
            bytes: AtomicU64::new(asker.bytes),
            state: AtomicU8::new(BUSY),
            wanted: AtomicBool::new(false),
            used_at: AtomicU64::new(self.clock.fetch_add(1, SeqCst)),
            bell: Arc::clone(&asker.bell),
        });
        books.used = books.used.saturating_add(asker.bytes);
        books.entries.insert(entry.id, Arc::clone(&entry));
        Lease {
            ledger: Arc::clone(self),
            entry,
        }
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

    /// Takes idle sessions away until `missing` bytes are on their way; the bells to ring for it. If
    /// they are not enough, asks busy ones to go when they can.
    fn make_room(&mut self, missing: u64, except: Option<u64>, ask_busy: bool) -> Vec<Bell> {
        let mut others: Vec<&Arc<Entry>> = self
            .entries
            .values()
            .filter(|entry| Some(entry.endpoint) != except)
            .collect();
        others.sort_by_key(|entry| entry.used_at.load(SeqCst));
        let going = others.iter().filter(|it| it.state.load(SeqCst) == GOING);
        let going = going.fold(0_u64, |sum, it| sum.saturating_add(it.bytes()));
        let mut missing = missing.saturating_sub(going);
        let mut bells = Vec::new();
        for entry in &others {
            if missing == 0 {
                break;
            }
            if entry.change(IDLE, GOING) {
                missing = missing.saturating_sub(entry.bytes());
                bells.push(Arc::clone(&entry.bell));
            }
        }
        for entry in others.iter().filter(|_| ask_busy) {
            if missing == 0 {
                break;
            }
            if entry.state.load(SeqCst) == BUSY {
                missing = missing.saturating_sub(entry.bytes());
                entry.wanted.store(true, SeqCst);
            }
        }
        bells
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        let changed = self.state.compare_exchange(from, to, SeqCst, SeqCst);
        changed.is_ok()
    }
}

impl Lease {
    /// The session is in use from now on; `false` if it must end instead.
    pub(super) fn begin_use(&self) -> bool {
        let used_at = self.ledger.clock.fetch_add(1, SeqCst);
        self.entry.used_at.store(used_at, SeqCst);
        self.entry.state.load(SeqCst) == BUSY || self.entry.change(IDLE, BUSY)
    }

    /// The session is idle from now on. `true` asks for [`Ledger::wake`] without the endpoint's lock:
    /// somebody waits for it.
    #[must_use]
    pub(super) fn end_use(&self) -> bool {
        self.entry.change(BUSY, IDLE) && self.ledger.waiting.load(SeqCst) > 0
    }

    /// Whether the session has to end: it was taken away, or somebody waits for its room.
    pub(super) fn must_go(&self) -> bool {
        self.entry.state.load(SeqCst) == GOING || self.entry.wanted.load(SeqCst)
    }

    /// Tells how much it really takes; others may have to go.
    pub(super) fn measured(&self, bytes: u64) {
        let mut books = self.ledger.lock();
        let before = self.entry.bytes.swap(bytes, SeqCst);
        books.used = books.used.saturating_sub(before).saturating_add(bytes);
        let excess = books.used.saturating_sub(self.ledger.budget);
        let bells = books.make_room(excess, Some(self.entry.endpoint), false);
        drop(books);
        self.ledger.changed.notify_all();
        ring(&bells);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut books = self.ledger.lock();
        books.entries.remove(&self.entry.id);
        books.used = books.used.saturating_sub(self.entry.bytes());
        drop(books);
        self.ledger.changed.notify_all();
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("endpoint", &self.endpoint)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

fn ring(bells: &[Bell]) {
    for bell in bells {
        bell();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn asker(endpoint: u64, bytes: u64, bell: &Bell) -> Asker<'static> {
        Asker {
            endpoint,
            bytes,
            urgent: true,
            wants: &|| true,
            bell: Arc::clone(bell),
        }
    }

    fn silent() -> Bell {
        Arc::new(|| {})
    }

    fn room(ledger: &Arc<Ledger>, endpoint: u64, bytes: u64) -> Lease {
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
        // Used again after the other one: now it is the newer.
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
    fn who_does_not_want_it_any_more_does_not_wait() {
        let ledger = Ledger::new(100);
        let busy = room(&ledger, 1, 100);
        let given_up = Asker {
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
