//! Errors of the stores and their limits, as errors of requests.

use axum::http::StatusCode;

use super::error::GatewayError;
use crate::database::DatabaseError;
use crate::objects::ObjectsError;
use crate::task::{BlobError, EnqueueError, SERVICE_UNAVAILABLE};

impl From<EnqueueError> for GatewayError {
    fn from(error: EnqueueError) -> Self {
        let message = error.to_string();
        let too_many = |code, seconds| {
            let status = StatusCode::TOO_MANY_REQUESTS;
            Self::new(status, code, message.clone()).retry_after(seconds)
        };
        match error {
            EnqueueError::TooManyWaiting { limit } => {
                too_many("TOO_MANY_IDLE_ASYNC_TASKS", 1).with("limit", limit)
            }
            EnqueueError::RateExceeded { limit, retry_after } => too_many(
                "REQUESTS_PER_SECOND_LIMIT_EXCEEDED",
                retry_after.div_ceil(1000).max(1),
            )
            .with("limit", limit)
            .with("retryAfterMs", retry_after),
            // This limit is not freed over time, so an early retry would fail again.
            EnqueueError::TooManyStored { limit } => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                Self::new(status, "TOO_MANY_STORED_TASKS", message).with("limit", limit)
            }
            EnqueueError::TooManyBytes { held, limit, .. } => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                Self::new(status, "STORED_BYTES_LIMIT_EXCEEDED", message)
                    .with("limit", limit)
                    .with("held", held)
            }
            EnqueueError::CpuUsed { limit, retry_after } => {
                too_many("CPU_SECONDS_LIMIT_EXCEEDED", retry_after).with("limit", limit)
            }
            EnqueueError::Blocked => Self::blocked(),
            EnqueueError::Conflict => Self::conflict("IDEMPOTENCY_KEY_WAS_USED", message),
            EnqueueError::Database(error) => error.into(),
        }
    }
}

/// Converts an error of the blob store.
impl From<BlobError> for GatewayError {
    fn from(error: BlobError) -> Self {
        let failed = if error.to_string().contains("No space left") {
            Self::disk_is_full()
        } else {
            Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                SERVICE_UNAVAILABLE,
                "the server's storage failed; its log has the details",
            )
        };
        failed.because(&error)
    }
}

/// Converts an error of the whole object storage.
impl From<ObjectsError> for GatewayError {
    fn from(error: ObjectsError) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let message = "the object storage failed; the server's log has the details";
        Self::new(status, "OBJECT_STORAGE_FAILED", message).because(&error)
    }
}

impl From<DatabaseError> for GatewayError {
    fn from(error: DatabaseError) -> Self {
        let (status, code, message) = match error {
            DatabaseError::Full { .. } => return Self::disk_is_full().because(&error),
            DatabaseError::ReadOnly { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "STORAGE_IS_READ_ONLY",
                "the server cannot write to its data directory or database; nothing was stored",
            ),
            DatabaseError::TooNew { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "STORAGE_IS_TOO_NEW",
                "the server's database needs a later release of pkgtool",
            ),
            DatabaseError::Corrupt { .. } => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "STORAGE_IS_DAMAGED",
                "a part of the server's database is damaged",
            ),
            DatabaseError::Busy { .. } => {
                let message =
                    "another process keeps the server's database locked; nothing was stored";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let busy = Self::new(status, "STORAGE_IS_BUSY", message).retry_after(1);
                return busy.because(&error);
            }
            _ => (
                StatusCode::SERVICE_UNAVAILABLE,
                SERVICE_UNAVAILABLE,
                "the server's database failed; its log has the details",
            ),
        };
        Self::new(status, code, message).because(&error)
    }
}
