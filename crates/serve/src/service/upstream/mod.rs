//! Services that are other HTTP services ("upstreams"): requests are forwarded to them.
//!
//! Invariant: secrets sent with calls (key, headers, user) are never shown. The upstream's statuses
//! are passed through.

mod address;
mod breaker;
mod forward;
mod pool;
mod probe;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;

use super::{CallError, Refusal, Request};
use crate::database::Timestamp;
pub use address::UpstreamAddress;
pub use forward::Forward;
use pkgtool_base::source::redact::MASK;
use pool::Pool;

/// Default media type of a request.
const JSON: &str = "application/json";

/// Time limit for connecting to an address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum length of a secret that is masked in an upstream's answers.
const MIN_SECRET_BYTES: usize = 4;

/// An upstream HTTP service.
#[derive(Debug)]
pub struct Upstream {
    options: UpstreamOptions,
    since: Timestamp,
    /// Headers sent with every call.
    headers: HeaderMap,
    client: reqwest::Client,
    pool: Pool,
}

/// Options of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamOptions {
    /// The service's owner and name, for logs.
    pub label: String,
    /// Its name in the registry.
    pub display_name: String,
    /// Its addresses, at least one.
    pub addresses: Vec<UpstreamAddress>,
    /// The key sent with every call.
    pub key: Option<UpstreamKey>,
    /// Headers sent with every call.
    pub headers: HeaderMap,
    /// Path of its health check.
    pub health: Option<String>,
    /// Interval between health checks.
    pub health_every: Duration,
    /// Maximum size of an answer, in bytes.
    pub max_answer: usize,
}

/// An API key for an upstream.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamKey {
    header: HeaderName,
    secret: String,
    value: HeaderValue,
}

impl UpstreamKey {
    /// Creates a key for this header: a bearer token in `Authorization`, the plain key in others.
    /// The error does not repeat it.
    pub fn new(header: HeaderName, secret: &str) -> Result<Self, String> {
        let value = if header == reqwest::header::AUTHORIZATION {
            HeaderValue::from_str(&format!("Bearer {secret}"))
        } else {
            HeaderValue::from_str(secret)
        };
        let mut value = value.map_err(|_| {
            "contains a line break or another character that is invalid in a header".to_owned()
        })?;
        value.set_sensitive(true);
        Ok(Self {
            header,
            secret: secret.to_owned(),
            value,
        })
    }
}

impl fmt::Debug for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamKey({})", self.header)
    }
}

/// State of an address of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressState {
    /// The address, without credentials.
    pub address: String,
    /// True if it gets requests.
    pub is_up: bool,
    /// Calls in flight.
    pub in_flight: usize,
}

/// The body of a request with a config.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct WithConfig<'a> {
    data: Cow<'a, RawValue>,
    config: Cow<'a, RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_type: Option<&'a str>,
}

/// Returns an HTTP client that follows no redirects.
pub fn client() -> Result<reqwest::Client, String> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // If another part of the process has already installed a provider, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .build();
    client.map_err(reason)
}

impl Upstream {
    /// Creates the service and starts its health checks. Must be called on a tokio runtime.
    pub fn start(options: UpstreamOptions) -> Result<Arc<Self>, String> {
        let client = client()?;
        let mut headers = options.headers.clone();
        if let Some(key) = &options.key {
            headers.insert(key.header.clone(), key.value.clone());
        }
        let upstream = Arc::new(Self {
            pool: Pool::new(&options.label, &options.addresses),
            since: Timestamp::now(),
            options,
            headers,
            client,
        });
        probe::watch(&upstream);
        Ok(upstream)
    }

    /// Returns the options.
    pub fn options(&self) -> &UpstreamOptions {
        &self.options
    }

    /// Returns its name in the registry.
    pub fn display_name(&self) -> &str {
        &self.options.display_name
    }

    /// Returns the time since when it is served.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns the state of its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = AddressState> {
        self.pool.targets().iter().map(|target| AddressState {
            address: target.address.to_string(),
            is_up: !target.is_down(),
            in_flight: target.in_flight(),
        })
    }

    /// Returns the reason why it cannot answer, as far as known. The reason does not reveal
    /// addresses.
    pub(super) fn inactive_reason(&self) -> Option<String> {
        self.pool.is_down().then(|| {
            let none = match self.options.addresses.len() {
                1 => "its address does not answer".to_owned(),
                count => format!("its {count} addresses do not answer"),
            };
            format!("{none}; it is retried automatically, and the server's log has the details")
        })
    }

    /// Prepares the request to send. Without a config, the data is sent unchanged. With a config,
    /// the body is an object of both (the specification's `PredictRequestData`); data that is not
    /// valid JSON becomes a string.
    pub fn prepare(self: &Arc<Self>, request: &Request) -> Result<Forward, CallError> {
        let media = request.data_type.as_deref().filter(|name| is_media(name));
        let Some(config) = &request.config else {
            let media = media.and_then(|media| HeaderValue::from_str(media).ok());
            let media = media.unwrap_or(HeaderValue::from_static(JSON));
            return Ok(Forward::new(self, request.body.clone(), media));
        };
        let data = std::str::from_utf8(&request.body)
            .map_err(|error| Refusal::at("$.data", format!("invalid UTF-8: {error}")))?;
        let body = WithConfig {
            data: json_or_string(data)?,
            config: json_or_string(config)?,
            data_type: request.data_type.as_deref(),
        };
        let body = serde_json::to_vec(&body)
            .map_err(|error| Refusal::at("$", format!("cannot be forwarded: {error}")))?;
        let media = HeaderValue::from_static(JSON);
        Ok(Forward::new(self, body.into(), media))
    }

    /// Masks sent secrets in an error's body, because an upstream may repeat a rejected key.
    fn without_secrets(&self, body: Bytes) -> Bytes {
        let key = self.options.key.as_ref().map(|key| key.secret.as_str());
        let passwords = self
            .options
            .addresses
            .iter()
            .filter_map(UpstreamAddress::password);
        let secrets = key.into_iter().chain(passwords);
        let secrets = secrets.filter(|secret| secret.len() >= MIN_SECRET_BYTES);
        secrets.fold(body, |body, secret| match std::str::from_utf8(&body) {
            Ok(text) if text.contains(secret) => text.replace(secret, MASK).into(),
            _ => body,
        })
    }
}

/// Formats an error of a call with its causes, without the address.
fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn json_or_string(text: &str) -> Result<Cow<'_, RawValue>, Refusal> {
    if let Ok(json) = serde_json::from_str(text) {
        return Ok(Cow::Borrowed(json));
    }
    serde_json::value::to_raw_value(text)
        .map(Cow::Owned)
        .map_err(|error| Refusal::at("$", format!("cannot be forwarded: {error}")))
}

/// Returns whether a data type is a media type such as `image/png`; others are addresses of
/// schemas.
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
    use super::*;

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

    #[test]
    fn secrets_are_not_shown() {
        let key = UpstreamKey::new(HeaderName::from_static("x-api-key"), "hush-hush").expect("one");
        let options = UpstreamOptions {
            label: "local/x".to_owned(),
            display_name: "x".to_owned(),
            addresses: vec![
                UpstreamAddress::parse("http://u:hush-hush@h/?k=hush-hush").expect("one"),
            ],
            headers: HeaderMap::from_iter([(key.header.clone(), key.value.clone())]),
            key: Some(key),
            health: None,
            health_every: Duration::from_secs(1),
            max_answer: 1,
        };
        let shown = format!("{options:?}");
        assert!(!shown.contains("hush"), "{shown}");
        let bearer = UpstreamKey::new(reqwest::header::AUTHORIZATION, "a\nb");
        let error = bearer.expect_err("it has a line break");
        assert!(!error.contains("a\nb"), "{error}");
    }
}
