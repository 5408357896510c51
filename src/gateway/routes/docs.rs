//! The API's description, and a page that shows it.

use axum::Json;
use axum::response::{Html, IntoResponse as _, Response};
use utoipa::openapi::OpenApi;

/// The OpenAPI document.
pub(super) fn document(document: &OpenApi) -> Response {
    Json(document).into_response()
}

/// The document, for people.
pub(super) async fn page() -> Html<&'static str> {
    Html(include_str!("docs.html"))
}
