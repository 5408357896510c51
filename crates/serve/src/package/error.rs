//! Errors of publishing packages.

use std::path::PathBuf;

use super::cache::CacheError;
use crate::database::DatabaseError;

/// A package could not be published or copied.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A copy cannot be made.
    #[error(transparent)]
    Copy(#[from] CacheError),
    /// A file or directory cannot be used.
    #[error("{}: {reason}", path.display())]
    Local {
        /// The path.
        path: PathBuf,
        /// The reason, and what to do.
        reason: String,
    },
    /// A file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// An object cannot be used.
    #[error("the object {name}: {reason}")]
    Object {
        /// The name of the object.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Another process publishes.
    #[error("another command is publishing or removing packages; try again when it is done")]
    Busy,
    /// The name of the package is not one.
    #[error(
        "`{0}` cannot be the name of a package: expected up to 100 letters, digits, `.`, `-` and `_`, and no `.` first; give one by --name"
    )]
    Name(String),
}
