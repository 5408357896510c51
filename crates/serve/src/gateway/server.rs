//! The listeners: accept connections within limits, serve them, and stop gracefully.
//!
//! Connections are limited in number, size of the request head, and time.
//!
//! Invariant: a slow or silent client occupies only its own connection, and only for a limited
//! time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, Response, Version, header};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::closing;
use super::connections::{Connected, Connections, OpenConnection, RequestGuard};
use super::error::GatewayError;
use super::observe::RequestFacts;
use super::peer::Audience;
use super::request_id::REQUEST_ID;
use super::settings::GatewaySettings;
use super::stopping::{Deadline, ShutdownStage};
use super::tls::{HTTP2, ServerCertificate};
use super::unread::lend;
use super::wire::{ErrorAnswer, ExchangeGuard, ExchangeState, HttpWire, RejectReason};
use super::{Gateway, routes, sampler};

/// Pause after a connection could not be accepted, most likely because too many files are open.
pub(super) const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Number of attempts to bind an address in use, and the pause between them. A previous server that
/// was killed while it started a worker releases its sockets a moment later.
const BIND_ATTEMPTS: u32 = 5;
const BIND_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Number of extra connections for health checks beyond the limit, and the maximum duration of
/// each.
const MAX_PROBE_CONNECTIONS: usize = 32;
const MAX_PROBE_TIME: Duration = Duration::from_secs(5);

/// How long a stopping server accepts connections and waits for the next request on open ones.
/// Their clients learn from an answer that the connection closes.
const LAST_REQUESTS_TIME: Duration = Duration::from_millis(250);

/// Time for connections that are being established to complete, after new ones are refused.
const LAST_HANDSHAKES_TIME: Duration = Duration::from_millis(250);

/// Time for idle and newly accepted connections to close by themselves.
const LAST_HEADS_TIME: Duration = Duration::from_secs(1);

/// Maximum number of concurrent requests on an HTTP/2 connection.
const MAX_HTTP2_STREAMS: u32 = 128;

/// A bound listener.
#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    address: SocketAddr,
    for_operators: bool,
}

/// The server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
}

/// Binds an address. Returns it with the actual port if port 0 was requested.
pub(super) async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let fault = |error| ServeError::Bind { address, error };
    let mut tries = 1;
    let listener = loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < BIND_ATTEMPTS => {
                tries += 1;
                tokio::time::sleep(BIND_RETRY_DELAY).await;
            }
            bound => break bound.map_err(fault)?,
        }
    };
    let address = listener.local_addr().map_err(fault)?;
    Ok((listener, address))
}

impl BoundListener {
    /// Binds an address. Connections are accepted by [`Self::serve`].
    pub async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let (listener, address) = listen(address).await?;
        Ok(Self {
            listener,
            address,
            for_operators: false,
        })
    }

    /// Makes this the operators' listener: it serves only health, metrics and administration.
    #[must_use]
    pub fn for_operators(mut self) -> Self {
        self.for_operators = true;
        self
    }

    /// Returns the bound address, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn audience(&self) -> Audience {
        if self.for_operators {
            Audience::Trusted
        } else {
            Audience::Anybody
        }
    }

    /// Serves until `stop` resolves to a deadline, then stops accepting and lets open requests end.
    /// Requests that are left at the cut are answered with an error. All answers are sent before
    /// this returns.
    pub async fn serve(
        self,
        gateway: Arc<Gateway>,
        tls: Option<ServerCertificate>,
        stop: impl Future<Output = Deadline>,
    ) {
        let settings = &gateway.settings;
        if settings.console.enabled && settings.role.answers() && !self.for_operators {
            sampler::start(&gateway);
        }
        let router = if self.for_operators {
            routes::for_operators(Arc::clone(&gateway))
        } else if settings.role.answers() {
            routes::router(Arc::clone(&gateway))
        } else {
            routes::for_probes(Arc::clone(&gateway))
        };
        let serving = Serving {
            compressing: routes::compressing(router.clone()),
            router,
            audience: self.audience(),
            http1: builder(settings).http1_only(),
            http2: builder(settings).http2_only(),
            graceful: GracefulShutdown::new(),
            tls: tls.map(|tls| tls.acceptor),
            handshake: settings.timeouts.header(),
            connections: Connections::new(&settings.limits),
            instead: error_answer(Arc::clone(&gateway)),
            probes: Arc::new(Semaphore::new(MAX_PROBE_CONNECTIONS)),
            gateway: Arc::clone(&gateway),
        };
        tokio::pin!(stop);
        let deadline = loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                deadline = &mut stop => break deadline,
            };
            match accepted {
                Ok((stream, peer)) => serving.accepted(stream, peer),
                Err(error) => {
                    gateway.limit_met("accept", &error);
                    serving.connections.close_oldest();
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        };
        serving.end(self.listener, deadline).await;
    }
}

/// Everything that a connection needs.
struct Serving {
    router: Router,
    /// The router for clients that accept compressed answers. Other clients avoid its cost.
    compressing: Router,
    audience: Audience,
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    graceful: GracefulShutdown,
    tls: Option<TlsAcceptor>,
    handshake: Duration,
    connections: Arc<Connections>,
    instead: ErrorAnswer,
    gateway: Arc<Gateway>,
    /// Permits for extra connections beyond the limit.
    probes: Arc<Semaphore>,
}

impl Serving {
    fn accepted(&self, stream: TcpStream, peer: SocketAddr) {
        let address = peer.ip().to_canonical();
        let admission = self.connections.admit(address);
        if let Some(limit) = admission.limit {
            self.gateway.limit_met(limit, &address);
        }
        match admission.open {
            Some(open) => self.spawn(stream, peer, Arc::new(open), None),
            None => match Arc::clone(&self.probes).try_acquire_owned() {
                Ok(place) => {
                    let open = Arc::new(self.connections.uncounted());
                    self.spawn(stream, peer, open, Some(place));
                }
                Err(_) if self.tls.is_none() => {
                    let answer = (self.instead)(RejectReason::NoConnection);
                    // The answer fits the system's buffer. A client that is gone does not need it.
                    let _ = stream.try_write(&answer);
                }
                Err(_) => {}
            },
        }
    }

    /// Serves a connection. A connection with a `probe` permit is beyond the limit: it answers
    /// health checks only.
    fn spawn(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        open: Arc<OpenConnection>,
        probe: Option<OwnedSemaphorePermit>,
    ) {
        // Disables Nagle's algorithm, so that small answers leave at once. A failure only delays
        // them.
        let _ = stream.set_nodelay(true);
        let exchange = Arc::new(ExchangeState::default());
        let (router, compressing) = (self.router.clone(), self.compressing.clone());
        let counted = self.gateway.metrics.connection_opened();
        let under_way = Arc::clone(&exchange);
        let connected = Arc::new(Connected {
            peer,
            audience: self.audience,
            open: Arc::clone(&open),
        });
        let (is_probe, gateway) = (probe.is_some(), Arc::clone(&self.gateway));
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let takes_compressed = request.headers().contains_key(header::ACCEPT_ENCODING);
            let router = if takes_compressed {
                compressing.clone()
            } else {
                router.clone()
            };
            let guards = (connected.open.answering(), under_way.begin());
            request.extensions_mut().insert(Arc::clone(&connected));
            let (gateway, exchange) = (Arc::clone(&gateway), Arc::clone(&under_way));
            async move {
                let mut answer = answer(&gateway, &exchange, router, request, is_probe).await?;
                let known = answer.extensions_mut().remove::<Arc<RequestFacts>>();
                Ok::<_, Infallible>(answer.map(|body| GuardedBody {
                    body,
                    _guards: (guards, known),
                }))
            }
        });
        // Without TLS only HTTP/1 is spoken: detecting the protocol from the first bytes has no
        // timeout.
        let http1 = self.http1.clone();
        let http2 = self.http2.clone();
        let watcher = self.graceful.watcher();
        let tls = self.tls.clone();
        let handshake = self.handshake;
        let instead = Arc::clone(&self.instead);
        let serve = async move {
            let Some(tls) = tls else {
                let io = TokioIo::new(HttpWire::new(stream, exchange, instead));
                let connection = http1.serve_connection(io, service);
                return watcher.watch(connection.into_owned()).await;
            };
            let stream = tokio::time::timeout(handshake, tls.accept(stream)).await??;
            if stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
                let connection = http2.serve_connection(TokioIo::new(stream), service);
                return watcher.watch(connection.into_owned()).await;
            }
            let io = TokioIo::new(HttpWire::new(stream, exchange, instead));
            let connection = http1.serve_connection(io, service);
            watcher.watch(connection.into_owned()).await
        };
        let time = probe.as_ref().map(|_| MAX_PROBE_TIME);
        tokio::spawn(async move {
            tokio::select! {
                // Errors of a connection are caused by the client: it disconnected, or sent invalid
                // HTTP.
                ended = serve => if let Err(error) = ended {
                    tracing::debug!(%error, "connection failed");
                },
                () = open.closed() => {}
                () = after(time) => {}
            }
            drop((counted, probe));
        });
    }

    /// Accepts connections for a moment, then all that the system has already accepted: closing the
    /// listener would reset those.
    async fn accept_last(&self, listener: TcpListener, cut: Instant) {
        let until = cut.min(Instant::now() + LAST_REQUESTS_TIME);
        self.accept_until(&listener, until).await;
        if closing::refuse_new(&listener).is_ok() {
            // Requests that are cut off need the time behind the cut for their answers.
            let begun = cut.min(until + LAST_HANDSHAKES_TIME);
            self.accept_until(&listener, begun).await;
        }
        let Ok(listener) = listener.into_std() else {
            return;
        };
        // The listener is non-blocking: it fails when the queue is empty.
        while let Ok((stream, peer)) = listener.accept() {
            if stream.set_nonblocking(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(stream)
            {
                self.accepted(stream, peer);
            }
        }
    }

    async fn accept_until(&self, listener: &TcpListener, until: Instant) {
        while let Ok(Ok((stream, peer))) = tokio::time::timeout_at(until, listener.accept()).await {
            self.accepted(stream, peer);
        }
    }

    /// Lets requests end, then cuts them off.
    async fn end(self, listener: TcpListener, deadline: Deadline) {
        let gateway = Arc::clone(&self.gateway);
        let stopping = &gateway.stopping;
        stopping.set(ShutdownStage::Draining);
        self.accept_last(listener, deadline.cut).await;
        let ended = self.graceful.shutdown();
        tokio::pin!(ended);
        let heads = deadline.cut.min(Instant::now() + LAST_HEADS_TIME);
        // Most connections answer what arrived and close by themselves. The rest sent no complete
        // head.
        if tokio::time::timeout_at(heads, &mut ended).await.is_err() {
            self.connections.close_idle();
            if tokio::time::timeout_at(deadline.cut, &mut ended)
                .await
                .is_err()
            {
                stopping.set(ShutdownStage::CutOff);
                self.connections.wake_all();
                if tokio::time::timeout_at(deadline.end, &mut ended)
                    .await
                    .is_err()
                {
                    stopping.count_cut(self.connections.close_all());
                    ended.await;
                }
            }
        }
        let requests = stopping.cut();
        if requests > 0 {
            tracing::warn!(
                requests,
                "requests were cut off at the end of the grace period"
            );
        }
    }
}

/// Builds the gateway's error answers for requests that the HTTP library or the listener rejects.
fn error_answer(gateway: Arc<Gateway>) -> ErrorAnswer {
    Arc::new(move |refused| {
        let error = match refused {
            RejectReason::ByLibrary(status) => GatewayError::no_request(status),
            RejectReason::Ambiguous => GatewayError::two_lengths(),
            RejectReason::NoConnection => GatewayError::too_many_connections(),
            RejectReason::Stopping => GatewayError::stopping(),
        };
        let status = error.status;
        let id = gateway.request_ids.of(&HeaderMap::new());
        let request = id.to_str().unwrap_or_default();
        let (status, code) = (status.as_u16(), error.code.clone());
        tracing::debug!(request, status, code, "refused");
        gateway.metrics.unreadable_request(status);
        error.raw(request)
    })
}

/// Answers a request, and says in the answer whether its connection stays open.
async fn answer(
    gateway: &Gateway,
    exchange: &ExchangeState,
    router: Router,
    request: Request<Incoming>,
    is_probe: bool,
) -> Result<Response<Body>, Infallible> {
    let is_http1 = request.version() < Version::HTTP_2;
    let stays = stays_open(&request);
    let (request, unread) = lend(request);
    let mut answer = if is_probe && !routes::is_health_path(request.uri().path()) {
        refused(gateway, request.headers())
    } else {
        router.oneshot(request).await?
    };
    let is_read = match unread {
        Some(unread) => unread.finish().await,
        None => true,
    };
    let stays = stays && is_read && !is_probe && gateway.stopping.is_serving();
    if is_http1 && !stays {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(header::CONNECTION, close);
    }
    exchange.stays_open(stays);
    Ok(answer)
}

/// Returns `true` if the request's headers allow another request on its connection.
fn stays_open(request: &Request<Incoming>) -> bool {
    let has = |wanted: &str| {
        let values = request.headers().get_all(header::CONNECTION).iter();
        let options = values.filter_map(|value| value.to_str().ok());
        let mut options = options.flat_map(|value| value.split(','));
        options.any(|option| option.trim().eq_ignore_ascii_case(wanted))
    };
    match request.version() {
        Version::HTTP_11 => !has("close"),
        Version::HTTP_10 => has("keep-alive"),
        _ => true,
    }
}

/// Returns the error for a request on an extra connection that is not a health check.
fn refused(gateway: &Gateway, headers: &HeaderMap) -> Response<Body> {
    let id = gateway.request_ids.of(headers);
    let error = GatewayError::too_many_connections();
    gateway.metrics.unreadable_request(error.status.as_u16());
    let mut answer = error.render(id.to_str().unwrap_or_default());
    answer.headers_mut().insert(REQUEST_ID, id);
    answer
}

/// Resolves after a time; never resolves without one.
async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// A response's body. Its guards count the request as in flight until the body is dropped.
struct GuardedBody {
    body: Body,
    _guards: ((RequestGuard, ExchangeGuard), Option<Arc<RequestFacts>>),
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn builder(settings: &GatewaySettings) -> auto::Builder<TokioExecutor> {
    let limits = &settings.limits;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.timeouts.header())
        .max_buf_size(limits.header_bytes)
        .max_headers(limits.header_count)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(settings.timeouts.header())
        .keep_alive_timeout(settings.timeouts.header());
    builder
}
