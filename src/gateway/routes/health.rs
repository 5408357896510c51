//! Is it alive, is it ready, how is it doing: no key.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::super::Gateway;
use super::super::auth::Viewer;
use super::super::connections::Connected;
use super::super::error::{Error, ErrorBody};
use super::super::present::present;
use super::super::readiness::not_ready;
use super::path::{Routes, only};
use crate::metric::Format;

/// The routes, under no prefix.
pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(only(routes!(live)))
        .routes(only(routes!(ready)))
}

/// The page of metrics, which a listener of its own may have.
pub(super) fn metrics_routes() -> Routes {
    Routes::new().routes(only(routes!(metrics)))
}

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Health {
    /// `ok`.
    status: &'static str,
    /// The release.
    version: &'static str,
    /// Seconds since the start.
    uptime_s: u64,
}

/// What is served.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Readiness {
    /// `ready`.
    status: &'static str,
    /// Services.
    services: usize,
    /// Of these, those that nothing here runs.
    inactive: usize,
    /// Packages that are there but not served; the log says why.
    unserved: usize,
    /// Waiting tasks.
    waiting: u64,
    /// Running tasks.
    running: u64,
}

/// Alive.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "health",
    operation_id = "health",
    responses((status = 200, description = "The server is alive", body = Health)),
)]
async fn live(State(gateway): State<Arc<Gateway>>) -> Json<Health> {
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: gateway.started.elapsed().as_secs(),
    })
}

/// Ready: what is accepted is kept. Otherwise `args.reason` says why not.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "health",
    operation_id = "readiness",
    responses(
        (status = 200, description = "The server takes requests", body = Readiness),
        (status = "5XX", description = "It stops, its disk is full, or its database is damaged or does not answer", body = ErrorBody),
    ),
)]
async fn ready(State(gateway): State<Arc<Gateway>>) -> Result<Json<Readiness>, Error> {
    if !gateway.stopping.is_serving() {
        return Err(not_ready(Error::stopping()));
    }
    let store = &*gateway.store;
    gateway.looked.ready(&gateway.settings, store).await?;
    let load = store.load().await;
    let (waiting, running) = load.map_err(|error| not_ready(error.into()))?;
    let services = gateway.services.all();
    Ok(Json(Readiness {
        status: "ready",
        services: services.len(),
        inactive: services.iter().filter(|it| !it.is_active()).count(),
        unserved: gateway.services.unserved().len(),
        waiting,
        running,
    }))
}

/// Metrics, for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "health",
    operation_id = "metrics",
    responses((status = 200, description = "Metrics: Prometheus' text format 0.0.4, or OpenMetrics 1.0 where `Accept` asks for it", content(
        (String = "text/plain"),
        (String = "application/openmetrics-text"),
    ))),
)]
async fn metrics(
    State(gateway): State<Arc<Gateway>>,
    Extension(connected): Extension<Arc<Connected>>,
    viewer: Viewer,
    headers: HeaderMap,
) -> Response {
    let accept = headers.get_all(header::ACCEPT).into_iter();
    let accept: Vec<&str> = accept.filter_map(|value| value.to_str().ok()).collect();
    let format = Format::accepted(Some(&accept.join(",")));
    let present = present(&gateway, connected.audience, viewer).await;
    let page = gateway.metrics.page(&present, format);
    let about = [
        (header::CONTENT_TYPE, format.media_type()),
        (header::VARY, "accept"),
    ];
    (about, page).into_response()
}
