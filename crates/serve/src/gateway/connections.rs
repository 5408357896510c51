//! Tracks open connections, and evicts idle ones for new clients.
//!
//! Limits apply to all connections, to those without a known key, and to those of one address
//! without a known key. At a limit, a new connection evicts the connection that has been idle
//! longest, so that clients that only hold connections open block nobody. Some room is reserved for
//! connections that have shown a key.
//!
//! Invariant: the limits are never exceeded. Connections with a request in flight are never
//! evicted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_util::task::AtomicWaker;

use super::peer::Audience;
use super::settings::Limits;

/// Flag in a connection's number of requests: the connection was closed.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Number of connections that count toward no limit; others are numbered from 1.
const UNCOUNTED: u64 = 0;

/// Maximum number of connections that are examined for eviction. Busy ones move to the end of the
/// order.
const MAX_EXAMINED: usize = 512;

/// The set of open connections.
#[derive(Debug)]
pub(super) struct Connections {
    /// Maximum number in total, without a key, and without a key from one address.
    max_open: usize,
    max_without_key: usize,
    max_per_address: usize,
    /// A logical clock that orders the moments at which connections became idle.
    moments: AtomicU64,
    state: Mutex<ConnectionsState>,
}

#[derive(Debug, Default)]
struct ConnectionsState {
    open: HashMap<u64, ConnectionEntry>,
    strangers: usize,
    addresses: HashMap<IpAddr, AddressCount>,
    /// Connections with a key and without, ordered by the moment at which they became idle, as of
    /// the last examination. They may have been busy since.
    known: BTreeMap<u64, u64>,
    unknown: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct ConnectionEntry {
    address: IpAddr,
    showed_key: bool,
    /// The moment under which the connection is currently ordered.
    seen: u64,
    life: Arc<Life>,
}

/// Activity of a connection. Requests update it without a lock.
#[derive(Debug, Default)]
struct Life {
    /// Requests in flight, and the flag [`CLOSED`].
    requests: AtomicUsize,
    /// The moment at which the connection became idle.
    since: AtomicU64,
    /// The task of the connection must poll its requests again, since the server's stage changed.
    is_poked: AtomicBool,
    task: AtomicWaker,
}

/// Connections of one address without a key.
#[derive(Debug, Default)]
struct AddressCount {
    open: usize,
    seen: BTreeSet<u64>,
}

/// An open connection. Dropping it frees its slot.
#[derive(Debug)]
pub(super) struct OpenConnection {
    all: Arc<Connections>,
    number: u64,
    life: Arc<Life>,
    showed_key: AtomicBool,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<OpenConnection>);

/// The connection of a request, stored as an extension of the request.
#[derive(Debug)]
pub(super) struct Connected {
    /// Address of the peer.
    pub(super) peer: SocketAddr,
    /// The clients that can reach the listener.
    pub(super) audience: Audience,
    pub(super) open: Arc<OpenConnection>,
}

/// The outcome of [`Connections::admit`].
#[derive(Debug)]
pub(super) struct Admission {
    /// The connection; `None` if the limit is reached and all others are busy.
    pub(super) open: Option<OpenConnection>,
    /// The limit that was reached, even if another connection was evicted.
    pub(super) limit: Option<&'static str>,
}

impl Connections {
    /// Creates an empty set.
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            max_open: limits.connections,
            max_without_key: limits.connections_without_key(),
            max_per_address: limits.connections_per_address(),
            moments: AtomicU64::new(1),
            state: Mutex::default(),
        })
    }

    /// Admits a new connection, and evicts an idle one if a limit is reached.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Admission {
        let mut state = self.state();
        let own_open = state.addresses.get(&address).map_or(0, |own| own.open);
        let (limit, gave_way) = if own_open >= self.max_per_address {
            let gave_way = state.close_oldest(self, EvictionGroup::Address(address));
            (Some("connections_per_address"), gave_way)
        } else if state.strangers >= self.max_without_key {
            let gave_way = state.close_oldest(self, EvictionGroup::Unknown);
            (Some("connections_without_key"), gave_way)
        } else if state.open.len() >= self.max_open {
            let gave_way = state.close_oldest(self, EvictionGroup::Unknown)
                || state.close_oldest(self, EvictionGroup::Known);
            (Some("connections"), gave_way)
        } else {
            (None, true)
        };
        if !gave_way {
            return Admission { open: None, limit };
        }
        let (number, life) = state.open(self.moment(), address);
        let open = OpenConnection {
            all: Arc::clone(self),
            number,
            life,
            showed_key: AtomicBool::new(false),
        };
        Admission {
            open: Some(open),
            limit,
        }
    }

    /// Returns a connection that counts toward no limit and is never evicted.
    pub(super) fn uncounted(self: &Arc<Self>) -> OpenConnection {
        OpenConnection {
            all: Arc::clone(self),
            number: UNCOUNTED,
            life: Arc::default(),
            showed_key: AtomicBool::new(false),
        }
    }

    /// Closes the connection that has been idle longest, if any.
    pub(super) fn close_oldest(&self) {
        let mut state = self.state();
        let _ = state.close_oldest(self, EvictionGroup::Unknown)
            || state.close_oldest(self, EvictionGroup::Known);
    }

    /// Closes all connections without a request in flight.
    pub(super) fn close_idle(&self) {
        let mut state = self.state();
        for number in state.open.keys().copied().collect::<Vec<_>>() {
            state.close_if_idle(number);
        }
    }

    /// Closes all connections, and returns the number of requests that were in flight.
    pub(super) fn close_all(&self) -> usize {
        let mut state = self.state();
        let all = state.open.keys().copied().collect::<Vec<_>>();
        let closed = all.into_iter().filter_map(|number| state.forget(number));
        closed
            .map(|life| {
                let requests = life.requests.fetch_or(CLOSED, Ordering::AcqRel);
                life.task.wake();
                requests & !CLOSED
            })
            .sum()
    }

    /// Wakes the tasks of all connections after a change of the server's stage.
    pub(super) fn wake_all(&self) {
        for entry in self.state().open.values() {
            entry.life.is_poked.store(true, Ordering::Release);
            entry.life.task.wake();
        }
    }

    /// Returns the next moment of the logical clock.
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, ConnectionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnection {
    /// Resolves when the connection must close. Await it in the task that serves the connection:
    /// [`Connections::wake_all`] wakes that task to poll its requests.
    pub(super) async fn closed(&self) {
        let life = &self.life;
        poll_fn(|context| {
            life.task.register(context.waker());
            if life.requests.load(Ordering::Acquire) & CLOSED != 0 {
                return Poll::Ready(());
            }
            if life.is_poked.load(Ordering::Acquire) {
                life.is_poked.store(false, Ordering::Relaxed);
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    /// Counts a request as in flight until the returned guard is dropped.
    pub(super) fn answering(self: &Arc<Self>) -> RequestGuard {
        self.life.requests.fetch_add(1, Ordering::AcqRel);
        RequestGuard(Arc::clone(self))
    }

    /// Marks the connection: one of its requests had a known key.
    pub(super) fn showed_key(&self) {
        if !self.showed_key.load(Ordering::Relaxed)
            && !self.showed_key.swap(true, Ordering::Relaxed)
        {
            self.all.state().showed_key(self.number);
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.state().forget(self.number);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let open = &self.0;
        // Stored before the count drops: a reader that sees the connection idle also sees since
        // when.
        open.life.since.store(open.all.moment(), Ordering::Relaxed);
        open.life.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The connections among which one is evicted.
#[derive(Debug, Clone, Copy)]
enum EvictionGroup {
    Known,
    Unknown,
    Address(IpAddr),
}

impl ConnectionsState {
    fn open(&mut self, moment: u64, address: IpAddr) -> (u64, Arc<Life>) {
        let life = Arc::new(Life::default());
        life.since.store(moment, Ordering::Relaxed);
        let entry = ConnectionEntry {
            address,
            showed_key: false,
            seen: moment,
            life: Arc::clone(&life),
        };
        self.open.insert(moment, entry);
        self.strangers += 1;
        self.unknown.insert(moment, moment);
        let own = self.addresses.entry(address).or_default();
        own.open += 1;
        own.seen.insert(moment);
        (moment, life)
    }

    /// Closes the connection of this group that has been idle longest, if any is idle.
    fn close_oldest(&mut self, all: &Connections, among: EvictionGroup) -> bool {
        for _ in 0..MAX_EXAMINED {
            let first = match among {
                EvictionGroup::Known => self.known.first_key_value().map(|(_, number)| *number),
                EvictionGroup::Unknown => self.unknown.first_key_value().map(|(_, number)| *number),
                EvictionGroup::Address(address) => {
                    let own = self.addresses.get(&address);
                    let seen = own.and_then(|own| own.seen.first());
                    seen.and_then(|seen| self.unknown.get(seen).copied())
                }
            };
            let Some((number, entry)) = first.and_then(|it| Some((it, self.open.get(&it)?))) else {
                return false;
            };
            let since = entry.life.since.load(Ordering::Relaxed);
            let is_busy = entry.life.requests.load(Ordering::Acquire) > 0;
            if !is_busy && since == entry.seen && self.close_if_idle(number) {
                return true;
            }
            // It was busy since it was last ordered: move it behind those that have been idle
            // longer.
            self.reorder(number, if is_busy { all.moment() } else { since });
        }
        false
    }

    /// Moves a connection to a new place in the order.
    fn reorder(&mut self, number: u64, moment: u64) {
        let Some(entry) = self.open.get_mut(&number) else {
            return;
        };
        let before = std::mem::replace(&mut entry.seen, moment);
        let (showed_key, address) = (entry.showed_key, entry.address);
        if showed_key {
            self.known.remove(&before);
            self.known.insert(moment, number);
            return;
        }
        self.unknown.remove(&before);
        self.unknown.insert(moment, number);
        if let Some(own) = self.addresses.get_mut(&address) {
            own.seen.remove(&before);
            own.seen.insert(moment);
        }
    }

    fn showed_key(&mut self, number: u64) {
        let Some(entry) = self.open.get_mut(&number) else {
            return;
        };
        entry.showed_key = true;
        let (seen, address) = (entry.seen, entry.address);
        self.remove_from_without_key(seen, address);
        self.known.insert(seen, number);
    }

    fn remove_from_without_key(&mut self, seen: u64, address: IpAddr) {
        self.strangers -= 1;
        self.unknown.remove(&seen);
        if let Some(own) = self.addresses.get_mut(&address) {
            own.open -= 1;
            own.seen.remove(&seen);
            if own.open == 0 {
                self.addresses.remove(&address);
            }
        }
    }

    /// Closes a connection unless it has a request in flight.
    fn close_if_idle(&mut self, number: u64) -> bool {
        let Some(entry) = self.open.get(&number) else {
            return false;
        };
        let life = Arc::clone(&entry.life);
        let closed = life
            .requests
            .compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire);
        if closed.is_err() {
            return false;
        }
        self.forget(number);
        life.task.wake();
        true
    }

    fn forget(&mut self, number: u64) -> Option<Arc<Life>> {
        let entry = self.open.remove(&number)?;
        if entry.showed_key {
            self.known.remove(&entry.seen);
        } else {
            self.remove_from_without_key(entry.seen, entry.address);
        }
        Some(entry.life)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn of(connections: usize, without_key: usize, per_address: usize) -> Arc<Connections> {
        Connections::new(&Limits {
            connections,
            connections_without_key: without_key,
            connections_per_address: per_address,
            ..Limits::default()
        })
    }

    fn other(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 1, last))
    }

    fn admit(all: &Arc<Connections>, address: IpAddr) -> Option<Arc<OpenConnection>> {
        all.admit(address).open.map(Arc::new)
    }

    fn is_open(all: &Connections, open: &OpenConnection) -> bool {
        all.state().open.contains_key(&open.number)
    }

    #[test]
    fn the_longest_idle_gives_way_and_the_busy_do_not() {
        let all = of(10, 3, 3);
        let open: Vec<_> = (0..3).map(|_| admit(&all, ONE).expect("room")).collect();
        let busy = open[0].answering();
        let fourth = admit(&all, ONE).expect("the second gives way");
        assert!(is_open(&all, &open[0]) && !is_open(&all, &open[1]) && is_open(&all, &open[2]));
        drop(busy);
        // It became idle last.
        let fifth = admit(&all, ONE).expect("the third gives way");
        assert!(is_open(&all, &open[0]) && !is_open(&all, &open[2]));
        let _busy = [&open[0], &fourth, &fifth].map(OpenConnection::answering);
        let refused = all.admit(ONE);
        assert!(refused.open.is_none());
        assert_eq!(refused.limit, Some("connections_per_address"));
        assert_eq!(all.admit(other(1)).limit, Some("connections_without_key"));
    }

    #[test]
    fn room_is_left_to_those_with_a_key() {
        let all = of(4, 2, 2);
        let known: Vec<_> = (0..2)
            .map(|_| {
                let open = admit(&all, ONE).expect("room");
                let _request = open.answering();
                open.showed_key();
                open.showed_key();
                open
            })
            .collect();
        let strangers: Vec<_> = (0..9)
            .map(|it| admit(&all, other(it)).expect("room"))
            .collect();
        assert!(known.iter().all(|open| is_open(&all, open)));
        assert_eq!(
            strangers.iter().filter(|open| is_open(&all, open)).count(),
            2
        );
        drop(strangers);
        assert_eq!(all.state().strangers, 0);
        // They may use the whole limit if nobody else connects.
        let more: Vec<_> = (0..2).map(|_| admit(&all, ONE).expect("room")).collect();
        let _busy: Vec<_> = more.iter().map(OpenConnection::answering).collect();
        for open in &more {
            open.showed_key();
        }
        assert!(admit(&all, other(1)).is_some());
        assert!(!is_open(&all, &known[0]));
        drop((known, more));
    }

    #[test]
    fn nothing_is_left_of_what_is_gone() {
        let all = of(8, 4, 2);
        for round in 0..50_u8 {
            let open = admit(&all, other(round % 3)).expect("room");
            let first = open.answering();
            let second = open.answering();
            if round % 2 == 0 {
                open.showed_key();
            }
            drop(first);
            if round % 5 == 0 {
                assert_eq!(all.close_all(), 1);
            }
            drop(open);
            drop(second);
        }
        all.close_idle();
        let state = all.state();
        assert!(state.open.is_empty() && state.addresses.is_empty());
        assert!(state.known.is_empty() && state.unknown.is_empty());
        assert_eq!(state.strangers, 0);
    }
}
