//! Counts of what accounts have stored: bytes of tasks, datasets, trained packages and caches of vectors.
//!
//! Invariant: a count is believed for a while only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::account::AccountId;

/// Bytes of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) tasks: u64,
    pub(super) datasets: u64,
    pub(super) packages: u64,
    pub(super) caches: u64,
}

/// What was counted last.
#[derive(Debug, Default)]
pub(super) struct OnDisk {
    pub(super) beside_tasks: Counts,
    pub(super) all: Counts,
}

/// Counts of accounts, with their time.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<HashMap<AccountId, (Instant, Stored)>>);

impl Stored {
    /// All of it.
    pub(super) fn total(self) -> u64 {
        self.beside_tasks().saturating_add(self.tasks)
    }

    /// Each part with its name.
    pub(super) fn by_kind(self) -> [(&'static str, u64); 4] {
        [
            ("tasks", self.tasks),
            ("datasets", self.datasets),
            ("packages", self.packages),
            ("caches", self.caches),
        ]
    }

    /// Without tasks.
    pub(super) fn beside_tasks(self) -> u64 {
        let sum = self.datasets.saturating_add(self.packages);
        sum.saturating_add(self.caches)
    }
}

impl OnDisk {
    /// Has an account's datasets and files counted again.
    pub(super) fn forget(&self, account: AccountId) {
        self.beside_tasks.lock().remove(&account);
    }
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, HashMap<AccountId, (Instant, Stored)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The count of an account, if it is no older than this.
    pub(super) fn lately(&self, account: AccountId, believed: Duration) -> Option<Stored> {
        let (counted, stored) = self.lock().get(&account).copied()?;
        (counted.elapsed() < believed).then_some(stored)
    }

    /// An account was counted.
    pub(super) fn counted(&self, account: AccountId, stored: Stored) {
        self.lock().insert(account, (Instant::now(), stored));
    }
}
