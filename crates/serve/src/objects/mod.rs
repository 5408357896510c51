//! Object storage: a bucket, or a folder that several servers mount.
//!
//! The module knows nothing of what is stored.

mod error;
mod owner;
mod parts;
mod storage;
mod url;

pub use error::ObjectsError;
pub(crate) use error::{is_missing, storage_reason};
pub(crate) use parts::{OBJECT_PART_BYTES, ObjectParts, is_single_put};
pub use storage::ObjectStorage;
pub use url::{InvalidObjectsUrl, ObjectsUrl};
