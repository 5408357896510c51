//! Remote files: on disk they have a name and a size, but no content.
//!
//! A [`RemoteStore`] that is mounted on a folder provides the bytes of the files below it. Code that only
//! asks the disk (walks, sizes, links) works unchanged. Invariant: without a mounted store, opening
//! a file costs only one atomic load more, and no lock.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::ReadAt;

/// Bytes of a remote file, readable from several threads.
pub type RemoteBytes = Arc<dyn ReadAt + Send + Sync>;

/// The source of bytes for files below a folder.
pub trait RemoteStore: Send + Sync {
    /// Returns the bytes of the file at this path below the folder; `None` if the content is on
    /// disk.
    fn open(&self, below: &Path) -> Option<io::Result<RemoteBytes>>;

    /// Returns a text that two files share if and only if their contents are equal; `None` if that
    /// is unknown without reading them.
    fn digest(&self, below: &Path) -> Option<String>;
}

/// A mounted store. Dropping it unmounts the store.
#[must_use = "a store is unmounted when this is dropped"]
#[derive(Debug)]
pub struct MountedStore {
    root: PathBuf,
}

static MOUNTED: AtomicUsize = AtomicUsize::new(0);
static STORES: RwLock<Vec<(PathBuf, Arc<dyn RemoteStore>)>> = RwLock::new(Vec::new());

/// Mounts a store on the absolute directory `root`.
pub fn mount(root: &Path, store: Arc<dyn RemoteStore>) -> MountedStore {
    let mut stores = STORES.write().unwrap_or_else(PoisonError::into_inner);
    stores.push((root.to_owned(), store));
    MOUNTED.store(stores.len(), Ordering::Release);
    MountedStore {
        root: root.to_owned(),
    }
}

impl Drop for MountedStore {
    fn drop(&mut self) {
        let mut stores = STORES.write().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|(root, _)| *root != self.root);
        MOUNTED.store(stores.len(), Ordering::Release);
    }
}

/// Opens the file at `path` if it is remote.
pub(super) fn open(path: &Path) -> Option<io::Result<RemoteBytes>> {
    let (store, below) = find(path)?;
    store.open(&below)
}

/// Returns whether the file at `path` is remote, so that reading it takes time.
pub fn is_remote(path: &Path) -> bool {
    find(path).is_some()
}

/// Returns the digest of a remote file's content, as its store states it.
pub fn digest(path: &Path) -> Option<String> {
    let (store, below) = find(path)?;
    store.digest(&below)
}

fn find(path: &Path) -> Option<(Arc<dyn RemoteStore>, PathBuf)> {
    if MOUNTED.load(Ordering::Acquire) == 0 {
        return None;
    }
    let stores = STORES.read().unwrap_or_else(PoisonError::into_inner);
    stores.iter().find_map(|(root, store)| {
        let below = path.strip_prefix(root).ok()?;
        Some((Arc::clone(store), below.to_owned()))
    })
}
