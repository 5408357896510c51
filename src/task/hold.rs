//! The hold on blobs: while a backup copies them, none is removed.
//!
//! Invariant: who removes blobs has the lock of the hold's file shared, who copies them has it alone. The
//! system gives it back when a process ends, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::database::DatabaseError;

/// How long a backup waits for removals that go on.
const PATIENCE: Duration = Duration::from_secs(10);

/// The file whose lock it is, beside the directory of the blobs.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    file: PathBuf,
}

/// The lock, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
}

impl Hold {
    /// The hold on a directory of blobs.
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            file: directory.with_extension("lock"),
        }
    }

    /// The right to remove blobs; `None` while a backup goes on.
    pub(super) fn to_remove(&self) -> Option<Result<Held, std::io::Error>> {
        let file = match self.open() {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Some(Ok(Held { _file: file })),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(error)) => Some(Err(error)),
        }
    }

    /// Has every blob stay that is there.
    pub(super) fn to_copy(&self) -> Result<Held, DatabaseError> {
        let fault = |reason: String| DatabaseError::Other {
            path: self.file.display().to_string(),
            reason,
        };
        let file = self.open().map_err(|error| fault(error.to_string()))?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Held { _file: file }),
                Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(TryLockError::WouldBlock) => {
                    let reason = "another backup of this data directory goes on; wait for its end";
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
