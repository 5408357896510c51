//! The routes of the gateway, one file per group. A handler and its path are declared once, in the
//! group's file. The router and the OpenAPI document are built from these declarations.

mod adapters;
mod admin;
mod configs;
mod console;
mod datasets;
mod docs;
mod fit_configs;
mod health;
mod jobs;
mod operation;
mod path;
mod predict;
mod registry;
mod services;
mod tasks;
mod training;
mod usage;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, Method, header};
use axum::routing::{get, post};
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::compression::{CompressionLayer, CompressionLevel};
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa::openapi::OpenApi;

use super::auth::Viewer;
use super::error::GatewayError;
use super::extract::InQuery;
use super::form::RawForm;
use super::observe::{ObserveLayer, WORKER};
use super::request_id::X_REQUEST_ID;
use super::{Gateway, openapi};
pub(super) use adapters::{AdmittedRequest, answer_batch_request};
use path::{Api, Routes, read_only, with_methods};

/// Equivalent spellings of one prefix.
const PREFIXES: [&str; 3] = ["/api/mlpgateway", "/api/mlpgate", "/api/mlpcore"];

/// A group's routes, the spellings of its prefix, and the spelling in the OpenAPI document.
type RouteGroup = (fn() -> Routes, &'static [&'static str], &'static str);

/// The groups with a prefix.
const GROUPS: [RouteGroup; 13] = [
    (tasks::routes, &PREFIXES, "/api/mlpgateway"),
    (predict::routes, &PREFIXES, "/api/mlpgateway"),
    (services::routes, &PREFIXES, "/api/mlpgateway"),
    (configs::routes, &PREFIXES, "/api/mlpgateway"),
    (usage::routes, &PREFIXES, "/api/mlpgateway"),
    (workers::routes, &PREFIXES, "/api/mlpgateway"),
    (datasets::routes, &PREFIXES, "/api/mlpgate"),
    (training::routes, &PREFIXES, "/api/mlpgate"),
    (fit_configs::routes, &PREFIXES, "/api/mlpgate"),
    (jobs::routes, &PREFIXES, "/api/mlpgate"),
    (registry::routes, &PREFIXES, "/api/mlpcore"),
    (
        adapters::standard,
        &adapters::STANDARD,
        adapters::STANDARD[0],
    ),
    (adapters::direct, &adapters::DIRECT, adapters::DIRECT[0]),
];

/// Minimum size of a compressed answer, in bytes.
const MIN_COMPRESSED_BYTES: u64 = 1024;

/// The word in `cors.origins` for the pages of this machine.
const LOCALHOST: &str = "localhost";

/// How long a browser may cache the permissions of cross-origin requests.
const CORS_MAX_AGE: std::time::Duration = std::time::Duration::from_hours(1);

/// Returns `true` for the paths of health checks. Extra connections are reserved for them.
pub(super) fn is_health_path(path: &str) -> bool {
    ["/healthz", "/readyz", "/metrics"].contains(&path)
}

/// Returns all routes.
pub(super) fn router(gateway: Arc<Gateway>) -> Router {
    let has_metrics = gateway.settings.admin.listen.0.is_none();
    let Api { router, document } = described(has_metrics);
    let document = Arc::new(document);
    let routes = router
        .route(
            "/p/{account}/{model}",
            with_methods(post(predict::predict::<RawForm>), "POST"),
        )
        .route(
            "/openapi.json",
            read_only(get(
                async move |State(gateway): State<Arc<Gateway>>,
                            viewer: Viewer,
                            InQuery(parameters): InQuery<docs::DocsParameters>| {
                    docs::document(&document, &gateway, viewer, parameters).await
                },
            )),
        )
        .route("/docs", read_only(get(console::reference)))
        .merge(console::files());
    let routes = if gateway.settings.console.enabled {
        routes.merge(console::routes())
    } else {
        routes
    };
    let routes = routes.fallback(async || GatewayError::no_path());
    let cors = cors(&gateway.settings.cors.origins);
    let observed = observed(routes, &gateway);
    match cors {
        Some(cors) => observed.layer(cors),
        None => observed,
    }
    .with_state(gateway)
}

/// Returns the same routes with compression of large answers.
pub(super) fn compressing(router: Router) -> Router {
    router.layer(compression())
}

/// Returns the routes of the operators' listener.
pub(super) fn for_operators(gateway: Arc<Gateway>) -> Router {
    probes_and(admin::routes(), gateway)
}

/// Returns the routes of a server that answers no clients: health and metrics.
pub(super) fn for_probes(gateway: Arc<Gateway>) -> Router {
    probes_and(Router::new(), gateway)
}

fn probes_and(others: Router<Arc<Gateway>>, gateway: Arc<Gateway>) -> Router {
    let routes = health::routes().merge(health::metrics_routes());
    let routes = routes.under("", Api::new(OpenApi::default())).router;
    let routes = routes.merge(others);
    let routes = routes.fallback(async || GatewayError::no_path());
    observed(routes, &gateway).with_state(gateway)
}

fn observed(routes: Router<Arc<Gateway>>, gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    routes.layer(ObserveLayer(Arc::clone(gateway)))
}

/// Compresses large answers for clients that accept it. Events are never compressed.
fn compression() -> CompressionLayer<impl Predicate> {
    let worth = SizeAbove::new(MIN_COMPRESSED_BYTES)
        .and(NotForContentType::SSE)
        .and(NotForContentType::IMAGES);
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(worth)
}

/// Returns all documented routes, under every spelling of their prefix.
fn described(has_metrics: bool) -> Api {
    let mut all = health::routes().under("", Api::new(openapi::frame()));
    if has_metrics {
        all = health::metrics_routes().under("", all);
    }
    for (routes, prefixes, shown) in GROUPS {
        for prefix in prefixes {
            let group = routes();
            let group = if *prefix == shown {
                group
            } else {
                group.undescribed()
            };
            all = group.under(prefix, all);
        }
    }
    all
}

/// Returns whether a page came from this machine, of any port.
fn is_local(origin: &HeaderValue) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    host.is_some_and(|host| {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port),
            _ => (host, ""),
        };
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
        is_port && ["localhost", "127.0.0.1", "[::1]"].contains(&name)
    })
}

fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        let origins = origins.to_vec();
        AllowOrigin::predicate(move |asked, _| {
            let mut origins = origins.iter();
            origins.any(|origin| match &**origin {
                LOCALHOST => is_local(asked),
                origin => asked == origin,
            })
        })
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_ENCODING,
            header::CONTENT_TYPE,
            header::HeaderName::from_static("mlp-api-key"),
            header::HeaderName::from_static("z-requestid"),
            header::HeaderName::from_static("idempotency-key"),
            // The npm client of OpenAI sends these with every request.
            header::HeaderName::from_static("x-stainless-arch"),
            header::HeaderName::from_static("x-stainless-helper-method"),
            header::HeaderName::from_static("x-stainless-lang"),
            header::HeaderName::from_static("x-stainless-os"),
            header::HeaderName::from_static("x-stainless-package-version"),
            header::HeaderName::from_static("x-stainless-retry-count"),
            header::HeaderName::from_static("x-stainless-runtime"),
            header::HeaderName::from_static("x-stainless-runtime-version"),
            header::HeaderName::from_static("x-stainless-timeout"),
        ])
        .expose_headers([
            header::RETRY_AFTER,
            header::HeaderName::from_static("z-requestid"),
            header::HeaderName::from_static("x-queue-position"),
            WORKER,
            X_REQUEST_ID,
        ])
        .max_age(CORS_MAX_AGE);
    Some(layer)
}
