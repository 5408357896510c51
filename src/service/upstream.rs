//! A service that is another HTTP service: requests are forwarded as they are.
//!
//! Invariant: one request makes one call; the upstream's error statuses pass through; its answer is
//! read up to a limit, and events of it are handed on before the next one is read.

use std::borrow::Cow;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{Answer, Body, CallError, Chunks, Refusal, Request};
use crate::database::Timestamp;

/// Media type of a request that names none.
const JSON: &str = "application/json";

/// What of a large body is sent at once, in bytes.
const PIECE: usize = 64 << 10;

/// Another HTTP service.
#[derive(Debug)]
pub struct Upstream {
    display_name: String,
    since: Timestamp,
    url: reqwest::Url,
    client: reqwest::Client,
    max_answer: usize,
}

/// What is sent to an upstream, and to which.
#[derive(Debug)]
pub struct Forward {
    upstream: Arc<Upstream>,
    body: Bytes,
    content_type: HeaderValue,
}

/// A request with a config, as an upstream gets it.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct WithConfig<'a> {
    data: Cow<'a, RawValue>,
    config: Cow<'a, RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_type: Option<&'a str>,
}

impl Upstream {
    /// A service at this address, whose answers have at most `max_answer` bytes.
    pub fn new(display_name: &str, url: &str, max_answer: usize) -> Result<Self, String> {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            // Another part of the process may have installed one: any does.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let parsed = reqwest::Url::parse(url)
            .map_err(|error| format!("upstream `{url}` is no address: {error}"))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(format!("upstream `{url}` is no http or https address"));
        }
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| format!("upstream `{url}`: {error}"))?;
        Ok(Self {
            display_name: display_name.to_owned(),
            since: Timestamp::now(),
            url: parsed,
            client,
            max_answer,
        })
    }

    /// What it is called in the registry.
    pub fn display_name(&self) -> &str {
        &self.display_name
    }

    /// Its address.
    pub fn address(&self) -> &str {
        self.url.as_str()
    }

    /// Since when it is served.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// What to send: the data as it is; with a config, an object of both (the specification's
    /// `PredictRequestData`), where what is no JSON is a string.
    pub fn prepare(self: &Arc<Self>, request: &Request) -> Result<Forward, CallError> {
        let media = request.data_type.as_deref().filter(|name| is_media(name));
        let Some(config) = &request.config else {
            return Ok(Forward {
                upstream: Arc::clone(self),
                body: request.body.clone(),
                content_type: media
                    .and_then(|media| HeaderValue::from_str(media).ok())
                    .unwrap_or(HeaderValue::from_static(JSON)),
            });
        };
        let data = std::str::from_utf8(&request.body)
            .map_err(|error| Refusal::at("$.data", format!("is no UTF-8: {error}")))?;
        let body = WithConfig {
            data: json_or_string(data)?,
            config: json_or_string(config)?,
            data_type: request.data_type.as_deref(),
        };
        let body = serde_json::to_vec(&body)
            .map_err(|error| Refusal::at("$", format!("cannot be forwarded: {error}")))?;
        Ok(Forward {
            upstream: Arc::clone(self),
            body: body.into(),
            content_type: HeaderValue::from_static(JSON),
        })
    }
}

impl Forward {
    /// Calls the upstream. Events are passed on as they come, each within the timeout; everything else
    /// when it is whole, within the timeout. Dropping the answer ends the call.
    pub async fn predict(self, timeout: Option<Duration>) -> Result<Answer, CallError> {
        let deadline = Deadline::after(timeout);
        let upstream = &self.upstream;
        let request = upstream.client.post(upstream.url.clone());
        let request = request
            .header(CONTENT_TYPE, self.content_type)
            .header(ACCEPT, JSON);
        let sent = with_body(request, self.body).send();
        let response = deadline.hold(sent).await?;
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or(JSON).to_owned();
        let is_stream = status.is_success() && is_events(&content_type);
        let chunks = Reading {
            response,
            deadline,
            each: timeout.filter(|_| is_stream),
            read: 0,
            most: upstream.max_answer,
        }
        .into_chunks();
        if is_stream {
            return Ok(Answer {
                body: Body::Stream(chunks),
                content_type,
                spent: None,
            });
        }
        let body = Body::Stream(chunks).whole().await?;
        if status.is_success() {
            return Ok(Answer {
                body: Body::Whole(body),
                content_type,
                spent: None,
            });
        }
        Err(CallError::Upstream {
            status: status.as_u16(),
            content_type,
            body,
        })
    }
}

/// How long a call may take, and until when.
#[derive(Debug, Clone, Copy)]
struct Deadline(Option<(Duration, Instant)>);

impl Deadline {
    fn after(timeout: Option<Duration>) -> Self {
        // What is beyond all clocks never comes.
        let at = |after| Some((after, Instant::now().checked_add(after)?));
        Self(timeout.and_then(at))
    }

    async fn hold<T>(
        self,
        work: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, CallError> {
        let done = match self.0 {
            None => work.await,
            Some((after, at)) => tokio::time::timeout_at(at, work)
                .await
                .map_err(|_| CallError::Timeout { after })?,
        };
        done.map_err(|error| CallError::Unreachable(error.without_url().to_string()))
    }
}

/// An answer that is being read.
struct Reading {
    response: reqwest::Response,
    deadline: Deadline,
    /// How long each chunk after the first may take, where it is not all of them together.
    each: Option<Duration>,
    /// Bytes that were read, and how many there may be.
    read: usize,
    most: usize,
}

impl Reading {
    fn into_chunks(self) -> Chunks {
        Box::pin(stream::try_unfold(self, |mut reading| async move {
            let chunk = reading.next().await?;
            Ok(chunk.map(|chunk| (chunk, reading)))
        }))
    }

    async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        let chunk = self.deadline.hold(self.response.chunk()).await?;
        let Some(chunk) = chunk else { return Ok(None) };
        if self.each.is_some() {
            self.deadline = Deadline::after(self.each);
        }
        self.read = self.read.saturating_add(chunk.len());
        if self.read > self.most {
            return Err(CallError::Unreachable(format!(
                "its answer has more than {} bytes",
                self.most
            )));
        }
        Ok(Some(chunk))
    }
}

/// A request with a body. A large one goes in pieces: its memory is free once the upstream has it, not
/// only when the upstream has answered.
fn with_body(request: reqwest::RequestBuilder, body: Bytes) -> reqwest::RequestBuilder {
    if body.len() <= PIECE {
        return request.body(body);
    }
    let length = body.len();
    let pieces = stream::unfold(body, async |mut rest| {
        let piece = rest.split_to(rest.len().min(PIECE));
        (!piece.is_empty()).then_some((Ok::<_, std::convert::Infallible>(piece), rest))
    });
    let request = request.header(CONTENT_LENGTH, length);
    request.body(reqwest::Body::wrap_stream(pieces))
}

/// Whether a media type is that of server-sent events.
fn is_events(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default();
    media.trim().eq_ignore_ascii_case("text/event-stream")
}

fn json_or_string(text: &str) -> Result<Cow<'_, RawValue>, Refusal> {
    if let Ok(json) = serde_json::from_str(text) {
        return Ok(Cow::Borrowed(json));
    }
    serde_json::value::to_raw_value(text)
        .map(Cow::Owned)
        .map_err(|error| Refusal::at("$", format!("cannot be forwarded: {error}")))
}

/// Whether a data type is a media type, such as `image/png`; others are addresses of schemas.
fn is_media(name: &str) -> bool {
    let mut parts = name.split(';').next().unwrap_or_default().split('/');
    let token = |part: Option<&str>| {
        part.is_some_and(|part| {
            let in_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
            !part.is_empty() && part.bytes().all(in_token)
        })
    };
    token(parts.next()) && token(parts.next()) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::{is_events, is_media};

    #[test]
    fn events_are_told_by_their_media_type() {
        for events in ["text/event-stream", "Text/Event-Stream ; charset=utf-8"] {
            assert!(is_events(events), "{events}");
        }
        for other in ["application/json", "text/event-stream-x", "text/plain", ""] {
            assert!(!is_events(other), "{other}");
        }
    }

    #[test]
    fn addresses_of_schemas_are_no_media_types() {
        assert!(is_media("image/png"));
        assert!(is_media("application/json; charset=utf-8"));
        for other in [
            "https://specs/mlp-data-common.yml#/JsonObject",
            "json",
            "a/b/c",
            "/",
            "",
        ] {
            assert!(!is_media(other), "{other}");
        }
    }
}
