//! The system's cache of files.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Asks the system to drop a file from its cache. Returns the size of the file in bytes.
///
/// The system keeps pages that a process has mapped. `ProcessFacts::storage_read_bytes` shows whether the file was
/// really read again.
pub(in crate::runtime) fn drop_file(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    // Pages that are not on the disk yet stay in the cache. Some file systems have nothing to write.
    let _ = file.sync_data();
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(file.metadata()?.len())
}
