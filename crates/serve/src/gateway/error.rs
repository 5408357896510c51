//! The error type of all routes: an HTTP status, a stable code, a message, and the request's id.
//!
//! Invariant: internal errors are logged in full; clients see only their code and a general
//! message.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::in_flight::ReachedLimit;
use crate::account::AccountId;
use crate::service::{self, CallError, Refusal, Service};
use crate::task::{BAD_REQUEST, TaskFailure};

/// The header that says whether a retry can help.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A failed request.
#[derive(Debug, Clone)]
pub(super) struct GatewayError {
    pub(super) status: StatusCode,
    pub(super) code: String,
    pub(super) message: String,
    more: Box<RareFields>,
}

/// Fields that only few errors have.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::option_option,
    reason = "another route's error, an error without a field, an error of a field"
)]
struct RareFields {
    args: Map<String, Value>,
    /// Seconds after which the client may retry.
    retry_after: Option<u64>,
    /// The process that ran the model crashed, or its worker left.
    is_crash: bool,
    /// The devices or workers of the service are away, and may come back.
    is_away: bool,
    /// Methods that the path supports, for an unsupported method.
    allow: Option<HeaderValue>,
    /// An upstream's error body and its content type, passed through unchanged.
    body: Option<(Bytes, String)>,
    /// The attached instance that failed.
    worker: Option<String>,
    /// Details for the log only.
    detail: Option<String>,
    /// The wrong field of a chat adapter's request. The outer `None` is an error of another route,
    /// the inner `None` an error without a field.
    param: Option<Option<String>>,
}

/// The body of every error.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorBody {
    error: ErrorDetail,
}

/// The description of an error.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::option_option, reason = "omitted, null, or a field")]
#[serde(rename_all = "camelCase")]
struct ErrorDetail {
    /// Stable code.
    code: String,
    /// Message for people.
    message: String,
    /// Kind of error.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Details, such as `place`, the JSON path of the error.
    args: Map<String, Value>,
    /// Chat adapters only: the wrong field of the body, or null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false)]
    param: Option<Option<String>>,
    /// Id of the request, also in the header `Z-requestId`.
    request_id: String,
}

impl GatewayError {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            more: Box::default(),
        }
    }

    /// The request is invalid.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, BAD_REQUEST, message)
    }

    /// The current state does not allow the request.
    pub(super) fn conflict(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// Adds a machine-readable detail.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.args.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the seconds after which the client may retry.
    pub(super) fn retry_after(mut self, seconds: u64) -> Self {
        self.more.retry_after = Some(seconds);
        self
    }

    /// Returns whether the process that ran the model crashed, or its worker left.
    pub(super) fn is_crash(&self) -> bool {
        self.more.is_crash
    }

    /// Returns whether the devices or workers of the service are away, and may come back.
    pub(super) fn is_away(&self) -> bool {
        self.more.is_away
    }

    /// Marks the error as one of devices or workers that are away.
    pub(super) fn away(mut self, is_away: bool) -> Self {
        self.more.is_away = is_away;
        self
    }

    /// Adds a detail for the log only.
    pub(super) fn because(mut self, detail: &dyn std::fmt::Display) -> Self {
        self.more.detail = Some(detail.to_string());
        self
    }

    /// Returns the detail for the log.
    pub(super) fn detail(&self) -> Option<&str> {
        self.more.detail.as_deref()
    }

    /// Returns the attached instance that failed.
    pub(super) fn worker(&self) -> Option<&str> {
        self.more.worker.as_deref()
    }

    /// Takes the detail for the log.
    pub(super) fn take_detail(&mut self) -> Option<String> {
        self.more.detail.take()
    }

    pub(super) fn no_key() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "mlp.gateway.access_key_required",
            "the request has no API key; send it in the header MLP-API-KEY",
        )
    }

    pub(super) fn no_authorization() -> Self {
        Self {
            message: "the request has no API key; send it in the header Authorization".to_owned(),
            ..Self::no_key()
        }
    }

    pub(super) fn unknown_key() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "mlp.gateway.api_key_not_found",
            "the API key is unknown, expired or revoked",
        )
    }

    /// The session of the browser has ended.
    pub(super) fn session_ended() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "mlp.gateway.session_has_ended",
            "the session has ended; log in again",
        )
    }

    /// Another site may have caused the request.
    pub(super) fn not_of_console() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "REQUEST_IS_NOT_OF_THE_CONSOLE",
            "a session is for the console's pages only; programs send an API key in the header MLP-API-KEY",
        )
    }

    /// Only the operator may do this.
    pub(super) fn not_the_operator() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "OPERATOR_REQUIRED",
            "only the operator may do this: log in with the link that `pkgtool serve` prints, or `pkgtool keys link`",
        )
    }

    pub(super) fn blocked() -> Self {
        Self::new(
            StatusCode::PAYMENT_REQUIRED,
            "ACCOUNT_IS_BLOCKED",
            "the account is blocked",
        )
    }

    pub(super) fn permission(needed: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "TOKEN_PERMISSION_REQUIRED",
            format!("the API key lacks the permission `{needed}`"),
        )
        .with("permission", needed)
    }

    pub(super) fn another_account() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "ACCESS_TO_ANOTHER_ACCOUNT_DENIED",
            "the API key belongs to another account",
        )
    }

    pub(super) fn not_public() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "ACCESS_TO_ANOTHER_ACCOUNT_NOT_PUBLIC_DENIED",
            "the account has no public service of this name",
        )
    }

    pub(super) fn no_service(model: &str) -> Self {
        Self::of_failure(TaskFailure::no_service(model))
    }

    pub(super) fn no_entity(what: &str, id: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "ENTITY_NOT_FOUND_BY_ID",
            format!("unknown {what} `{id}`"),
        )
    }

    /// Returns the error for a required service that is inactive.
    pub(super) fn required_service(service: &Service) -> Self {
        let reason = service.inactive_reason().unwrap_or_default();
        let message = format!(
            "the required service `{}` is inactive: {reason}",
            service.label()
        );
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "REQUIRED_SERVICE_IS_INACTIVE", message)
    }

    /// The models of these services are loaded at the start, and are not loaded yet.
    pub(super) fn models_are_loading(services: &[(AccountId, String)]) -> Self {
        let names: Vec<&str> = services.iter().map(|(_, name)| name.as_str()).collect();
        let message = format!(
            "the models of these services are loading: {}",
            names.join(", ")
        );
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "MODELS_ARE_LOADING",
            message,
        )
    }

    pub(super) fn too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "REQUEST_BODY_IS_TOO_LARGE",
            format!("the body has more than {limit} bytes"),
        )
        .with("limit", limit)
    }

    /// The disk is full: neither the database nor the blob store can write.
    pub(super) fn disk_is_full() -> Self {
        Self::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "STORAGE_IS_FULL",
            "the server's disk is full; nothing was stored",
        )
    }

    /// The server stopped and cut off the request.
    pub(super) fn stopping() -> Self {
        let message = "the server is shutting down; another server may answer";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "SERVER_IS_STOPPING",
            message,
        )
        .retry_after(1)
    }

    /// The connection limit is reached.
    pub(super) fn too_many_connections() -> Self {
        let message = "the server has reached its limit of open connections";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "TOO_MANY_CONNECTIONS", message).retry_after(1)
    }

    /// The key or account has reached its limit of requests in flight.
    pub(super) fn too_many_requests(met: ReachedLimit) -> Self {
        let (limit, most) = (met.limit, met.most);
        let message = format!(
            "this {} has reached its limit of {most} requests in flight; wait for one of them, or \
             raise `limits.{limit}`",
            limit.trim_start_matches("requests_per_")
        );
        let status = StatusCode::TOO_MANY_REQUESTS;
        let error = Self::new(status, "TOO_MANY_OPEN_REQUESTS", message);
        error.with("limit", most).retry_after(1)
    }

    /// The HTTP library rejected the request with this status.
    pub(super) fn no_request(status: StatusCode) -> Self {
        let (code, message) = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => (
                "REQUEST_HEADER_IS_TOO_LARGE",
                "the request's head has too many bytes or fields",
            ),
            StatusCode::URI_TOO_LONG => {
                ("REQUEST_URI_IS_TOO_LONG", "the request's path is too long")
            }
            _ => (BAD_REQUEST, "malformed HTTP request"),
        };
        Self::new(status, code, message)
    }

    /// The request has both `Content-Length` and `Transfer-Encoding`. A proxy in front of this
    /// server may have read a different body than this server would.
    pub(super) fn two_lengths() -> Self {
        Self::bad_request(
            "the request has both `Content-Length` and `Transfer-Encoding`; send one of them",
        )
        .with("place", "Content-Length")
    }

    /// The server failed in a way that only the log shows.
    pub(super) fn unchecked(detail: &dyn std::fmt::Display) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(
            status,
            "INTERNAL_ERROR",
            "the server failed; its log has the details",
        )
        .because(detail)
    }

    /// The path does not exist.
    pub(super) fn no_path() -> Self {
        let message = "unknown path; GET /openapi.json lists all paths";
        Self::new(StatusCode::NOT_FOUND, "PATH_NOT_FOUND", message)
    }

    /// The path supports other methods.
    pub(super) fn no_method(allow: &str) -> Self {
        let message = format!("this path supports only {allow}");
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let mut error = Self::new(status, "METHOD_NOT_ALLOWED", message);
        error.more.allow = HeaderValue::from_str(allow).ok();
        error
    }

    /// Turns the error of an unknown service into "not found". Calls of a service report it as a
    /// bad request, reads do not.
    pub(super) fn for_reading(self, what: &str, id: &str) -> Self {
        if self.status == StatusCode::BAD_REQUEST {
            return Self::no_entity(what, id);
        }
        self
    }

    /// Returns the error in the form of the chat adapters, with the wrong field.
    pub(super) fn for_adapter(mut self) -> Self {
        let place = self.more.args.get("place").and_then(Value::as_str);
        let field = place.and_then(|place| place.strip_prefix("$."));
        // Places in the data or config of a service are fields of the client's body.
        let field = field.map(|field| {
            let inner = ["data.", "config."];
            let inner = inner.iter().find_map(|above| field.strip_prefix(above));
            inner.unwrap_or(field).to_owned()
        });
        self.more.param = Some(field);
        self
    }

    /// Returns the error as the data of an event, on one line. Used after the HTTP status was sent.
    pub(super) fn event_data(mut self, request_id: &str) -> String {
        let passed = self.more.body.take().filter(|(body, _)| {
            // An upstream's own error, if it has the shape that clients expect.
            #[derive(serde::Deserialize)]
            struct UpstreamError {
                #[serde(rename = "error")]
                _error: serde::de::IgnoredAny,
            }
            serde_json::from_slice::<UpstreamError>(body).is_ok()
        });
        if let Some(text) = passed.and_then(|(body, _)| String::from_utf8(body.into()).ok()) {
            // JSON strings contain no line breaks, so this changes only whitespace.
            return text.replace(['\n', '\r'], " ");
        }
        let body = self.for_adapter().body(request_id);
        // Serializing strings does not fail.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// Returns the error that was stored with a failed task.
    pub(super) fn of_failure(failure: TaskFailure) -> Self {
        let status = StatusCode::from_u16(failure.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = failure.body.map(Bytes::from);
        let mut error = Self::new(status, &failure.code, failure.message);
        let media_type = failure.media_type;
        let media_type = media_type.unwrap_or_else(|| "application/json".to_owned());
        error.more.body = body.map(|body| (body, media_type));
        error.more.worker = failure.worker;
        error.more.retry_after = (status == StatusCode::TOO_MANY_REQUESTS).then_some(1);
        error
    }

    /// Returns a complete HTTP/1 response, for connections on which no request was read.
    pub(super) fn raw(self, request_id: &str) -> Bytes {
        let status = self.status;
        let retry_after = self.more.retry_after;
        let body = self.body(request_id);
        // Serializing strings does not fail.
        let body = serde_json::to_string(&body).unwrap_or_default();
        let retry_after =
            retry_after.map_or_else(String::new, |it| format!("retry-after: {it}\r\n"));
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             z-requestid: {request_id}\r\nconnection: close\r\n{retry_after}\r\n{body}"
        )
        .into()
    }

    fn body(self, request_id: &str) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                code: self.code,
                message: self.message,
                kind: kind(self.status),
                args: self.more.args,
                param: self.more.param,
                request_id: request_id.to_owned(),
            },
        }
    }

    /// Renders the response. The caller provides the request's id.
    pub(super) fn render(mut self, request_id: &str) -> Response {
        let status = self.status;
        let retry_after = self.more.retry_after;
        let (allow, body) = (self.more.allow.take(), self.more.body.take());
        let mut response = if let Some((body, media)) = body {
            let media = HeaderValue::try_from(media)
                .unwrap_or(HeaderValue::from_static("application/octet-stream"));
            (status, [(header::CONTENT_TYPE, media)], body).into_response()
        } else {
            (status, axum::Json(self.body(request_id))).into_response()
        };
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        } else if [StatusCode::GATEWAY_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status) {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if let Some(allow) = allow {
            headers.insert(header::ALLOW, allow);
        }
        response
    }
}

/// Returns the error kind of chat adapters for a status.
fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        504 => "timeout_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// The body is rendered by [`super::observe`], which knows the request's id.
impl IntoResponse for GatewayError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Refusal> for GatewayError {
    fn from(refusal: Refusal) -> Self {
        let code = refusal.code.unwrap_or(BAD_REQUEST);
        let error = Self::new(StatusCode::BAD_REQUEST, code, refusal.message);
        match refusal.place {
            Some(place) => error.with("place", place),
            None => error,
        }
    }
}

impl From<CallError> for GatewayError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refusal) => refusal.into(),
            CallError::Upstream {
                status,
                content_type,
                body,
                retry_after,
            } => {
                let failure = TaskFailure::of(CallError::Upstream {
                    status,
                    content_type: String::new(),
                    body: Bytes::new(),
                    retry_after,
                });
                let mut error = Self::of_failure(failure);
                error.more.body = Some((body, content_type));
                // The upstream knows best when it answers again.
                error.more.retry_after = retry_after.or(error.more.retry_after);
                error
            }
            CallError::Instance { ref args, .. } => {
                let args = args.clone();
                let error = Self::of_failure(TaskFailure::of(error));
                let with = |error: Self, (name, value): (String, String)| error.with(&name, value);
                args.into_iter().fold(error, with)
            }
            CallError::Lost => {
                let mut error = Self::of_failure(TaskFailure::of(error)).retry_after(1);
                error.more.is_crash = true;
                error
            }
            CallError::Down { retry_after, .. } => {
                let seconds = service::seconds(retry_after);
                Self::of_failure(TaskFailure::of(error)).retry_after(seconds)
            }
            other => {
                let detail = other.to_string();
                let is_crash = matches!(other, CallError::Crashed(_));
                let is_away = matches!(other, CallError::Away(_));
                let mut error = Self::of_failure(TaskFailure::of(other)).because(&detail);
                error.more.is_crash = is_crash;
                error.away(is_away)
            }
        }
    }
}
