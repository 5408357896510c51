//! Packages in a build without engines: `inspect` shows model files only.

use std::path::Path;

use super::super::exit::{Exit, Failure};

/// Shows the package that a path stands for. Returns `None`.
pub(super) fn shown(_: &Path, _: bool) -> Option<Result<Exit, Failure>> {
    None
}
