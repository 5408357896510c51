//! Why the gateway did not do what it was asked.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde::Deserialize;

/// A failed request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// There is no answer.
    #[error("{url}: {reason}")]
    Unreachable {
        /// The gateway.
        url: String,
        /// Why.
        reason: String,
        /// Whether the request was certainly not seen.
        unsent: bool,
    },
    /// The gateway, or the service behind it, refused.
    #[error("{}", refused(*.status, .code.as_deref(), .message, .request_id.as_deref()))]
    Refused {
        /// HTTP status.
        status: u16,
        /// The error's code.
        code: Option<String>,
        /// In words.
        message: String,
        /// The request's id, for the gateway's log.
        request_id: Option<String>,
        /// After which time it may be tried again; `None` if the gateway does not say.
        retry_after: Option<Duration>,
        /// Whether the gateway says that trying again is of no use.
        final_: bool,
    },
    /// The answer is none that a gateway gives.
    #[error("the gateway answered something else: {0}")]
    Protocol(String),
}

/// The body of an error.
#[derive(Deserialize)]
struct Body {
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
            reason = format!("no gateway answers there ({reason}); is `pkgtool serve` running?");
        }
        Self::Unreachable {
            url: url.to_string(),
            reason,
            unsent: error.is_connect(),
        }
    }

    pub(super) fn of_reply(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let parsed: Option<Body> = serde_json::from_slice(body).ok();
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
