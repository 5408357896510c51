//! Load balancing among the addresses of an upstream, and tracking of unavailable ones.
//!
//! Invariant: a call in flight counts at exactly one address, and its end is counted once. Error
//! statuses never disable the last address, so the requests of one caller cannot close a service to
//! others.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::UpstreamAddress;
use super::breaker::{Breaker, CallAdmission};

/// Consecutive failed health checks that make an address unhealthy.
const UNHEALTHY_AFTER: u32 = 2;

/// The addresses of an upstream.
#[derive(Debug)]
pub(super) struct Pool {
    /// The service's name in logs.
    label: String,
    targets: Vec<Arc<Target>>,
    /// Round-robin counter among addresses with equally few calls.
    turn: AtomicUsize,
}

/// An address with its state.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) address: UpstreamAddress,
    in_flight: AtomicUsize,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    breaker: Breaker,
    /// Failed health checks since the last successful one.
    missed: u32,
}

/// Consequence of a failed call for its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallFault {
    /// The address is unreachable.
    Gone,
    /// The address failed on this request; another request may succeed.
    Failed,
}

/// A call in flight at an address.
#[derive(Debug)]
pub(super) struct CallGuard {
    pub(super) number: usize,
    pub(super) target: Arc<Target>,
    is_trial: bool,
}

impl Pool {
    pub(super) fn new(label: &str, addresses: &[UpstreamAddress]) -> Self {
        let targets = addresses.iter().cloned().map(Target::new).map(Arc::new);
        Self {
            label: label.to_owned(),
            targets: targets.collect(),
            turn: AtomicUsize::new(0),
        }
    }

    pub(super) fn targets(&self) -> &[Arc<Target>] {
        &self.targets
    }

    /// Selects the address with the fewest calls in flight among those that are up and were not
    /// tried.
    pub(super) fn take(&self, tried: &[usize]) -> Option<CallGuard> {
        let count = self.targets.len();
        let start = self.turn.fetch_add(usize::from(tried.is_empty()), Relaxed);
        let in_turn = (0..count).map(|offset| (start % count + offset) % count);
        let mut order: Vec<usize> = in_turn.filter(|number| !tried.contains(number)).collect();
        order.sort_by_key(|number| self.targets[*number].in_flight());
        let now = Instant::now();
        order
            .into_iter()
            .find_map(|number| self.targets[number].admit(number, now))
    }

    /// Returns the time until an address may be tried again.
    pub(super) fn wait(&self) -> Duration {
        let now = Instant::now();
        let waits = self.targets.iter().map(|target| target.wait(now));
        waits.min().unwrap_or_default()
    }

    /// Records an answered call.
    pub(super) fn succeeded(&self, held: &mut CallGuard) {
        held.is_trial = false;
        self.answered(&held.target);
    }

    /// Records that an address answered.
    fn answered(&self, target: &Target) {
        if target.lock().breaker.succeed() {
            let (service, address) = (&self.label, &target.address);
            tracing::info!(service, %address, "an upstream address answers again");
        }
    }

    /// Records a failed call.
    pub(super) fn failed(&self, held: &mut CallGuard, fault: CallFault, reason: &str) {
        let is_trial = std::mem::take(&mut held.is_trial);
        if fault == CallFault::Failed && !self.has_other(held.number) {
            // Any answer proves that the address is reachable.
            if is_trial {
                self.answered(&held.target);
            }
            return;
        }
        let pause = held.target.lock().breaker.fail(Instant::now(), is_trial);
        if let Some(pause) = pause {
            let (service, address) = (&self.label, &held.target.address);
            let pause_s = pause.as_secs();
            tracing::warn!(service, %address, pause_s, reason, "an upstream address failed and is paused");
        }
    }

    /// Records a health check.
    pub(super) fn checked(&self, target: &Target, found: Result<(), String>) {
        let (service, address) = (&self.label, &target.address);
        let mut state = target.lock();
        let was_sick = state.missed >= UNHEALTHY_AFTER;
        match found {
            Ok(()) => {
                state.missed = 0;
                let was_open = state.breaker.succeed();
                drop(state);
                if was_sick || was_open {
                    tracing::info!(service, %address, "an upstream address answers again");
                }
            }
            Err(reason) => {
                state.missed = state.missed.saturating_add(1);
                let is_sick = state.missed >= UNHEALTHY_AFTER;
                drop(state);
                if is_sick && !was_sick {
                    tracing::warn!(service, %address, reason, "an upstream address is unhealthy");
                }
            }
        }
    }

    /// Returns whether all addresses are down, as far as known.
    pub(super) fn is_down(&self) -> bool {
        self.targets.iter().all(|target| target.is_down())
    }

    fn has_other(&self, number: usize) -> bool {
        let mut others = self.targets.iter().enumerate();
        others.any(|(other, target)| other != number && !target.is_down())
    }
}

impl Target {
    fn new(address: UpstreamAddress) -> Self {
        Self {
            address,
            in_flight: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// Returns the number of calls in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// Returns whether it failed too often or is unhealthy.
    pub(super) fn is_down(&self) -> bool {
        let state = self.lock();
        state.missed >= UNHEALTHY_AFTER || state.breaker.is_open()
    }

    fn admit(self: &Arc<Self>, number: usize, now: Instant) -> Option<CallGuard> {
        let mut state = self.lock();
        if state.missed >= UNHEALTHY_AFTER {
            return None;
        }
        let admission = state.breaker.admit(now);
        drop(state);
        if matches!(admission, CallAdmission::Wait(_)) {
            return None;
        }
        self.in_flight.fetch_add(1, Relaxed);
        Some(CallGuard {
            number,
            target: Arc::clone(self),
            is_trial: admission == CallAdmission::Trial,
        })
    }

    fn wait(&self, now: Instant) -> Duration {
        match self.lock().breaker.admission(now) {
            CallAdmission::Wait(wait) => wait,
            // A trial or the next health check decides.
            CallAdmission::Call | CallAdmission::Trial => Duration::from_secs(1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.target.in_flight.fetch_sub(1, Relaxed);
        if self.is_trial {
            self.target.lock().breaker.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(count: usize) -> Pool {
        let address =
            |number| UpstreamAddress::parse(&format!("http://h{number}/")).expect("an address");
        let addresses: Vec<UpstreamAddress> = (0..count).map(address).collect();
        Pool::new("local/x", &addresses)
    }

    fn fail(pool: &Pool, number: usize, fault: CallFault) {
        let others: Vec<usize> = (0..pool.targets.len()).filter(|it| *it != number).collect();
        if let Some(mut held) = pool.take(&others) {
            pool.failed(&mut held, fault, "test");
        }
    }

    #[test]
    fn calls_go_where_the_fewest_are_and_then_in_turn() {
        let pool = pool(3);
        let held: Vec<CallGuard> = (0..6).filter_map(|_| pool.take(&[])).collect();
        let counts = || -> Vec<usize> { pool.targets.iter().map(|it| it.in_flight()).collect() };
        assert_eq!(counts(), [2, 2, 2]);
        let (kept, ended): (Vec<CallGuard>, Vec<CallGuard>) =
            held.into_iter().partition(|it| it.number != 1);
        drop(ended);
        assert_eq!(counts(), [2, 0, 2]);
        for _ in 0..2 {
            assert_eq!(pool.take(&[]).expect("one").number, 1);
        }
        drop(kept);
        let mut numbers: Vec<usize> = (0..3)
            .map(|_| pool.take(&[]).expect("one").number)
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
        assert!(pool.take(&[0, 1, 2]).is_none());
    }

    #[test]
    fn an_error_status_never_takes_the_last_address_away() {
        let pool = pool(2);
        for _ in 0..20 {
            fail(&pool, 0, CallFault::Failed);
            fail(&pool, 1, CallFault::Failed);
        }
        assert!(pool.targets[0].is_down() && !pool.targets[1].is_down());
        let pool = self::pool(2);
        for _ in 0..3 {
            fail(&pool, 0, CallFault::Gone);
        }
        assert!(pool.targets[0].is_down() && !pool.is_down());
        for _ in 0..20 {
            fail(&pool, 1, CallFault::Failed);
        }
        assert!(!pool.is_down());
        for _ in 0..3 {
            fail(&pool, 1, CallFault::Gone);
        }
        assert!(pool.is_down());
        assert!(pool.take(&[]).is_none());
        assert!(pool.wait() <= Duration::from_secs(1));
        pool.answered(&pool.targets[1]);
        assert_eq!(pool.take(&[]).expect("it answered").number, 1);
    }

    #[test]
    fn health_checks_take_an_address_away_and_give_it_back() {
        let pool = pool(1);
        let target = &pool.targets[0];
        for _ in 0..3 {
            pool.checked(target, Err("503".to_owned()));
            assert!(!pool.is_down(), "once is no reason");
            pool.checked(target, Err("503".to_owned()));
            assert!(pool.is_down() && pool.take(&[]).is_none());
            pool.checked(target, Ok(()));
            assert!(!pool.is_down() && pool.take(&[]).is_some());
        }
    }
}
