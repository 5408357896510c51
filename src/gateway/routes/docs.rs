//! The API's description, and a page that shows it.

use axum::Json;
use axum::response::Html;
use utoipa::openapi::OpenApi;

use super::super::openapi;

/// The OpenAPI document.
pub(in super::super) async fn document() -> Json<OpenApi> {
    Json(openapi::document())
}

/// The document, for people.
pub(in super::super) async fn page() -> Html<&'static str> {
    Html(include_str!("docs.html"))
}
