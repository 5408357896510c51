//! What operators ask for on their own listener: no key.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Serialize;

use super::super::Gateway;
use super::super::error::Error;
use super::path::taking;

/// The routes, which are not in the document: who calls services cannot reach them.
pub(super) fn routes() -> Router<Arc<Gateway>> {
    Router::new().route("/reload", taking(post(reload), "POST"))
}

/// What was taken over.
#[derive(Debug, Serialize)]
struct Reloaded {
    /// Settings that were changed.
    changed: Vec<String>,
    /// Changed settings that take a restart.
    restart: Vec<String>,
}

/// Takes over what changed: settings, keys, the certificate.
async fn reload(State(gateway): State<Arc<Gateway>>) -> Result<Json<Reloaded>, Error> {
    let done = tokio::task::block_in_place(|| gateway.reload());
    let changes = done.map_err(|error| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Error::new(status, "SETTINGS_ARE_WRONG", error)
    })?;
    Ok(Json(Reloaded {
        changed: changes.taken,
        restart: changes.left,
    }))
}
