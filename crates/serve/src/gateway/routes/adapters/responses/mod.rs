//! The common interface for responses: a request becomes a chat, and the chat's answer a response.
//!
//! Nothing is stored: a client sends the whole conversation, and responses cannot be read again.

mod answer;
mod events;
mod request;

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request as HttpRequest;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::super::super::Gateway;
use super::super::super::error::GatewayError;
use super::call::{self, AdmittedRequest};
use crate::service::{AdapterCall, AdapterMethod, AdapterMode};
use answer::ResponseWriter;
use request::ChatOfResponse;

/// The chat that a response stands for.
const CHAT: AdapterCall = AdapterCall {
    method: AdapterMethod::Chat,
    mode: AdapterMode::Standard,
};

/// A request for a response. All other fields are the service's config.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ResponseRequest)]
#[expect(dead_code, reason = "it only describes the document")]
pub(super) struct ResponsesBody {
    /// `author/service`, or `author/service/model`.
    model: String,
    /// A text, or a list of messages, function calls and their outputs.
    input: ResponseInput,
    /// A message of the system before the input.
    instructions: Option<String>,
    /// Functions that the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Map<String, Value>>>,
    /// Stream the answer as events.
    stream: Option<bool>,
}

/// The input of a response.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes the document")]
enum ResponseInput {
    /// A text.
    Text(String),
    /// Items of a conversation.
    #[schema(value_type = Vec<Object>)]
    Items(Vec<Map<String, Value>>),
}

/// Answers a request for a response.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    request: HttpRequest,
) -> Result<Response, GatewayError> {
    let admitted = call::admitted(gateway, request).await?;
    answer_admitted(gateway, admitted).await
}

/// Answers a request for a response whose key and rate are checked.
pub(super) async fn answer_admitted(
    gateway: &Arc<Gateway>,
    admitted: AdmittedRequest,
) -> Result<Response, GatewayError> {
    let (body, memory) = admitted.body;
    let ChatOfResponse {
        chat,
        echo,
        streams,
    } = ChatOfResponse::read(&body)?;
    drop(body);
    let chat = memory.keep(chat.to_string().into_bytes());
    let chat = AdmittedRequest {
        body: (chat, memory),
        ..admitted
    };
    let response = call::answer_admitted(gateway, chat, CHAT).await?;
    let writer = ResponseWriter::new(echo);
    if streams {
        return Ok(events::converted(response, writer));
    }
    whole(response, writer).await
}

/// Converts a whole chat completion.
async fn whole(response: Response, writer: ResponseWriter) -> Result<Response, GatewayError> {
    let status = response.status();
    // The service's answer is within its own limit, and in memory already.
    let body = to_bytes(response.into_body(), usize::MAX).await;
    let body = body.unwrap_or_default();
    let completion = serde_json::from_slice(&body).ok();
    let converted = completion.and_then(|completion: Value| writer.whole(&completion));
    let converted = converted.ok_or_else(|| {
        let message = "the service did not answer with a chat completion";
        GatewayError::new(StatusCode::BAD_GATEWAY, "SERVICE_DOES_NOT_CHAT", message)
    })?;
    let head = [(header::CONTENT_TYPE, "application/json")];
    Ok((status, head, Body::from(converted.to_string())).into_response())
}
