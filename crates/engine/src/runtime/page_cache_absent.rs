//! The system's cache of files, on a system that drops none on request.

use std::io;
use std::path::Path;

/// Fails: the system drops no file from its cache.
pub(in crate::runtime) fn drop_file(_: &Path) -> io::Result<u64> {
    let reason = "this system drops no files from its cache on request";
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}
