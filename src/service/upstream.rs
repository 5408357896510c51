//! A service that is another HTTP service: requests are forwarded as they are.
//!
//! Invariant: one request makes one call; the upstream's error statuses pass through; its answer is
//! read up to a limit.

use std::borrow::Cow;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use serde_json::value::RawValue;

use super::{Answer, CallError, Refusal, Request};
use crate::database::Timestamp;

/// Media type of a request that names none.
const JSON: &str = "application/json";

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
    /// Calls the upstream.
    pub async fn predict(self, timeout: Option<Duration>) -> Result<Answer, CallError> {
        let call = self.call();
        match timeout {
            None => call.await,
            Some(after) => tokio::time::timeout(after, call)
                .await
                .unwrap_or(Err(CallError::Timeout { after })),
        }
    }

    async fn call(self) -> Result<Answer, CallError> {
        let upstream = &self.upstream;
        let unreachable =
            |error: reqwest::Error| CallError::Unreachable(error.without_url().to_string());
        let request = upstream.client.post(upstream.url.clone());
        let request = request
            .header(CONTENT_TYPE, self.content_type)
            .header(ACCEPT, JSON);
        let sent = request.body(self.body).send().await;
        let mut response = sent.map_err(unreachable)?;
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or(JSON).to_owned();
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > upstream.max_answer {
                return Err(CallError::Unreachable(format!(
                    "its answer has more than {} bytes",
                    upstream.max_answer
                )));
            }
            body.extend_from_slice(&chunk);
        }
        let body = body.freeze();
        if status.is_success() {
            return Ok(Answer { body, content_type });
        }
        Err(CallError::Upstream {
            status: status.as_u16(),
            content_type,
            body,
        })
    }
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
    use super::is_media;

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
