//! A lock that keeps stored blobs from being deleted while a backup copies them.
//!
//! Invariant: deleting blobs takes the lock file in shared mode, a backup takes it exclusively. The
//! operating system releases the lock when the process ends, even after a crash.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::database::{DatabaseError, DatabaseResult};

/// Maximum time a backup waits for deletions in progress.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(10);

/// The lock file, which lies beside the directory of blobs.
#[derive(Debug, Clone)]
pub(super) struct BlobLock {
    file: PathBuf,
}

/// The acquired lock; released on drop.
#[derive(Debug)]
pub(super) struct BlobLockGuard {
    _file: File,
}

impl BlobLock {
    /// Returns the lock for a directory of blobs.
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            file: directory.with_extension("lock"),
        }
    }

    /// Acquires the shared lock for deleting blobs; `None` during a backup.
    pub(super) fn lock_for_deletion(&self) -> Option<Result<BlobLockGuard, std::io::Error>> {
        let file = match self.open() {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Some(Ok(BlobLockGuard { _file: file })),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(error)) => Some(Err(error)),
        }
    }

    /// Acquires the exclusive lock, which keeps all present blobs.
    pub(super) fn lock_for_backup(&self) -> DatabaseResult<BlobLockGuard> {
        let fault = |reason: String| DatabaseError::Other {
            path: self.file.display().to_string(),
            reason,
        };
        let file = self.open().map_err(|error| fault(error.to_string()))?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(BlobLockGuard { _file: file }),
                Err(TryLockError::WouldBlock) if since.elapsed() < MAX_LOCK_WAIT => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(TryLockError::WouldBlock) => {
                    let reason =
                        "another backup of this data directory is running; wait until it ends";
                    return Err(fault(reason.to_owned()));
                }
                Err(TryLockError::Error(error)) => return Err(fault(error.to_string())),
            }
        }
    }

    fn open(&self) -> Result<File, std::io::Error> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        options.open(&self.file)
    }
}
