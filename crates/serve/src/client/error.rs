//! Errors of requests to a gateway.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde::Deserialize;

/// A failed request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The request is invalid; nothing was sent.
    #[error("{0}")]
    Usage(String),
    /// The gateway did not answer.
    #[error("{url}: {reason}")]
    Unreachable {
        /// The gateway.
        url: String,
        /// Why.
        reason: String,
        /// Is `true` if the gateway certainly did not see the request.
        unsent: bool,
    },
    /// The gateway, or the service behind it, rejected the request.
    #[error("{}", refused(*.status, .code.as_deref(), .message, .request_id.as_deref()))]
    Refused {
        /// HTTP status.
        status: u16,
        /// The error's code.
        code: Option<String>,
        /// The message for people.
        message: String,
        /// The request ID, for finding the request in the gateway's log.
        request_id: Option<String>,
        /// Time to wait before a retry; `None` if the gateway does not state it.
        retry_after: Option<Duration>,
        /// Is `true` if the gateway states that retrying is useless.
        final_: bool,
    },
    /// The response is not that of a gateway.
    #[error("unexpected response of the gateway: {0}")]
    Protocol(String),
}

/// The body of an error.
#[derive(Deserialize)]
struct ReceivedError {
    error: Detail,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    code: Option<String>,
    message: Option<String>,
    request_id: Option<String>,
}

impl ClientError {
    pub(super) fn unreachable(url: &Url, error: &reqwest::Error) -> Self {
        let mut reason = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            reason = cause.to_string();
            source = cause.source();
        }
        if error.is_connect() {
            reason = format!(
                "no gateway answers at this address ({reason}); is `pkgtool serve` running?"
            );
        }
        Self::Unreachable {
            url: url.to_string(),
            reason,
            unsent: error.is_connect(),
        }
    }

    pub(super) fn of_reply(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let parsed: Option<ReceivedError> = serde_json::from_slice(body).ok();
        let detail = parsed.map(|body| body.error);
        let (code, message, id) = match detail {
            Some(detail) => (detail.code, detail.message, detail.request_id),
            None => (None, None, None),
        };
        let raw = || String::from_utf8_lossy(body).chars().take(500).collect();
        Self::Refused {
            status: status.as_u16(),
            code,
            message: message.unwrap_or_else(raw),
            request_id: id.or_else(|| text("z-requestid").map(str::to_owned)),
            retry_after: text(RETRY_AFTER.as_str())
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
            final_: text("x-should-retry") == Some("false"),
        }
    }
}

fn refused(status: u16, code: Option<&str>, message: &str, id: Option<&str>) -> String {
    let code = code.map_or_else(String::new, |code| format!(" {code}"));
    let id = id.map_or_else(String::new, |id| format!(" (request {id})"));
    match message {
        "" => format!("{status}{code}{id}"),
        message => format!("{status}{code}: {message}{id}"),
    }
}
