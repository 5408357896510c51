//! Caches of the storage that each account uses: bytes of tasks, datasets, files of batches, trained
//! packages and vector caches.
//!
//! Invariant: a count is used only for a limited time, then it is made again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::account::AccountId;

/// Stored bytes of an account, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AccountBytes {
    pub(super) tasks: u64,
    pub(super) datasets: u64,
    pub(super) files: u64,
    pub(super) packages: u64,
    pub(super) caches: u64,
}

/// The last counts.
#[derive(Debug, Default)]
pub(super) struct StorageCache {
    pub(super) beside_tasks: CachedCounts,
    pub(super) all: CachedCounts,
}

/// Counts of accounts, with the time of each.
#[derive(Debug, Default)]
pub(super) struct CachedCounts(Mutex<HashMap<AccountId, (Instant, AccountBytes)>>);

impl AccountBytes {
    /// Returns the sum of all kinds.
    pub(super) fn total(self) -> u64 {
        self.beside_tasks().saturating_add(self.tasks)
    }

    /// Returns each kind with its name.
    pub(super) fn by_kind(self) -> [(&'static str, u64); 5] {
        [
            ("tasks", self.tasks),
            ("datasets", self.datasets),
            ("files", self.files),
            ("packages", self.packages),
            ("caches", self.caches),
        ]
    }

    /// Returns the sum without tasks.
    pub(super) fn beside_tasks(self) -> u64 {
        let sum = self.datasets.saturating_add(self.files);
        sum.saturating_add(self.packages)
            .saturating_add(self.caches)
    }
}

impl StorageCache {
    /// Discards the count of an account's datasets and files, so that they are counted again.
    pub(super) fn forget(&self, account: AccountId) {
        self.beside_tasks.lock().remove(&account);
    }
}

impl CachedCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<AccountId, (Instant, AccountBytes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the count of an account, unless it is older than `believed`.
    pub(super) fn recent(&self, account: AccountId, believed: Duration) -> Option<AccountBytes> {
        let (counted, stored) = self.lock().get(&account).copied()?;
        (counted.elapsed() < believed).then_some(stored)
    }

    /// Stores a new count of an account.
    pub(super) fn counted(&self, account: AccountId, stored: AccountBytes) {
        self.lock().insert(account, (Instant::now(), stored));
    }
}
