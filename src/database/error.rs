//! Why the database did not do what it was asked.

/// A failure of the database or of the disk below it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatabaseError {
    /// No room on the disk.
    #[error("{path}: the disk is full; make room, nothing that was accepted is lost")]
    Full {
        /// The database's file.
        path: String,
    },
    /// The file or its directory can't be written.
    #[error("{path}: cannot be written ({reason})")]
    ReadOnly {
        /// The database's file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// A page does not hold what it should.
    #[error("{path}: the database is damaged ({reason}); what is intact stays readable")]
    Corrupt {
        /// The database's file.
        path: String,
        /// What the database said.
        reason: String,
    },
    /// Another server serves from this directory.
    #[error(
        "{path}: another pkgtool serves from this data directory; stop it or name another with --data-dir"
    )]
    InUse {
        /// The directory.
        path: String,
    },
    /// Made by a later release.
    #[error("{path}: made by a later release of pkgtool (schema {found}, this one knows {known})")]
    TooNew {
        /// The database's file.
        path: String,
        /// Its schema's version.
        found: i64,
        /// The latest known here.
        known: i64,
    },
    /// Another process has the lock.
    #[error("{path}: another process keeps the database locked; nothing was stored, try again")]
    Busy {
        /// The database's file.
        path: String,
    },
    /// Anything else.
    #[error("{path}: {reason}")]
    Other {
        /// The database's file.
        path: String,
        /// What happened.
        reason: String,
    },
}
