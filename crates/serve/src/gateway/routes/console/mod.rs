//! Routes of the console: its page, and what only the page asks for. They may change with every
//! release, so the OpenAPI document omits them.

mod access;
mod accounts;
mod events;
mod machine;
mod packages;
mod page;
mod services;
mod tasks;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use serde::de::DeserializeOwned;

use super::super::Gateway;
use super::super::error::GatewayError;
use super::configs::invalid_body;
use super::path::{read_only, with_methods};

/// Maximum size of a body that the page sends here, in bytes.
const MAX_BODY_BYTES: usize = 64 << 10;

pub(super) use page::reference;

/// Returns the routes of the console.
pub(super) fn routes() -> Router<Arc<Gateway>> {
    let changes = |handlers| with_methods(handlers, "POST");
    let reads_and_changes = |handlers| with_methods(handlers, "GET, HEAD, POST");
    Router::new()
        .route("/", read_only(get(page::index)))
        .route("/login", changes(post(access::log_in)))
        .route("/logout", changes(post(access::log_out)))
        .route("/account", changes(post(access::choose)))
        .route("/console/session", read_only(get(access::session)))
        .route("/console/events", read_only(get(events::events)))
        .route("/console/services", read_only(get(services::list)))
        .route(
            "/console/services/{account}/{model}",
            read_only(get(services::one)),
        )
        .route("/console/tasks", read_only(get(tasks::list)))
        .route("/console/packages", read_only(get(packages::list)))
        .route("/console/findings", read_only(get(packages::findings)))
        .route("/console/machine", read_only(get(machine::machine)))
        .route(
            "/console/accounts",
            reads_and_changes(get(accounts::list).post(accounts::change)),
        )
        .route(
            "/console/keys",
            reads_and_changes(get(accounts::keys).post(accounts::create_key)),
        )
        .route("/console/keys/revoke", changes(post(accounts::revoke_key)))
}

/// Returns the routes of the pages' files. The page of the API reference needs them, too.
pub(super) fn files() -> Router<Arc<Gateway>> {
    Router::new().route("/console/files/{*name}", read_only(get(page::file)))
}

/// Reads a short JSON body.
async fn read_json<T: DeserializeOwned>(gateway: &Gateway, body: Body) -> Result<T, GatewayError> {
    let body = axum::body::to_bytes(body, MAX_BODY_BYTES);
    let body = tokio::time::timeout(gateway.settings.timeouts.body(), body).await;
    let invalid = |reason: &str| {
        let message =
            format!("invalid body: {reason}; expected JSON of at most {MAX_BODY_BYTES} bytes");
        GatewayError::bad_request(message).with("place", "$")
    };
    let body = body.map_err(|_| invalid("it did not arrive in time"))?;
    let body = body.map_err(|error| invalid(&error.to_string()))?;
    serde_json::from_slice(&body).map_err(|error| invalid_body(&error))
}
