//! A mended text in place of the one that was read.
//!
//! Invariant: what another program wrote meanwhile is not lost.

use std::fs;
use std::io;
use std::path::Path;

use crate::source::{bounds, replace};

/// Why a file was not replaced.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// Its owner does not want it to be changed.
    #[error("the file is read-only: nothing was written; allow writing to it, then run again")]
    ReadOnly,
    /// It is not what was read.
    #[error("the file was changed by someone else meanwhile: nothing was written; run again")]
    Changed,
    /// The system refused.
    #[error("nothing was written: {0}")]
    Io(#[from] io::Error),
}

/// Removes what an interrupted run left beside the file at `path`.
pub(super) fn tidy(path: &Path) {
    if let Ok(target) = bounds::real(path) {
        replace::remove_abandoned(&target);
    }
}

/// Writes `after` into the file at `path` if it holds `before`. A link stays one: the file it leads to is
/// replaced, if it is one of the package. Permissions are kept.
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
