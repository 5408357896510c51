//! What surrounds every request: its id, its line in the log, its place in the metrics, the body of
//! its error.
//!
//! Invariant: no key and no body is ever logged.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tracing::Instrument as _;

use super::Gateway;
use super::error::Error;
use super::request_id::REQUEST_ID;
use super::stopping::Stage;

/// What becomes known of a request while it is answered.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Account and key name, once the key was found.
    pub(super) caller: OnceLock<(String, String)>,
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
    let answer = async {
        match wrong_host(&request) {
            Some(error) => error.into_response(),
            None => next.run(request).await,
        }
    };
    let mut response = tokio::select! {
        biased;
        response = answer.instrument(span) => response,
        () = gateway.stopping.reached(Stage::CutOff) => {
            gateway.stopping.count_cut(1);
            Error::stopping().into_response()
        }
    };
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

/// What HTTP/1.1 asks of a request's `Host`: that there is one, and no second.
fn wrong_host(request: &Request) -> Option<Error> {
    if request.version() != Version::HTTP_11 {
        return None;
    }
    let hosts = request.headers().get_all(header::HOST).iter().count();
    (hosts != 1).then(|| {
        let message = format!("an HTTP/1.1 request has one `Host`; this one has {hosts}");
        Error::bad_request(message).with("place", "Host")
    })
}
