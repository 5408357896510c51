//! The data directory: one SQLite database, its schema and migrations, and the lock of the process that
//! serves from it.
//!
//! Invariant: every connection has the same settings (write-ahead log, full synchronisation, foreign
//! keys, a time to wait for others), and the schema is brought up to date before anything else reads
//! it. Knows nothing of what the tables mean.

mod error;
mod timestamp;

pub use error::DatabaseError;
pub use timestamp::Timestamp;
