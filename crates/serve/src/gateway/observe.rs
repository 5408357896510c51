//! Middleware around every request: assigns its id, writes its log line, counts it in the metrics,
//! and renders the body of its error.
//!
//! Invariant: keys, queries and bodies are never logged.

use std::convert::Infallible;
use std::fmt;
use std::future::{poll_fn, ready};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread::panicking;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::response::{IntoResponse as _, Response};
use tower::Layer;
use tracing::{Instrument as _, Level};

use super::Gateway;
use super::connections::Connected;
use super::error::GatewayError;
use super::in_flight::InFlightGuard;
use super::metrics::GatewayMetrics;
use super::peer;
use super::request_id::{REQUEST_ID, X_REQUEST_ID};
use crate::account::AccountId;
use crate::service::Service;
use crate::service::meter::{ABANDONED, AnswerOutcome, ServiceOperation};
use crate::task::TaskId;

/// Path prefix of the chat adapters.
pub(super) const ADAPTERS_PREFIX: &str = "/api/adapters/";

/// Maximum length of a logged path, in bytes.
const MAX_LOGGED_PATH_BYTES: usize = 512;

/// Facts about a request that become known while it is answered, stored as an extension of the
/// request.
#[derive(Debug, Default)]
pub(super) struct RequestFacts {
    /// Id of the request.
    pub(super) id: Option<HeaderValue>,
    /// The owner of the key, once the request is authenticated.
    pub(super) caller: OnceLock<KeyOwner>,
    /// Its slot among the key's requests in flight, once the request is authenticated.
    pub(super) place: OnceLock<InFlightGuard>,
    /// The service and operation, once the request is authorized.
    pub(super) asked: OnceLock<(Arc<Service>, ServiceOperation)>,
}

/// The owner of a request's key.
#[derive(Debug)]
pub(super) struct KeyOwner {
    pub(super) id: AccountId,
    pub(super) account: String,
    /// Name of the key.
    pub(super) key: String,
}

/// The task that a request created, stored as an extension of the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct CreatedTask(pub(super) TaskId);

/// The attached instance that answered, stored as an extension of the response.
#[derive(Debug, Clone)]
pub(super) struct AnsweredBy(pub(super) String);

/// The header that names it.
pub(super) const WORKER: HeaderName = HeaderName::from_static("x-worker");

/// The log line of a request; it is written when the value is dropped.
struct LogLine {
    gateway: Arc<Gateway>,
    id: HeaderValue,
    method: Method,
    route: Option<MatchedPath>,
    uri: Uri,
    peer: Option<IpAddr>,
    /// Address of the proxy that forwarded the client's address.
    via: Option<IpAddr>,
    known: Arc<RequestFacts>,
    started: Instant,
    answer: Option<RequestOutcome>,
}

/// The outcome of a request.
#[derive(Default)]
struct RequestOutcome {
    status: u16,
    made: Option<TaskId>,
    worker: Option<String>,
    code: Option<String>,
    detail: Option<String>,
}

/// The layer that observes every request.
#[derive(Clone)]
pub(super) struct ObserveLayer(pub(super) Arc<Gateway>);

/// The observed inner service.
#[derive(Clone)]
pub(super) struct ObservedService<S> {
    gateway: Arc<Gateway>,
    inner: S,
}

impl<S> Layer<S> for ObserveLayer {
    type Service = ObservedService<S>;

    fn layer(&self, inner: S) -> ObservedService<S> {
        ObservedService {
            gateway: Arc::clone(&self.0),
            inner,
        }
    }
}

/// Written by hand: a function as a layer would copy the request several times, and need twice the
/// memory.
impl<S> tower::Service<Request> for ObservedService<S>
where
    S: tower::Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let line = LogLine::begin(&self.gateway, &mut request);
        if let Some(error) = check_host(&request) {
            return Box::pin(ready(Ok(line.end(error.into_response()))));
        }
        // Free unless traces are sent: logs do not enable this target.
        let span = tracing::trace_span!(
            target: "pkgtool::trace",
            "request",
            request = line.id(),
            method = %line.method,
            route = line.route()
        );
        // The listener wakes the task of a connection at the cut. Streams of HTTP/2 have tasks of
        // their own.
        let has_own_task = request.version() == Version::HTTP_2;
        let answer = self.inner.call(request).instrument(span);
        Box::pin(async move {
            let stopping = &line.gateway.stopping;
            let answer = timed(&line.gateway.metrics, answer);
            let response = match stopping.unless_cut(answer, has_own_task).await {
                Some(answer) => answer?,
                None => GatewayError::stopping().into_response(),
            };
            Ok(line.end(response))
        })
    }
}

/// Measures how long each poll of a future occupies its thread.
async fn timed<T>(metrics: &GatewayMetrics, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let began = Instant::now();
        let polled = work.as_mut().poll(context);
        metrics.polled(began.elapsed());
        polled
    })
    .await
}

impl RequestFacts {
    /// Returns the request's id.
    pub(super) fn id(&self) -> &str {
        let id = self.id.as_ref().and_then(|id| id.to_str().ok());
        id.unwrap_or_default()
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let answer = self.answer.take().unwrap_or_else(|| RequestOutcome {
            status: if panicking() { 500 } else { ABANDONED },
            detail: panicking().then(|| "the handler panicked".to_owned()),
            ..RequestOutcome::default()
        });
        self.count(answer.status, took);
        self.log(&answer, took);
    }
}

impl LogLine {
    /// Starts the log line of a request with the facts of its head.
    fn begin(gateway: &Arc<Gateway>, request: &mut Request) -> Self {
        let started = Instant::now();
        gateway.metrics.request_started();
        let id = gateway.request_ids.of(request.headers());
        let known = Arc::new(RequestFacts {
            id: Some(id.clone()),
            ..RequestFacts::default()
        });
        let extensions = request.extensions_mut();
        extensions.insert(Arc::clone(&known));
        let route = extensions.get::<MatchedPath>().cloned();
        let connected = request.extensions().get::<Arc<Connected>>();
        let connected = connected.map(|connected| connected.peer.ip());
        let client = connected.map(|connected| {
            let settings = gateway.current();
            peer::client(connected, request.headers(), &settings.trusted_proxies)
        });
        Self {
            id,
            method: request.method().clone(),
            route,
            uri: request.uri().clone(),
            peer: client,
            via: connected.filter(|connected| client != Some(connected.to_canonical())),
            known,
            started,
            answer: None,
            gateway: Arc::clone(gateway),
        }
    }

    /// Completes the response and logs the request.
    fn end(mut self, mut response: Response) -> Response {
        let error = response.extensions_mut().remove::<GatewayError>();
        let made = response.extensions_mut().remove::<CreatedTask>();
        let worker = response.extensions_mut().remove::<AnsweredBy>();
        let mut answer = RequestOutcome {
            made: made.map(|made| made.0),
            worker: worker.map(|worker| worker.0),
            ..RequestOutcome::default()
        };
        if let Some(mut error) = error {
            answer.detail = error.take_detail();
            answer.worker = error.worker().map(str::to_owned);
            answer.code = Some(error.code.clone());
            if self.uri.path().starts_with(ADAPTERS_PREFIX) {
                error = error.for_adapter();
            }
            response = error.render(self.id());
        }
        answer.status = response.status().as_u16();
        let worker = answer.worker.as_deref().map(HeaderValue::from_str);
        if let Some(Ok(worker)) = worker {
            response.headers_mut().insert(WORKER, worker);
        }
        self.answer = Some(answer);
        if self.known.place.get().is_some() {
            // Keeps the slot until the body is sent: streams outlast their head.
            response.extensions_mut().insert(Arc::clone(&self.known));
        }
        if self.uri.path().starts_with(ADAPTERS_PREFIX) {
            response.headers_mut().insert(X_REQUEST_ID, self.id.clone());
        }
        response.headers_mut().insert(REQUEST_ID, self.id.clone());
        response
    }

    fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    fn route(&self) -> &str {
        self.route.as_ref().map_or("unmatched", MatchedPath::as_str)
    }

    fn count(&self, status: u16, took: Duration) {
        let metrics = &self.gateway.metrics;
        metrics.request_ended(&self.method, self.route(), status, took);
        if let (Some((service, operation)), Some(whose)) =
            (self.known.asked.get(), self.known.caller.get())
        {
            let outcome = AnswerOutcome::of_status(status);
            let account = (whose.id, whose.account.as_str());
            service.meter.count(account, *operation, outcome, took);
        }
    }

    fn log(&self, answer: &RequestOutcome, took: Duration) {
        let status = answer.status;
        // A disabled level costs nothing more.
        macro_rules! line {
            ($level:expr, $words:literal) => {
                if tracing::enabled!($level) {
                    let (id, method, route) = (self.id(), &self.method, self.route());
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
                        worker = answer.worker.as_deref(),
                        code = answer.code.as_deref(),
                        microseconds,
                        detail = answer.detail.as_deref(),
                        $words
                    );
                }
            };
        }
        if status == ABANDONED {
            line!(Level::INFO, "client disconnected");
        } else if answer.detail.is_some() {
            line!(Level::WARN, "failed");
        } else if answer.code.is_some() {
            line!(Level::INFO, "refused");
        } else if self.method == Method::GET {
            // Clients that wait for a task poll again and again.
            line!(Level::DEBUG, "answered");
        } else {
            line!(Level::INFO, "answered");
        }
    }

    fn path(&self) -> &str {
        let path = self.uri.path();
        path.get(..MAX_LOGGED_PATH_BYTES).unwrap_or(path)
    }

    /// Returns the created task, or the task in the path if the route has one.
    fn task(&self, made: Option<TaskId>) -> Option<TaskName<'_>> {
        if let Some(made) = made {
            return Some(TaskName::Made(made));
        }
        let place = self.route().split('/').position(|part| part == "{task}")?;
        let name = self.uri.path().split('/').nth(place)?;
        Some(TaskName::Named(
            name.get(..MAX_LOGGED_PATH_BYTES).unwrap_or(name),
        ))
    }
}

/// A task, by its id or by the text in the path.
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

/// Returns an error unless the request has exactly one `Host`, as HTTP/1.1 requires.
fn check_host(request: &Request) -> Option<GatewayError> {
    if request.version() != Version::HTTP_11 {
        return None;
    }
    let hosts = request.headers().get_all(header::HOST).iter().count();
    (hosts != 1).then(|| {
        let message = format!("invalid `Host`: expected exactly one field, got {hosts}");
        GatewayError::bad_request(message).with("place", "Host")
    })
}
