//! Databases and the data directory: connections, errors, times, retention, and the server's lock.
//!
//! The module knows nothing of the stored data.

mod blocking;
mod calendar;
mod directory;
mod error;
mod lock;
pub(crate) mod postgres;
mod retention;
mod space;
pub(crate) mod sql;
pub(crate) mod sqlite;
pub(crate) mod tables;
mod timestamp;
mod url;

pub use calendar::Day;
pub use directory::{free_bytes, server_name};
pub(crate) use directory::{make_directory, sync_path, sync_tree};
pub use error::{DatabaseError, DatabaseResult};
pub use lock::DataLock;
pub use postgres::NodeOptions;
pub use retention::RetentionClock;
pub use space::{DatabaseSize, FileStats, disk_free};
pub use timestamp::Timestamp;
pub use url::{DatabaseUrl, DatabaseUrlError};
