//! Routes for liveness, readiness and metrics. They need no key.

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

/// Returns the routes for liveness and readiness.
pub(super) fn routes() -> Routes {
    Routes::new()
        .routes(only(routes!(live)))
        .routes(only(routes!(ready)))
}

/// Returns the route of the metrics page, which may be on the operators' listener.
pub(super) fn metrics_routes() -> Routes {
    Routes::new().routes(only(routes!(metrics)))
}

/// The state of the server.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Health {
    /// `ok`.
    status: &'static str,
    /// Version of pkgtool.
    version: &'static str,
    /// Seconds since the start.
    uptime_s: u64,
}

/// The workload of a server that is ready.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Readiness {
    /// `ready`.
    status: &'static str,
    /// Number of services.
    services: usize,
    /// Number of services without an engine that can run them.
    inactive: usize,
    /// Number of packages that are not served; the log says why.
    unserved: usize,
    /// Number of waiting tasks.
    waiting: u64,
    /// Number of running tasks.
    running: u64,
}

/// Check that the server is alive.
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

/// Check that the server can store requests. Otherwise `args.reason` says why not.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "health",
    operation_id = "readiness",
    responses(
        (status = 200, description = "The server accepts requests", body = Readiness),
        (status = "5XX", description = "The server is shutting down, its disk is full, or its database is damaged or does not answer", body = ErrorBody),
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

/// Read metrics, for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "health",
    operation_id = "metrics",
    responses((status = 200, description = "Metrics: Prometheus' text format 0.0.4, or OpenMetrics 1.0 if `Accept` asks for it", content(
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
