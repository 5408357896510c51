//! The lock of a data directory: only one server uses it at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use super::directory::own_directory;
use super::{DatabaseError, DatabaseResult};

/// Name of the lock file.
const LOCK_FILE: &str = "lock";

/// A held lock, until it is dropped or the process ends.
#[derive(Debug)]
pub struct DataLock {
    _file: File,
}

impl DataLock {
    /// Locks a directory, and creates it if necessary.
    pub fn take(directory: &Path) -> DatabaseResult<Self> {
        own_directory(directory)?;
        let path = directory.join(LOCK_FILE);
        let read_only = |error: std::io::Error| DatabaseError::ReadOnly {
            path: path.display().to_string(),
            reason: error.to_string(),
        };
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let file = options.open(&path).map_err(read_only)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(DatabaseError::InUse {
                path: directory.display().to_string(),
            }),
            Err(TryLockError::Error(error)) => Err(read_only(error)),
        }
    }
}
