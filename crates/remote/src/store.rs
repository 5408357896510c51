//! The files of a mirror, which are opened on a server when they are read.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use super::listing::SourceFile;
use super::ranged::RangedFile;
use super::web::HttpClient;
use pkgtool_base::source::ReadAt;
use pkgtool_base::source::elsewhere::{RemoteBytes, RemoteStore};

/// The files of a source by their paths.
pub(super) struct MirrorStore {
    files: RwLock<HashMap<PathBuf, File>>,
}

struct File {
    far: Arc<RangedFile>,
    sha256: Option<String>,
}

impl MirrorStore {
    /// Creates an empty store.
    pub(super) fn new() -> Self {
        Self {
            files: RwLock::default(),
        }
    }

    /// Adds a file whose size is listed.
    pub(super) fn add_listed(&self, web: &Arc<HttpClient>, entry: &SourceFile, size: u64) {
        let far = RangedFile::listed(Arc::clone(web), entry.url.clone(), size);
        self.add(&entry.path, far, entry.sha256.clone());
    }

    /// Adds a file that was found on the server.
    pub(super) fn add(&self, path: &str, far: RangedFile, sha256: Option<String>) {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let far = Arc::new(far);
        files.insert(PathBuf::from(path), File { far, sha256 });
    }
}

impl RemoteStore for MirrorStore {
    fn open(&self, below: &Path) -> Option<io::Result<RemoteBytes>> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let far: RemoteBytes = Arc::clone(&files.get(below)?.far) as Arc<dyn ReadAt + Send + Sync>;
        Some(Ok(far))
    }

    fn digest(&self, below: &Path) -> Option<String> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.get(below)?.sha256.clone()
    }
}
