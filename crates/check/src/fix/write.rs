//! Writes a fixed text in place of the one that was read.
//!
//! Invariant: changes that another program made meanwhile are never lost.

use std::fs;
use std::io;
use std::path::Path;

use pkgtool_base::source::{bounds, replace};

/// The reason why a file was not replaced.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The file is read-only.
    #[error("the file is read-only: nothing was written; allow writing to it, then run again")]
    ReadOnly,
    /// The file has changed since it was read.
    #[error("the file was changed meanwhile: nothing was written; run again")]
    Changed,
    /// An I/O error.
    #[error("nothing was written: {0}")]
    Io(#[from] io::Error),
}

/// Removes temporary files that an interrupted run left beside the file at `path`.
pub(super) fn remove_leftovers(path: &Path) {
    if let Ok(target) = bounds::real(path) {
        replace::remove_abandoned(&target);
    }
}

/// Writes `after` to the file at `path` if it still contains `before`. A link stays a link: the
/// file it leads to is replaced if it belongs to the package. Permissions are kept.
pub(super) fn replace(path: &Path, before: &str, after: &str) -> Result<(), WriteError> {
    let target = bounds::real(path)?;
    if fs::metadata(&target)?.permissions().readonly() {
        return Err(WriteError::ReadOnly);
    }
    replace::replace(&target, after.as_bytes(), || {
        if fs::read(&target)? == before.as_bytes() {
            Ok(())
        } else {
            Err(WriteError::Changed)
        }
    })
}
