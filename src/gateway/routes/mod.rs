//! The routes, one file for each resource.

pub(super) mod configs;
pub(super) mod docs;
pub(super) mod health;
pub(super) mod predict;
pub(super) mod registry;
pub(super) mod services;
pub(super) mod tasks;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, Method, header};
use axum::middleware;
use axum::routing::{MethodRouter, get, post};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::Gateway;
use super::error::Error;
use super::observe::observe;

/// Spellings of one prefix.
const PREFIXES: [&str; 3] = ["/api/mlpgateway", "/api/mlpgate", "/api/mlpcore"];

/// Days a browser may remember what is allowed across origins.
const CORS_MAX_AGE: std::time::Duration = std::time::Duration::from_hours(1);

type Routes = Router<Arc<Gateway>>;

/// All routes.
pub(super) fn router(gateway: Arc<Gateway>) -> Router {
    let mut routes = Routes::new();
    for prefix in PREFIXES {
        routes = routes.nest(prefix, under_prefix());
    }
    let routes = routes
        .route("/p/{account}/{model}", only(post(predict::raw), "POST"))
        .route("/healthz", reading(get(health::live)))
        .route("/readyz", reading(get(health::ready)))
        .route("/metrics", reading(get(health::metrics)))
        .route("/openapi.json", reading(get(docs::document)))
        .route("/docs", reading(get(docs::page)))
        .fallback(async || Error::no_path());
    let cors = cors(&gateway.settings.cors.origins);
    let observed = routes.layer(middleware::from_fn_with_state(
        Arc::clone(&gateway),
        observe,
    ));
    match cors {
        Some(cors) => observed.layer(cors),
        None => observed,
    }
    .with_state(gateway)
}

fn under_prefix() -> Routes {
    let model = "/account/{account}/model/{model}";
    let task = "/account/{account}/async/task";
    let at = |base: &str, rest: &str| format!("{base}{rest}");
    Routes::new()
        .route(
            &at(model, "/async/predict"),
            only(post(tasks::create), "POST"),
        )
        .route(
            &at(model, "/async/predict-with-config"),
            only(post(tasks::create_with_config), "POST"),
        )
        .route(
            &at(model, "/async/predict-with-config-v2"),
            only(post(tasks::create_with_config_v2), "POST"),
        )
        .route(task, reading(get(tasks::list)))
        .route(&at(task, "/{task}"), reading(get(tasks::status)))
        .route(&at(task, "/{task}/response"), reading(get(tasks::result)))
        .route(
            &at(task, "/{task}/cancel"),
            only(post(tasks::cancel), "POST"),
        )
        .route(&at(model, "/predict"), only(post(predict::raw), "POST"))
        .route(
            &at(model, "/predict-with-config"),
            only(post(predict::with_config), "POST"),
        )
        .route(
            &at(model, "/predict-with-config-v2"),
            only(post(predict::with_config_v2), "POST"),
        )
        .route(model, reading(get(services::info)))
        .route("/account/{account}/model", reading(get(services::list)))
        .route(
            &at(model, "/predict-config"),
            only(get(configs::list).post(configs::create), "GET, HEAD, POST"),
        )
        .route(
            &at(model, "/predict-config/{config}"),
            only(
                get(configs::read).delete(configs::delete),
                "GET, HEAD, DELETE",
            ),
        )
        .route("/providers", reading(get(registry::providers)))
        .route(
            "/providers/{provider}/models",
            reading(get(registry::models)),
        )
        .route(
            "/providers/{provider}/models/{model}",
            reading(get(registry::model)),
        )
}

/// A path that is only read.
fn reading(routes: MethodRouter<Arc<Gateway>>) -> MethodRouter<Arc<Gateway>> {
    only(routes, "GET, HEAD")
}

/// A path that says which methods it has, if it is asked with another.
fn only(routes: MethodRouter<Arc<Gateway>>, methods: &'static str) -> MethodRouter<Arc<Gateway>> {
    routes.fallback(async move || Error::no_method(methods))
}

fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        let origins = origins.iter();
        AllowOrigin::list(origins.filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::HeaderName::from_static("mlp-api-key"),
            header::HeaderName::from_static("z-requestid"),
            header::HeaderName::from_static("idempotency-key"),
        ])
        .expose_headers([
            header::RETRY_AFTER,
            header::HeaderName::from_static("z-requestid"),
            header::HeaderName::from_static("x-queue-position"),
        ])
        .max_age(CORS_MAX_AGE);
    Some(layer)
}
