//! Chat adapters: serve services through the common chat-completion interface.
//!
//! In standard mode a body is split into data and config; in direct mode it is passed on in the
//! service's own format.
//!
//! Invariant: an adapter knows nothing of models. It turns a body into a predict request and
//! returns the service's answer. The key and its rate are checked before the body is read.

mod batches;
mod call;
mod failed;
mod files;
mod images;
mod listed;
mod media;
mod models;
mod relay;
mod reported;
mod responses;
mod speech;
mod split;
mod tally;
mod transcription;
mod unstreamed;

use std::sync::Arc;

use axum::extract::{Request, State};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa::openapi::Required;

pub(in crate::gateway) use batches::answer_batch_request;
pub(in crate::gateway) use call::AdmittedRequest;

use super::super::Gateway;
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use crate::service::{AdapterCall, AdapterMethod, AdapterMode};
use pkgtool_media::sound::SoundFormat;

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

/// An adapter method, as routes and the OpenAPI document show it.
struct Adapter {
    method: AdapterMethod,
    path: &'static str,
    /// Another path, which the document omits.
    other_path: Option<&'static str>,
    /// Ids of the operations in standard and in direct mode.
    ids: [&'static str; 2],
    summary: &'static str,
    /// The body in standard mode.
    body: fn(RouteOperation) -> RouteOperation,
}

/// The methods, in the order of their routes.
const ADAPTERS: [Adapter; 3] = [
    Adapter {
        method: AdapterMethod::Chat,
        path: "/chat/completions",
        other_path: None,
        ids: ["chatCompletion", "directChatCompletion"],
        summary: "Answer a conversation",
        body: RouteOperation::takes::<ChatBody>,
    },
    Adapter {
        method: AdapterMethod::Completion,
        path: "/completions",
        other_path: Some("/completion"),
        ids: ["completion", "directCompletion"],
        summary: "Complete a text",
        body: RouteOperation::takes::<CompletionBody>,
    },
    Adapter {
        method: AdapterMethod::Embeddings,
        path: "/embeddings",
        other_path: Some("/embedding"),
        ids: ["embeddings", "directEmbeddings"],
        summary: "Embed texts",
        body: RouteOperation::takes::<EmbeddingsRequest>,
    },
];

/// Returns the routes of standard mode.
pub(super) fn standard() -> Routes {
    methods(AdapterMode::Standard)
        .merge(transcripts())
        .merge(spoken())
        .merge(drawn())
        .merge(responded())
        .merge(files::routes())
        .merge(batches::routes())
        .merge(models::routes())
}

/// Returns the routes of direct mode.
pub(super) fn direct() -> Routes {
    methods(AdapterMode::Direct).merge(models::routes().undescribed())
}

/// Returns the routes for transcripts.
fn transcripts() -> Routes {
    let paths = [
        (
            "/audio/transcriptions",
            "transcription",
            "Convert a recording to its words",
        ),
        (
            "/audio/translations",
            "translation",
            "Convert a recording to English words",
        ),
    ];
    let mut routes = Routes::new("adapters", &["bearer", "key"]);
    for (path, id, summary) in paths {
        let answer = async move |State(gateway): State<Arc<Gateway>>, request: Request| {
            transcription::answer(&gateway, request).await
        };
        let form = BodySchema::of::<transcription::TranscriptionBody>();
        let text = BodySchema::plain::<String>;
        let operation = RouteOperation::post(path, id, answer)
            .about(&format!("{summary}."))
            .takes_any_of(Some(Required::True), None, [("multipart/form-data", form)])
            .responds(
                "200",
                "The words, in the format that `response_format` names",
                [
                    ("application/json", BodySchema::plain::<Value>()),
                    ("text/plain", text()),
                    ("text/vtt", text()),
                    ("application/x-subrip", text()),
                ],
            )
            .fails("The service did not answer");
        routes = routes.add(operation);
    }
    routes
}

/// Returns the route for speech.
fn spoken() -> Routes {
    let answer = async move |State(gateway): State<Arc<Gateway>>, request: Request| {
        speech::answer(&gateway, request).await
    };
    let sounds = SoundFormat::ALL.map(|format| (format.media_type(), BodySchema::bytes()));
    let operation = RouteOperation::post("/audio/speech", "speech", answer)
        .about("Speak a text or phonemes.")
        .takes::<speech::SpeechBody>()
        .responds(
            "200",
            "The sound, in the format that `response_format` names",
            sounds,
        )
        .fails("The service did not answer");
    Routes::new("adapters", &["bearer", "key"]).add(operation)
}

/// Returns the route for responses.
fn responded() -> Routes {
    let answer = async move |State(gateway): State<Arc<Gateway>>, request: Request| {
        responses::answer(&gateway, request).await
    };
    let operation = RouteOperation::post("/responses", "createResponse", answer)
        .about("Answer a conversation in the form of responses. Nothing is stored.")
        .takes::<responses::ResponsesBody>()
        .responds(
            "200",
            "The response: an object, or events if `stream` is true",
            [
                ("application/json", BodySchema::plain::<Value>()),
                ("text/event-stream", BodySchema::plain::<String>()),
            ],
        )
        .fails("The service did not answer");
    Routes::new("adapters", &["bearer", "key"]).add(operation)
}

/// Returns the route for pictures of texts.
fn drawn() -> Routes {
    let answer = async move |State(gateway): State<Arc<Gateway>>, request: Request| {
        images::answer(&gateway, request).await
    };
    let operation = RouteOperation::post("/images/generations", "generateImages", answer)
        .about("Make pictures of a text.")
        .takes::<images::ImagesBody>()
        .responds(
            "200",
            "The pictures, PNG in base64",
            [("application/json", BodySchema::plain::<Value>())],
        )
        .fails("The service did not answer");
    Routes::new("adapters", &["bearer", "key"]).add(operation)
}

fn methods(mode: AdapterMode) -> Routes {
    let mut routes = Routes::new("adapters", &["bearer", "key"]);
    let is_direct = mode == AdapterMode::Direct;
    for adapter in ADAPTERS {
        let method = adapter.method;
        let call = AdapterCall { method, mode };
        let answer = async move |State(gateway): State<Arc<Gateway>>, request: Request| {
            call::answer(&gateway, request, call).await
        };
        let id = adapter.ids[usize::from(is_direct)];
        let operation = RouteOperation::post(adapter.path, id, answer);
        let (operation, format) = if is_direct {
            let operation = operation.takes::<DirectRequest>();
            (operation, ", in the service's own format")
        } else {
            ((adapter.body)(operation), "")
        };
        let answer_description = if !is_direct && method.streams() {
            "The service's answer: an object, or events if `stream` is true"
        } else {
            "The service's answer"
        };
        let operation = operation
            .about(&format!("{}{format}.", adapter.summary))
            .answers_as_service(answer_description)
            .answers_as_upstream()
            .fails("The service did not answer");
        if let Some(path) = adapter.other_path {
            routes = routes.add_undescribed(path, RouteOperation::post(path, id, answer));
        }
        routes = routes.add(operation);
    }
    routes
}

/// A chat request. All other fields are the service's config.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatRequest)]
#[expect(
    dead_code,
    reason = "it only describes the document: bodies are not parsed into a tree"
)]
struct ChatBody {
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
#[schema(as = CompletionRequest)]
#[expect(
    dead_code,
    reason = "it only describes the document: bodies are not parsed into a tree"
)]
struct CompletionBody {
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
