//! Open connections: how many there may be, and which one goes for another.
//!
//! Invariant: there are never more than the limits have. A connection that waits for its client gives
//! way to a new one, the longest idle first, so that no client waits for those who only hold
//! connections open; one whose request is being answered is let be. Part of the room is left to
//! connections that showed a key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::settings::Limits;

/// All open connections.
#[derive(Debug)]
pub(super) struct Connections {
    /// In sum, without a key, and of these with one address.
    most: usize,
    most_strangers: usize,
    most_of_address: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers of connections, and of moments at which one became idle.
    next: u64,
    open: HashMap<u64, Entry>,
    strangers: usize,
    addresses: HashMap<IpAddr, Address>,
    /// Idle connections by the moment at which they became so: with a key, and without.
    idle_known: BTreeMap<u64, u64>,
    idle_strangers: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    showed_key: bool,
    /// Requests that are being answered.
    requests: usize,
    /// When it became idle.
    since: u64,
    close: Arc<Notify>,
}

/// Connections without a key of one address.
#[derive(Debug, Default)]
struct Address {
    open: usize,
    idle: BTreeSet<u64>,
}

/// An open connection. Dropping it makes room.
#[derive(Debug)]
pub(super) struct Open {
    all: Arc<Connections>,
    number: u64,
    close: Arc<Notify>,
    showed_key: AtomicBool,
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Answering(Arc<Open>);

/// What became of a client that connects.
#[derive(Debug)]
pub(super) struct Admission {
    /// Its connection; `None` if there is no room.
    pub(super) open: Option<Open>,
    /// The limit that it met, whether or not another connection gave way.
    pub(super) limit: Option<&'static str>,
}

impl Connections {
    /// No connections yet.
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let most_strangers = limits.connections_without_key();
        Arc::new(Self {
            most: limits.connections,
            most_strangers,
            most_of_address: limits.connections_per_address(),
            state: Mutex::default(),
        })
    }

    /// A client that connects: another connection gives way where that is needed and can be.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Admission {
        let mut state = self.state();
        let own = state.addresses.get(&address);
        let own_open = own.map_or(0, |own| own.open);
        let own_oldest = own.and_then(|own| own.idle.first().copied());
        let (limit, gives_way) = if own_open >= self.most_of_address {
            let oldest = own_oldest.and_then(|since| state.idle_strangers.get(&since).copied());
            (Some("connections_per_address"), oldest)
        } else if state.strangers >= self.most_strangers {
            (Some("connections_without_key"), state.oldest_stranger())
        } else if state.open.len() >= self.most {
            let oldest = state.oldest_stranger();
            let known = || state.idle_known.values().next().copied();
            (Some("connections"), oldest.or_else(known))
        } else {
            (None, None)
        };
        if limit.is_some() {
            let Some(number) = gives_way else {
                return Admission { open: None, limit };
            };
            state.close(number);
        }
        let (number, close) = state.open(address);
        let open = Open {
            all: Arc::clone(self),
            number,
            close,
            showed_key: AtomicBool::new(false),
        };
        Admission {
            open: Some(open),
            limit,
        }
    }

    /// Closes the connection that was idle for longest, if one is.
    pub(super) fn close_oldest(&self) {
        let mut state = self.state();
        let oldest = state.oldest_stranger();
        if let Some(number) = oldest.or_else(|| state.idle_known.values().next().copied()) {
            state.close(number);
        }
    }

    /// Closes the connections on which no request is being answered.
    pub(super) fn close_idle(&self) {
        let mut state = self.state();
        let idle = state
            .idle_known
            .values()
            .chain(state.idle_strangers.values());
        for number in idle.copied().collect::<Vec<_>>() {
            state.close(number);
        }
    }

    /// Closes all connections, and gives the number of requests that were being answered.
    pub(super) fn close_all(&self) -> usize {
        let mut state = self.state();
        let requests = state.open.values().map(|entry| entry.requests).sum();
        for number in state.open.keys().copied().collect::<Vec<_>>() {
            state.close(number);
        }
        requests
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Ends when the connection is to be closed.
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }

    /// A request of it is being answered, until what is given is dropped.
    pub(super) fn answering(self: &Arc<Self>) -> Answering {
        let mut state = self.all.state();
        state.becomes_busy(self.number);
        Answering(Arc::clone(self))
    }

    /// A request of it had a key that is known.
    pub(super) fn showed_key(&self) {
        if !self.showed_key.swap(true, Ordering::Relaxed) {
            self.all.state().showed_key(self.number);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.state().forget(self.number);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.all.state().may_become_idle(self.0.number);
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn oldest_stranger(&self) -> Option<u64> {
        self.idle_strangers.values().next().copied()
    }

    fn open(&mut self, address: IpAddr) -> (u64, Arc<Notify>) {
        let number = self.number();
        let close = Arc::new(Notify::new());
        let entry = Entry {
            address,
            showed_key: false,
            requests: 0,
            since: 0,
            close: Arc::clone(&close),
        };
        self.open.insert(number, entry);
        self.strangers += 1;
        self.addresses.entry(address).or_default().open += 1;
        self.becomes_idle(number);
        (number, close)
    }

    fn becomes_idle(&mut self, number: u64) {
        let since = self.number();
        let Some(entry) = self.open.get_mut(&number) else {
            return;
        };
        entry.since = since;
        if entry.showed_key {
            self.idle_known.insert(since, number);
            return;
        }
        self.idle_strangers.insert(since, number);
        if let Some(address) = self.addresses.get_mut(&entry.address) {
            address.idle.insert(since);
        }
    }

    fn becomes_busy(&mut self, number: u64) {
        // One that was closed meanwhile is not there any more.
        if let Some(entry) = self.open.get_mut(&number) {
            entry.requests += 1;
            let (since, address) = (entry.since, entry.address);
            self.is_not_idle(since, address);
        }
    }

    fn may_become_idle(&mut self, number: u64) {
        let Some(entry) = self.open.get_mut(&number) else {
            return;
        };
        entry.requests -= 1;
        if entry.requests == 0 {
            self.becomes_idle(number);
        }
    }

    fn is_not_idle(&mut self, since: u64, address: IpAddr) {
        self.idle_known.remove(&since);
        self.idle_strangers.remove(&since);
        if let Some(address) = self.addresses.get_mut(&address) {
            address.idle.remove(&since);
        }
    }

    fn showed_key(&mut self, number: u64) {
        let Some(entry) = self.open.get_mut(&number) else {
            return;
        };
        if entry.showed_key {
            return;
        }
        entry.showed_key = true;
        let address = entry.address;
        self.is_no_stranger(address);
    }

    fn is_no_stranger(&mut self, address: IpAddr) {
        self.strangers -= 1;
        if let Some(own) = self.addresses.get_mut(&address) {
            own.open -= 1;
            if own.open == 0 {
                self.addresses.remove(&address);
            }
        }
    }

    fn close(&mut self, number: u64) {
        if let Some(close) = self.forget(number) {
            close.notify_one();
        }
    }

    fn forget(&mut self, number: u64) -> Option<Arc<Notify>> {
        let entry = self.open.remove(&number)?;
        self.is_not_idle(entry.since, entry.address);
        if !entry.showed_key {
            self.is_no_stranger(entry.address);
        }
        Some(entry.close)
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

    fn admit(all: &Arc<Connections>, address: IpAddr) -> Option<Arc<Open>> {
        all.admit(address).open.map(Arc::new)
    }

    fn is_open(all: &Connections, open: &Open) -> bool {
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
        let _busy = [&open[0], &fourth, &fifth].map(Open::answering);
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
        // All of it is theirs if nobody else comes.
        let more: Vec<_> = (0..2).map(|_| admit(&all, ONE).expect("room")).collect();
        let _busy: Vec<_> = more.iter().map(Open::answering).collect();
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
        assert!(state.idle_known.is_empty() && state.idle_strangers.is_empty());
        assert_eq!(state.strangers, 0);
    }
}
