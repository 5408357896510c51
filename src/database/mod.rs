//! Databases: what there is of them, how they fail, moments; the data directory and the lock of the process
//! that serves from it.
//!
//! Invariant: knows nothing of what is kept.

mod calendar;
mod directory;
mod error;
mod lock;
mod retention;
mod space;
pub(crate) mod sqlite;
mod timestamp;
mod url;

pub use calendar::Day;
pub use directory::free_bytes;
pub(crate) use directory::{make_directory, sync_path, sync_tree};
pub use error::DatabaseError;
pub use lock::DataLock;
pub use retention::RetentionClock;
pub use space::{Files, Space, disk_free};
pub use timestamp::Timestamp;
pub use url::{DatabaseUrl, DatabaseUrlError};
