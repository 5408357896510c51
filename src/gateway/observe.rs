//! What surrounds every request: its id, its line in the log, its place in the metrics, the body of
//! its error.
//!
//! Invariant: no key and no body is ever logged.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument as _;

use super::Gateway;
use super::error::Error;

/// The request's id, kept if a client sends one.
const REQUEST_ID: HeaderName = HeaderName::from_static("z-requestid");

/// Longest id that is taken over from a client.
const LONGEST_ID: usize = 128;

/// What becomes known of a request while it is answered.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Account and key name, once the key was found.
    pub(super) caller: OnceLock<(String, String)>,
}

/// Makes ids that differ between processes and requests.
#[derive(Debug)]
pub(super) struct RequestIds {
    process: u64,
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new() -> Self {
        let mut random = [0; 8];
        // Without randomness ids repeat after a restart, which only logs would show.
        let _ = getrandom::fill(&mut random);
        Self {
            process: u64::from_ne_bytes(random),
            next: AtomicU64::new(1),
        }
    }

    fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let sent = headers.get(REQUEST_ID).filter(|sent| {
            let visible = |byte: &u8| byte.is_ascii_graphic();
            !sent.is_empty() && sent.len() <= LONGEST_ID && sent.as_bytes().iter().all(visible)
        });
        if let Some(sent) = sent {
            return sent.clone();
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = String::with_capacity(32);
        // Writing to a string does not fail.
        let _ = write!(text, "{:016x}-{number:x}", self.process);
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("-"))
    }
}

/// Answers a request, and says so.
pub(super) async fn observe(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = gateway.request_ids.of(request.headers());
    let known = Arc::new(Known::default());
    request.extensions_mut().insert(Arc::clone(&known));
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let _in_flight = gateway.metrics.enter();
    let text = id.to_str().unwrap_or_default();
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    // Costs nothing unless traces are sent: no log asks for this target.
    let span =
        tracing::trace_span!(target: "pkgtool::trace", "request", request = text, %method, route);
    let mut response = next.run(request).instrument(span).await;
    let error = response.extensions_mut().remove::<Error>();
    let code = error.as_ref().map(|error| error.code.clone());
    let mut detail = None;
    if let Some(mut error) = error {
        detail = error.take_detail();
        response = error.render(text);
    }
    let status = response.status().as_u16();
    let took = started.elapsed();
    gateway.metrics.answered(&method, route, status, took);
    let (account, key) = match known.caller.get() {
        Some((account, key)) => (account.as_str(), key.as_str()),
        None => ("", ""),
    };
    let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if let Some(detail) = detail {
        let code = code.unwrap_or_default();
        tracing::warn!(
            request = text, %method, route, status, account, key, code, microseconds, detail, "failed"
        );
    } else if let Some(code) = code {
        tracing::info!(
            request = text, %method, route, status, account, key, code, microseconds, "refused"
        );
    } else if method == Method::GET {
        // Who waits for a task asks again and again.
        tracing::debug!(
            request = text, %method, route, status, account, key, microseconds, "answered"
        );
    } else {
        tracing::info!(
            request = text, %method, route, status, account, key, microseconds, "answered"
        );
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}
