//! Errors of the database.

/// The result of an operation on the database.
pub type DatabaseResult<T> = Result<T, DatabaseError>;

/// A failure of the database or of the disk below it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatabaseError {
    /// The disk is full.
    #[error("{path}: the disk is full; free some space; accepted data is not lost")]
    Full {
        /// The database's file.
        path: String,
    },
    /// The file or its directory cannot be written.
    #[error("{path}: cannot be written ({reason})")]
    ReadOnly {
        /// The database's file.
        path: String,
        /// The system's error.
        reason: String,
    },
    /// The database is damaged.
    #[error("{path}: the database is damaged ({reason}); intact data stays readable")]
    Corrupt {
        /// The database's file.
        path: String,
        /// The database's error.
        reason: String,
    },
    /// Another server uses this directory.
    #[error(
        "{path}: another pkgtool serves from this data directory; stop it or choose another directory with --data-dir"
    )]
    InUse {
        /// The directory.
        path: String,
    },
    /// A later release created the database.
    #[error(
        "{path}: created by a later release of pkgtool (schema {found}, this release supports up to {known}); use that release"
    )]
    TooNew {
        /// The database's file.
        path: String,
        /// Version of its schema.
        found: i64,
        /// Latest version that this release supports.
        known: i64,
    },
    /// Another process holds the lock.
    #[error("{path}: another process keeps the database locked; nothing was stored; try again")]
    Busy {
        /// The database's file.
        path: String,
    },
    /// The database cannot be reached, or the connection was cut.
    #[error("{path}: the database does not answer ({reason}); try again")]
    Away {
        /// The database.
        path: String,
        /// The reason.
        reason: String,
    },
    /// Any other error.
    #[error("{path}: {reason}")]
    Other {
        /// The database's file.
        path: String,
        /// The reason.
        reason: String,
    },
}
