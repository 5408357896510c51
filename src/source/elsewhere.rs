//! Files whose bytes are elsewhere: on disk they have a name and a size, and no content.
//!
//! A [`Store`] that is mounted on a directory gives the bytes of the files below it. Walks, sizes,
//! links and everything else that asks the disk need to know nothing of it.
//! Invariant: without a mounted store, opening a file costs one relaxed load more and no lock.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::ReadAt;

/// Bytes that several threads may read.
pub type Far = Arc<dyn ReadAt + Send + Sync>;

/// Where the bytes of files below a directory come from.
pub trait Store: Send + Sync {
    /// The bytes of the file at this path below the directory; `None` if the file on disk is the file.
    fn open(&self, below: &Path) -> Option<io::Result<Far>>;

    /// A text that two files share if and only if their content is the same; `None` where that is
    /// not known without reading them.
    fn digest(&self, below: &Path) -> Option<String>;
}

/// A store on its directory, until it is dropped.
#[must_use = "a store is unmounted when this is dropped"]
#[derive(Debug)]
pub struct Mounted {
    root: PathBuf,
}

static MOUNTED: AtomicUsize = AtomicUsize::new(0);
static STORES: RwLock<Vec<(PathBuf, Arc<dyn Store>)>> = RwLock::new(Vec::new());

/// Mounts a store on the absolute directory `root`.
pub fn mount(root: &Path, store: Arc<dyn Store>) -> Mounted {
    let mut stores = STORES.write().unwrap_or_else(PoisonError::into_inner);
    stores.push((root.to_owned(), store));
    MOUNTED.store(stores.len(), Ordering::Release);
    Mounted {
        root: root.to_owned(),
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut stores = STORES.write().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|(root, _)| *root != self.root);
        MOUNTED.store(stores.len(), Ordering::Release);
    }
}

/// The bytes of the file at `path`, if they are elsewhere.
pub(super) fn open(path: &Path) -> Option<io::Result<Far>> {
    let (store, below) = find(path)?;
    store.open(&below)
}

/// Whether the bytes of what is at `path` are elsewhere, where each of them costs time.
pub fn is_far(path: &Path) -> bool {
    find(path).is_some()
}

/// What tells the content of a file that is elsewhere, see [`Store::digest`].
pub fn digest(path: &Path) -> Option<String> {
    let (store, below) = find(path)?;
    store.digest(&below)
}

fn find(path: &Path) -> Option<(Arc<dyn Store>, PathBuf)> {
    if MOUNTED.load(Ordering::Acquire) == 0 {
        return None;
    }
    let stores = STORES.read().unwrap_or_else(PoisonError::into_inner);
    stores.iter().find_map(|(root, store)| {
        let below = path.strip_prefix(root).ok()?;
        Some((Arc::clone(store), below.to_owned()))
    })
}
