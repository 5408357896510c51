//! What a catalog and its watch have in common.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::sync::watch::Sender;
use tokio::task::JoinSet;

use super::options::{CatalogOptions, PackageDirectory};
use super::table::Table;

/// What the catalog and its watch have in common.
pub(super) struct Shared {
    /// Where packages are. None goes, and each keeps its place: packages are told apart by it.
    pub(super) directories: ArcSwap<Vec<PackageDirectory>>,
    /// The rest of what the catalog is made of.
    pub(super) options: CatalogOptions,
    pub(super) table: ArcSwap<Table>,
    pub(super) changes: Sender<u64>,
    /// Whether the catalog was stopped, or dropped.
    pub(super) stop: Sender<bool>,
    /// Has the watch look at everything.
    pub(super) wake: Arc<Notify>,
    /// Services that were taken away and let their last requests end.
    pub(super) endings: Mutex<JoinSet<()>>,
}

/// What a lock guards, though who held it may have panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directories = &**self.directories.load();
        f.debug_struct("Shared")
            .field("directories", directories)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
