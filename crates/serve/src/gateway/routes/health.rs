//! Routes for liveness, readiness and metrics. They need no key.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::Gateway;
use super::super::auth::Viewer;
use super::super::connections::Connected;
use super::super::error::GatewayError;
use super::super::present::present;
use super::super::readiness::not_ready;
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use crate::metric::PageFormat;
use crate::service::Service;

/// Returns the routes for liveness and readiness.
pub(super) fn routes() -> Routes {
    let operations = [
        RouteOperation::get("/healthz", "health", live)
            .about("Check that the server is alive.")
            .answers("The server is alive", BodySchema::of::<Health>()),
        RouteOperation::get("/readyz", "readiness", ready)
            .about(
                "Check that the server can store requests. Otherwise `args.reason` says why not.",
            )
            .answers("The server accepts requests", BodySchema::of::<Readiness>())
            .breaks(
                "The server is shutting down, its disk is full, its database is damaged or does \
                 not answer, a required service is inactive, or models are loaded at the start",
            ),
    ];
    Routes::new("health", &[]).add_all(operations)
}

/// Returns the route of the metrics page, which may be on the operators' listener.
pub(super) fn metrics_routes() -> Routes {
    let text = BodySchema::plain::<String>;
    let operation = RouteOperation::get("/metrics", "metrics", metrics)
        .about("Read metrics, for Prometheus.")
        .responds(
            "200",
            "Metrics: Prometheus' text format 0.0.4, or OpenMetrics 1.0 if `Accept` asks for it",
            [
                ("text/plain", text()),
                ("application/openmetrics-text", text()),
            ],
        );
    Routes::new("health", &[]).add(operation)
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

async fn live(State(gateway): State<Arc<Gateway>>) -> Json<Health> {
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: gateway.started.elapsed().as_secs(),
    })
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Result<Json<Readiness>, GatewayError> {
    if !gateway.stopping.is_serving() {
        return Err(not_ready(GatewayError::stopping()));
    }
    let store = &*gateway.store;
    gateway
        .looked
        .ready(&gateway.settings, (store, &gateway.blobs))
        .await?;
    let load = store.load().await;
    let (waiting, running) = load.map_err(|error| not_ready(error.into()))?;
    let services = gateway.services.all();
    let missing = |service: &&Arc<Service>| service.settings.required && !service.is_active();
    if let Some(service) = services.iter().find(missing) {
        return Err(not_ready(GatewayError::required_service(service)));
    }
    let warming = gateway.services.warming();
    if !warming.is_empty() {
        return Err(not_ready(GatewayError::models_are_loading(&warming)));
    }
    Ok(Json(Readiness {
        status: "ready",
        services: services.len(),
        inactive: services.iter().filter(|it| !it.is_active()).count(),
        unserved: gateway.services.unserved().len(),
        waiting,
        running,
    }))
}

async fn metrics(
    State(gateway): State<Arc<Gateway>>,
    Extension(connected): Extension<Arc<Connected>>,
    viewer: Viewer,
    headers: HeaderMap,
) -> Response {
    let accept = headers.get_all(header::ACCEPT).into_iter();
    let accept: Vec<&str> = accept.filter_map(|value| value.to_str().ok()).collect();
    let format = PageFormat::accepted(Some(&accept.join(",")));
    let present = present(&gateway, connected.audience, viewer).await;
    let page = gateway.metrics.page(&present, format);
    let about = [
        (header::CONTENT_TYPE, format.media_type()),
        (header::VARY, "accept"),
    ];
    (about, page).into_response()
}
