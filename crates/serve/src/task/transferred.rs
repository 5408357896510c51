//! The outcome of a copy of a server's data.

use super::BlobError;
use crate::database::DatabaseError;

/// What was copied.
#[derive(Debug, Default)]
pub struct Transferred {
    /// Records other than tasks.
    pub records: u64,
    /// Tasks.
    pub tasks: u64,
    /// Objects that were copied now, and their bytes.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Objects that were there already.
    pub present: u64,
    /// Paths of objects that are missing or damaged in the data directory.
    pub missing: Vec<String>,
}

/// Errors of a copy.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The target has records of another origin.
    #[error("{0}: has records of another origin; copy into an empty database")]
    NotEmpty(String),
    /// The databases differ after the copy.
    #[error("{table}: {copied} records were copied of {all}; repeat the command")]
    Incomplete {
        /// The table.
        table: &'static str,
        /// Number of records in the target.
        copied: i64,
        /// Number of records in the source.
        all: i64,
    },
    /// An object cannot be stored.
    #[error("{name}: {error}; repeat the command, which continues")]
    Object {
        /// Its name.
        name: String,
        /// The reason.
        error: BlobError,
    },
}
