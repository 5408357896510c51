//! The data directory.

use std::fs;
use std::path::Path;

use super::DatabaseError;

/// Makes a directory that only its owner may read.
pub(crate) fn make_directory(directory: &Path) -> Result<(), DatabaseError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(directory)
        .map_err(|error| DatabaseError::ReadOnly {
            path: directory.display().to_string(),
            reason: error.to_string(),
        })
}
