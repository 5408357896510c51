//! Chat adapters: serve services through the common chat-completion interface.
//!
//! In standard mode a body is split into data and config; in direct mode it is passed on in the
//! service's own format.
//!
//! Invariant: an adapter knows nothing of models. It turns a body into a predict request and
//! returns the service's answer. The key and its rate are checked before the body is read.

mod call;
mod events;
mod failed;
mod models;
mod relay;
mod reported;
mod split;
mod tally;
mod unstreamed;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::super::Gateway;
use super::super::error::{Error, ErrorBody};
use super::path::{Routes, only, with_methods};
use crate::service::{AdapterCall, AdapterMethod, AdapterMode};

/// Spellings of the prefix in standard mode; the first is in the OpenAPI document.
pub(super) const STANDARD: [&str; 4] = [
    "/api/adapters/compat",
    "/api/adapters/compat/v1",
    "/api/adapters/openai",
    "/api/adapters/openai/v1",
];

/// Spellings of the prefix in direct mode; the first is in the OpenAPI document.
pub(super) const DIRECT: [&str; 4] = [
    "/api/adapters/compat-direct",
    "/api/adapters/compat-direct/v1",
    "/api/adapters/openai-direct",
    "/api/adapters/openai-direct/v1",
];

/// Returns the routes of standard mode.
pub(super) fn standard() -> Routes {
    Routes::new()
        .routes(only(routes!(chat)))
        .routes(only(routes!(completion)))
        .routes(only(routes!(embeddings)))
        .route("/completion", with_methods(post(completion), "POST"))
        .route("/embedding", with_methods(post(embeddings), "POST"))
        .merge(models::routes())
}

/// Returns the routes of direct mode.
pub(super) fn direct() -> Routes {
    Routes::new()
        .routes(only(routes!(direct_chat)))
        .routes(only(routes!(direct_completion)))
        .routes(only(routes!(direct_embeddings)))
        .route("/completion", with_methods(post(direct_completion), "POST"))
        .route("/embedding", with_methods(post(direct_embeddings), "POST"))
        .merge(models::routes().undescribed())
}

/// A chat request. All other fields are the service's config.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(
    dead_code,
    reason = "it only describes the document: bodies are not parsed into a tree"
)]
struct ChatRequest {
    /// `author/service`, or `author/service/model`.
    model: String,
    /// The conversation so far.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Map<String, Value>>,
    /// Stream the answer as events.
    stream: Option<bool>,
}

/// A request to complete a text. All other fields are the service's config.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(
    dead_code,
    reason = "it only describes the document: bodies are not parsed into a tree"
)]
struct CompletionRequest {
    /// `author/service`, or `author/service/model`.
    model: String,
    /// A text, a list of texts, or a list of tokens.
    prompt: Texts,
    /// Stream the answer as events.
    stream: Option<bool>,
}

/// A request for embeddings. All other fields are the service's config.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(
    dead_code,
    reason = "it only describes the document: bodies are not parsed into a tree"
)]
struct EmbeddingsRequest {
    /// `author/service`, or `author/service/model`.
    model: String,
    /// A text, a list of texts, or a list of tokens.
    input: Texts,
}

/// One or more texts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "it only describes the document: bodies are not parsed into a tree"
)]
enum Texts {
    /// One text.
    One(String),
    /// A list of texts, or of tokens.
    Several(Vec<Value>),
}

/// A request in the service's own format.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(
    dead_code,
    reason = "it only describes the document: bodies are not parsed into a tree"
)]
struct DirectRequest {
    /// `author/service`, or `author/service/model`.
    model: String,
}

const fn asked(method: AdapterMethod, mode: AdapterMode) -> AdapterCall {
    AdapterCall { method, mode }
}

/// Answer a conversation.
#[utoipa::path(
    post,
    path = "/chat/completions",
    tag = "adapters",
    operation_id = "chatCompletion",
    request_body(content = ChatRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer: an object, or events if `stream` is true", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The service answered without a body, which a proxy's upstream may do"),
        (status = "2XX", description = "Another success of a proxy's upstream", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("bearer" = []), ("key" = [])),
)]
async fn chat(State(gateway): State<Arc<Gateway>>, request: Request) -> Result<Response, Error> {
    let asked = asked(AdapterMethod::Chat, AdapterMode::Standard);
    call::answer(&gateway, request, asked).await
}

/// Complete a text.
#[utoipa::path(
    post,
    path = "/completions",
    tag = "adapters",
    operation_id = "completion",
    request_body(content = CompletionRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer: an object, or events if `stream` is true", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The service answered without a body, which a proxy's upstream may do"),
        (status = "2XX", description = "Another success of a proxy's upstream", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("bearer" = []), ("key" = [])),
)]
async fn completion(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Response, Error> {
    let asked = asked(AdapterMethod::Completion, AdapterMode::Standard);
    call::answer(&gateway, request, asked).await
}

/// Embed texts.
#[utoipa::path(
    post,
    path = "/embeddings",
    tag = "adapters",
    operation_id = "embeddings",
    request_body(content = EmbeddingsRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The service answered without a body, which a proxy's upstream may do"),
        (status = "2XX", description = "Another success of a proxy's upstream", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("bearer" = []), ("key" = [])),
)]
async fn embeddings(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Response, Error> {
    let asked = asked(AdapterMethod::Embeddings, AdapterMode::Standard);
    call::answer(&gateway, request, asked).await
}

/// Answer a conversation, in the service's own format.
#[utoipa::path(
    post,
    path = "/chat/completions",
    tag = "adapters",
    operation_id = "directChatCompletion",
    request_body(content = DirectRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The service answered without a body, which a proxy's upstream may do"),
        (status = "2XX", description = "Another success of a proxy's upstream", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("bearer" = []), ("key" = [])),
)]
async fn direct_chat(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Response, Error> {
    let asked = asked(AdapterMethod::Chat, AdapterMode::Direct);
    call::answer(&gateway, request, asked).await
}

/// Complete a text, in the service's own format.
#[utoipa::path(
    post,
    path = "/completions",
    tag = "adapters",
    operation_id = "directCompletion",
    request_body(content = DirectRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The service answered without a body, which a proxy's upstream may do"),
        (status = "2XX", description = "Another success of a proxy's upstream", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("bearer" = []), ("key" = [])),
)]
async fn direct_completion(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Response, Error> {
    let asked = asked(AdapterMethod::Completion, AdapterMode::Direct);
    call::answer(&gateway, request, asked).await
}

/// Embed texts, in the service's own format.
#[utoipa::path(
    post,
    path = "/embeddings",
    tag = "adapters",
    operation_id = "directEmbeddings",
    request_body(content = DirectRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = 204, description = "The service answered without a body, which a proxy's upstream may do"),
        (status = "2XX", description = "Another success of a proxy's upstream", content(
            (serde_json::Value = "application/json"),
            (String = "*/*"),
        )),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("bearer" = []), ("key" = [])),
)]
async fn direct_embeddings(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Response, Error> {
    let asked = asked(AdapterMethod::Embeddings, AdapterMode::Direct);
    call::answer(&gateway, request, asked).await
}
