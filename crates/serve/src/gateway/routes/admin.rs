//! Routes of the operators' listener for administration. They need no key.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Serialize;

use super::super::Gateway;
use super::super::error::GatewayError;
use super::path::with_methods;

/// Returns the routes. The OpenAPI document omits them, since clients of services cannot reach
/// them.
pub(super) fn routes() -> Router<Arc<Gateway>> {
    Router::new().route("/reload", with_methods(post(reload), "POST"))
}

/// The result of a reload.
#[derive(Debug, Serialize)]
struct Reloaded {
    /// Names of settings that were changed.
    changed: Vec<String>,
    /// Names of changed settings that need a restart.
    restart: Vec<String>,
}

/// Applies changed settings, keys and certificates.
async fn reload(State(gateway): State<Arc<Gateway>>) -> Result<Json<Reloaded>, GatewayError> {
    let done = tokio::task::block_in_place(|| gateway.reload());
    let changes = done.map_err(|error| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        GatewayError::new(status, "SETTINGS_ARE_WRONG", error)
    })?;
    Ok(Json(Reloaded {
        changed: changes.taken,
        restart: changes.needs_restart,
    }))
}
