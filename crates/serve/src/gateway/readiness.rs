//! The readiness check: tests whether the server can store what it accepts.
//!
//! It checks the free disk space, the health of the task store, and the object storage.
//!
//! Invariant: a result is cached for half a second, so frequent checks cost no more than rare ones.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::json;
use tokio::sync::Mutex;

use super::error::GatewayError;
use super::settings::GatewaySettings;
use crate::database::{self, DatabaseError};
use crate::task::{Blobs, TaskStore};

/// How long a result is cached.
const CACHE_TIME: Duration = Duration::from_millis(500);

/// The last result and its time.
#[derive(Debug, Default)]
pub(super) struct ReadinessCache(Mutex<Option<(Instant, Result<(), GatewayError>)>>);

impl ReadinessCache {
    /// Returns an error if the server cannot store new work.
    pub(super) async fn ready(
        &self,
        settings: &GatewaySettings,
        (store, blobs): (&dyn TaskStore, &Blobs),
    ) -> Result<(), GatewayError> {
        let mut last = self.0.lock().await;
        if let Some((_, found)) = last.as_ref().filter(|(at, _)| at.elapsed() < CACHE_TIME) {
            return found.clone();
        }
        let found = look(settings, (store, blobs)).await;
        *last = Some((Instant::now(), found.clone()));
        found
    }
}

async fn look(
    settings: &GatewaySettings,
    (store, blobs): (&dyn TaskStore, &Blobs),
) -> Result<(), GatewayError> {
    let least = settings.limits.disk_free_bytes;
    let directory = &settings.data_dir;
    if let Some(free) = database::free_bytes(directory)
        && free < least
    {
        let path = directory.display().to_string();
        let full = GatewayError::from(DatabaseError::Full { path });
        let error = not_ready(full).with("freeBytes", free);
        return Err(error.with("leastFreeBytes", least));
    }
    let health = store.health().await;
    health.map_err(|error| not_ready(error.into()))?;
    let Some(bucket) = blobs.bucket() else {
        return Ok(());
    };
    let health = bucket.health().await;
    health.map_err(|error| not_ready(error.into()))
}

/// Wraps the reason into the error of a server that is not ready.
pub(super) fn not_ready(mut reason: GatewayError) -> GatewayError {
    let message = format!("the server is not ready: {}", reason.message);
    let detail = reason.take_detail();
    let error = GatewayError::new(StatusCode::SERVICE_UNAVAILABLE, "NOT_READY", message);
    let error = error.with("reason", json!(reason.code)).retry_after(1);
    match detail {
        Some(detail) => error.because(&detail),
        None => error,
    }
}
