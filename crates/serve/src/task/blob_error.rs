//! Errors of stored content.

use crate::objects::{is_missing, storage_reason};

/// Errors of stored content.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BlobError {
    /// It is missing.
    #[error("the stored content is missing")]
    Lost,
    /// Its size or checksum differs.
    #[error("the stored content is corrupt")]
    Corrupt,
    /// The storage failed.
    #[error("storage failed: {0}")]
    Storage(String),
}

/// Returns the error of a failed read.
pub(super) fn blob_error(error: &object_store::Error) -> BlobError {
    if is_missing(error) {
        return BlobError::Lost;
    }
    storage_failed(error)
}

/// Returns the error of a failed write.
pub(super) fn storage_failed(error: &object_store::Error) -> BlobError {
    BlobError::Storage(storage_reason(error))
}
