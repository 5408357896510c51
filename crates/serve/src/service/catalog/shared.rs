//! State shared by a catalog and its watch.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::sync::watch::Sender;
use tokio::task::JoinSet;

use super::options::{CatalogOptions, PackageDirectory};
use super::table::ServiceTable;
use crate::account::AccountId;

/// State shared by a catalog and its watch.
pub(super) struct SharedCatalog {
    /// The package directories. Entries are only appended, because package keys contain their
    /// index.
    pub(super) directories: ArcSwap<Vec<PackageDirectory>>,
    /// The other options.
    pub(super) options: CatalogOptions,
    pub(super) table: ArcSwap<ServiceTable>,
    pub(super) changes: Sender<u64>,
    /// True if the catalog was stopped or dropped.
    pub(super) stop: Sender<bool>,
    /// Triggers a rescan by the watch.
    pub(super) wake: Arc<Notify>,
    /// Removed services that are finishing their last requests.
    pub(super) endings: Mutex<JoinSet<()>>,
    /// Services whose models are loaded at the start, and are not loaded yet.
    pub(super) warming: Mutex<BTreeSet<(AccountId, String)>>,
}

/// Locks a mutex, ignoring poisoning by a panicked holder.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for SharedCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directories = &**self.directories.load();
        f.debug_struct("SharedCatalog")
            .field("directories", directories)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
