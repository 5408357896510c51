//! Limits on the requests in flight of each key and each account.
//!
//! Invariant: a key, and an account over all its keys, never exceeds its limit. A request in flight
//! keeps its connection from being evicted, so the limit stops one key from taking all connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::settings::Limits;
use crate::account::AccountId;

/// Counts of the requests in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<InFlightCounts>>);

#[derive(Debug, Default)]
struct InFlightCounts {
    keys: HashMap<i64, usize>,
    accounts: HashMap<AccountId, usize>,
}

/// A counted request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlightGuard {
    counts: Arc<Mutex<InFlightCounts>>,
    key: i64,
    account: AccountId,
}

/// The limit that a request exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReachedLimit {
    /// The setting's name.
    pub(super) limit: &'static str,
    pub(super) most: usize,
}

impl InFlight {
    /// Counts a request of a key; fails if a limit is reached.
    pub(super) fn begin(
        &self,
        key: i64,
        account: AccountId,
        limits: &Limits,
    ) -> Result<InFlightGuard, ReachedLimit> {
        let mut counts = lock(&self.0);
        let (of_key, of_account) = (
            counts.keys.get(&key).copied().unwrap_or(0),
            counts.accounts.get(&account).copied().unwrap_or(0),
        );
        for (limit, now, most) in [
            ("requests_per_key", of_key, limits.requests_per_key()),
            (
                "requests_per_account",
                of_account,
                limits.requests_per_account(),
            ),
        ] {
            if now >= most {
                return Err(ReachedLimit { limit, most });
            }
        }
        counts.keys.insert(key, of_key + 1);
        counts.accounts.insert(account, of_account + 1);
        Ok(InFlightGuard {
            counts: Arc::clone(&self.0),
            key,
            account,
        })
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        release(&mut counts.keys, &self.key);
        release(&mut counts.accounts, &self.account);
    }
}

fn release<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn lock(counts: &Mutex<InFlightCounts>) -> MutexGuard<'_, InFlightCounts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_accounts_have_limits_of_their_own() {
        let limits = Limits {
            requests_per_key: 2,
            requests_per_account: 3,
            ..Limits::default()
        };
        let all = InFlight::default();
        let begin = |key, account| all.begin(key, AccountId(account), &limits);
        let first = begin(1, 1).expect("room");
        let second = begin(1, 1).expect("room");
        let limit =
            |begun: Result<InFlightGuard, ReachedLimit>| begun.expect_err("it is full").limit;
        assert_eq!(limit(begin(1, 1)), "requests_per_key");
        let other_key = begin(2, 1).expect("room");
        assert_eq!(limit(begin(2, 1)), "requests_per_account");
        let other_account = begin(3, 2).expect("room");
        drop(first);
        drop(begin(1, 1).expect("its place is free"));
        drop((second, other_key, other_account));
        let counts = lock(&all.0);
        assert!(counts.keys.is_empty() && counts.accounts.is_empty());
    }
}
