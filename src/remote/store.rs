//! The files of a mirror: opened on a server when they are read.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use super::listing::Entry;
use super::ranged::RangedFile;
use super::web::Web;
use crate::source::ReadAt;
use crate::source::elsewhere::{Far, Store};

/// The files of a source by their paths.
pub(super) struct Files {
    files: RwLock<HashMap<PathBuf, File>>,
}

struct File {
    far: Arc<RangedFile>,
    sha256: Option<String>,
}

impl Files {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            files: RwLock::default(),
        }
    }

    /// Adds a file that a listing tells the size of.
    pub(super) fn add_listed(&self, web: &Arc<Web>, entry: &Entry, size: u64) {
        let far = RangedFile::listed(Arc::clone(web), entry.url.clone(), size);
        self.add(&entry.path, far, entry.sha256.clone());
    }

    /// Adds a file that was found.
    pub(super) fn add(&self, path: &str, far: RangedFile, sha256: Option<String>) {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let far = Arc::new(far);
        files.insert(PathBuf::from(path), File { far, sha256 });
    }
}

impl Store for Files {
    fn open(&self, below: &Path) -> Option<io::Result<Far>> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let far: Far = Arc::clone(&files.get(below)?.far) as Arc<dyn ReadAt + Send + Sync>;
        Some(Ok(far))
    }

    fn digest(&self, below: &Path) -> Option<String> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.get(below)?.sha256.clone()
    }
}
