//! What surrounds every request: its id, its line in the log, its place in the metrics, the body of
//! its error.
//!
//! Invariant: no key, no query and no body is ever logged.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use tracing::{Instrument as _, Level};

use super::Gateway;
use super::error::Error;
use super::peer::{self, Peer};
use super::request_id::REQUEST_ID;
use crate::account::AccountId;
use crate::service::Service;
use crate::service::meter::{Operation, Outcome};
use crate::task::TaskId;

/// Longest path that is logged, in bytes.
const LONGEST_PATH: usize = 512;

/// What becomes known of a request while it is answered.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Whose key it has, once the key was found.
    pub(super) caller: OnceLock<Whose>,
    /// What is asked of which service, once it is clear that it may be.
    pub(super) asked: OnceLock<(Arc<Service>, Operation)>,
}

/// Whose key a request has.
#[derive(Debug)]
pub(super) struct Whose {
    pub(super) id: AccountId,
    pub(super) account: String,
    /// The key's name.
    pub(super) key: String,
}

/// The task that a request made, as an extension of its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Made(pub(super) TaskId);

/// A request and its answer, for the log.
struct Line<'l> {
    id: &'l str,
    method: &'l Method,
    route: &'l str,
    uri: &'l Uri,
    peer: Option<IpAddr>,
    /// The proxy that said who the peer is.
    via: Option<IpAddr>,
    known: &'l Known,
    made: Option<TaskId>,
    status: u16,
    took: Duration,
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
    let uri = request.uri().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let connected = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let client = connected.map(|connected| {
        peer::client(
            connected,
            request.headers(),
            &gateway.current().trusted_proxies,
        )
    });
    let _in_flight = gateway.metrics.enter();
    let text = id.to_str().unwrap_or_default();
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    // Costs nothing unless traces are sent: no log asks for this target.
    let span =
        tracing::trace_span!(target: "pkgtool::trace", "request", request = text, %method, route);
    let mut response = next.run(request).instrument(span).await;
    let error = response.extensions_mut().remove::<Error>();
    let made = response.extensions_mut().remove::<Made>();
    let code = error.as_ref().map(|error| error.code.clone());
    let mut detail = None;
    if let Some(mut error) = error {
        detail = error.take_detail();
        response = error.render(text);
    }
    let line = Line {
        id: text,
        method: &method,
        route,
        uri: &uri,
        peer: client,
        via: connected.filter(|connected| client != Some(connected.to_canonical())),
        known: &known,
        made: made.map(|made| made.0),
        status: response.status().as_u16(),
        took: started.elapsed(),
    };
    line.count(&gateway);
    line.log(code.as_deref(), detail.as_deref());
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

impl Line<'_> {
    fn count(&self, gateway: &Gateway) {
        let Self { status, took, .. } = *self;
        let metrics = &gateway.metrics;
        metrics.answered(self.method, self.route, status, took);
        if let (Some((service, operation)), Some(whose)) =
            (self.known.asked.get(), self.known.caller.get())
        {
            let outcome = Outcome::of_status(status);
            let account = (whose.id, whose.account.as_str());
            service.meter.count(account, *operation, outcome, took);
        }
    }

    fn log(&self, code: Option<&str>, detail: Option<&str>) {
        let level = match (code, detail) {
            (_, Some(_)) => Level::WARN,
            (Some(_), None) => Level::INFO,
            // Who waits for a task asks again and again.
            (None, None) if self.method == Method::GET => Level::DEBUG,
            (None, None) => Level::INFO,
        };
        // A line that nobody wants costs nothing more.
        macro_rules! line {
            ($level:expr, $words:literal) => {
                if tracing::enabled!($level) {
                    let Self {
                        id, method, route, status, ..
                    } = *self;
                    let whose = self.known.caller.get();
                    let microseconds = u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX);
                    tracing::event!(
                        $level,
                        request = id,
                        peer = self.peer.map(tracing::field::display),
                        via = self.via.map(tracing::field::display),
                        %method,
                        path = self.path(),
                        route,
                        status,
                        account = whose.map(|whose| whose.account.as_str()),
                        key = whose.map(|whose| whose.key.as_str()),
                        service = self.known.asked.get().map(|(it, _)| tracing::field::display(it.label())),
                        task = self.task().map(tracing::field::display),
                        code,
                        microseconds,
                        detail,
                        $words
                    );
                }
            };
        }
        match level {
            Level::WARN => line!(Level::WARN, "failed"),
            Level::DEBUG => line!(Level::DEBUG, "answered"),
            _ if code.is_some() => line!(Level::INFO, "refused"),
            _ => line!(Level::INFO, "answered"),
        }
    }

    fn path(&self) -> &str {
        let path = self.uri.path();
        path.get(..LONGEST_PATH).unwrap_or(path)
    }

    /// The task that was made, or that the path names where the route has a task.
    fn task(&self) -> Option<TaskName<'_>> {
        if let Some(made) = self.made {
            return Some(TaskName::Made(made));
        }
        let place = self.route.split('/').position(|part| part == "{task}")?;
        let name = self.uri.path().split('/').nth(place)?;
        Some(TaskName::Named(name.get(..LONGEST_PATH).unwrap_or(name)))
    }
}

/// A task, by its id or by what a client calls it.
enum TaskName<'n> {
    Made(TaskId),
    Named(&'n str),
}

impl fmt::Display for TaskName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made(id) => id.fmt(f),
            Self::Named(name) => name.fmt(f),
        }
    }
}
