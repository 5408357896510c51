//! What surrounds every request: its id, its line in the log, its place in the metrics, the body of
//! its error.
//!
//! Invariant: no key, no query and no body is ever logged.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::thread::panicking;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tracing::{Instrument as _, Level};

use super::Gateway;
use super::connections::Connected;
use super::error::Error;
use super::peer;
use super::request_id::REQUEST_ID;
use super::stopping::Stage;
use crate::account::AccountId;
use crate::service::Service;
use crate::service::meter::{ABANDONED, Operation, Outcome};
use crate::task::TaskId;

/// What the paths of the chat adapters begin with.
pub(super) const ADAPTERS: &str = "/api/adapters/";

/// Longest path that is logged, in bytes.
const LONGEST_PATH: usize = 512;

/// What becomes known of a request while it is answered.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The request's id.
    pub(super) id: Option<HeaderValue>,
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

/// A request, and what is known of its answer.
struct Line<'l> {
    gateway: &'l Gateway,
    id: &'l str,
    method: &'l Method,
    route: &'l str,
    uri: &'l Uri,
    peer: Option<IpAddr>,
    /// The proxy that said who the peer is.
    via: Option<IpAddr>,
    known: &'l Known,
    started: Instant,
    answer: Option<Answered>,
}

/// What came of a request.
#[derive(Default)]
struct Answered {
    status: u16,
    made: Option<TaskId>,
    code: Option<String>,
    detail: Option<String>,
}

/// Answers a request, and says so.
pub(super) async fn observe(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = gateway.request_ids.of(request.headers());
    let known = Arc::new(Known {
        id: Some(id.clone()),
        ..Known::default()
    });
    request.extensions_mut().insert(Arc::clone(&known));
    let method = request.method().clone();
    let uri = request.uri().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let connected = request.extensions().get::<Arc<Connected>>();
    let connected = connected.map(|connected| connected.peer.ip());
    let client = connected.map(|connected| {
        let settings = gateway.current();
        peer::client(connected, request.headers(), &settings.trusted_proxies)
    });
    let _in_flight = gateway.metrics.enter();
    let text = id.to_str().unwrap_or_default();
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    // Told when it is dropped: also of a request whose client did not wait.
    let mut line = Line {
        gateway: &gateway,
        id: text,
        method: &method,
        route,
        uri: &uri,
        peer: client,
        via: connected.filter(|connected| client != Some(connected.to_canonical())),
        known: &known,
        started,
        answer: None,
    };
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
    let made = response.extensions_mut().remove::<Made>();
    let mut answer = Answered {
        made: made.map(|made| made.0),
        ..Answered::default()
    };
    if let Some(mut error) = error {
        answer.detail = error.take_detail();
        answer.code = Some(error.code.clone());
        if uri.path().starts_with(ADAPTERS) {
            error = error.for_adapter();
        }
        response = error.render(text);
    }
    answer.status = response.status().as_u16();
    line.answer = Some(answer);
    drop(line);
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

impl Known {
    /// The request's id.
    pub(super) fn id(&self) -> &str {
        let id = self.id.as_ref().and_then(|id| id.to_str().ok());
        id.unwrap_or_default()
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let answer = self.answer.take().unwrap_or_else(|| Answered {
            status: if panicking() { 500 } else { ABANDONED },
            detail: panicking().then(|| "its handler panicked".to_owned()),
            ..Answered::default()
        });
        self.count(answer.status, took);
        self.log(&answer, took);
    }
}

impl Line<'_> {
    fn count(&self, status: u16, took: Duration) {
        let metrics = &self.gateway.metrics;
        metrics.answered(self.method, self.route, status, took);
        if let (Some((service, operation)), Some(whose)) =
            (self.known.asked.get(), self.known.caller.get())
        {
            let outcome = Outcome::of_status(status);
            let account = (whose.id, whose.account.as_str());
            service.meter.count(account, *operation, outcome, took);
        }
    }

    fn log(&self, answer: &Answered, took: Duration) {
        let status = answer.status;
        // A line that nobody wants costs nothing more.
        macro_rules! line {
            ($level:expr, $words:literal) => {
                if tracing::enabled!($level) {
                    let Self {
                        id, method, route, ..
                    } = *self;
                    let whose = self.known.caller.get();
                    let asked = self.known.asked.get();
                    let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
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
                        service = asked.map(|(service, _)| tracing::field::display(service.label())),
                        task = self.task(answer.made).map(tracing::field::display),
                        code = answer.code.as_deref(),
                        microseconds,
                        detail = answer.detail.as_deref(),
                        $words
                    );
                }
            };
        }
        if status == ABANDONED {
            line!(Level::INFO, "not waited for");
        } else if answer.detail.is_some() {
            line!(Level::WARN, "failed");
        } else if answer.code.is_some() {
            line!(Level::INFO, "refused");
        } else if *self.method == Method::GET {
            // Who waits for a task asks again and again.
            line!(Level::DEBUG, "answered");
        } else {
            line!(Level::INFO, "answered");
        }
    }

    fn path(&self) -> &str {
        let path = self.uri.path();
        path.get(..LONGEST_PATH).unwrap_or(path)
    }

    /// The task that was made, or that the path names where the route has a task.
    fn task(&self, made: Option<TaskId>) -> Option<TaskName<'_>> {
        if let Some(made) = made {
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
