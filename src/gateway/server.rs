//! The listeners: connections with limits on their number, their heads and their time, and a graceful
//! stop.
//!
//! Invariant: a slow or silent client holds its own connection only, and not for ever.

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
use super::connections::{Answering, Connected, Connections, Open};
use super::error::Error;
use super::observe::Known;
use super::peer::Audience;
use super::request_id::REQUEST_ID;
use super::settings::Settings;
use super::stopping::{Deadline, Stage};
use super::tls::{HTTP2, Tls};
use super::unread::lend;
use super::wire::{Exchange, Instead, Refused, UnderWay, Wire};
use super::{Gateway, routes};

/// Pause after a connection could not be accepted: most likely there are too many open files.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

/// How often an address is asked for that is in use, and the pause between: a server before this one that
/// was killed while it started a worker leaves its sockets a moment later.
const BIND_TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

/// Connections beside the limit, for requests that ask how the server is, and how long one may last.
const PROBES: usize = 32;
const PROBE_TIME: Duration = Duration::from_secs(5);

/// How long a server that stops accepts connections and waits for the next request of those that are open:
/// their clients learn from an answer that the connection closes.
const LAST_REQUESTS: Duration = Duration::from_millis(250);

/// How long connections that have begun may take to complete, when no others can begin.
const LAST_HANDSHAKES: Duration = Duration::from_millis(250);

/// How long connections that were accepted last, or are idle, have to close by themselves.
const LAST_HEADS: Duration = Duration::from_secs(1);

/// Requests of one HTTP/2 connection that may be under way.
const HTTP2_STREAMS: u32 = 128;

/// A listener that is bound.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    for_operators: bool,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address can't be had.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
}

impl Bound {
    /// Binds an address. Nothing is accepted yet.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let fault = |error| ServeError::Bind { address, error };
        let mut tries = 1;
        let listener = loop {
            match TcpListener::bind(address).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < BIND_TRIES => {
                    tries += 1;
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
                bound => break bound.map_err(fault)?,
            }
        };
        let address = listener.local_addr().map_err(fault)?;
        Ok(Self {
            listener,
            address,
            for_operators: false,
        })
    }

    /// The same for operators: health, metrics, administration, and nothing else.
    #[must_use]
    pub fn for_operators(mut self) -> Self {
        self.for_operators = true;
        self
    }

    /// The address, with the port that was given for port 0.
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

    /// Serves until `stop` gives a deadline, then accepts no more and lets open requests end. What is
    /// left when it is time to cut is answered with an error; nothing is answered after this returned.
    pub async fn serve(
        self,
        gateway: Arc<Gateway>,
        tls: Option<Tls>,
        stop: impl Future<Output = Deadline>,
    ) {
        let settings = &gateway.settings;
        let router = if self.for_operators {
            routes::for_operators(Arc::clone(&gateway))
        } else {
            routes::router(Arc::clone(&gateway))
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
            instead: instead(Arc::clone(&gateway)),
            probes: Arc::new(Semaphore::new(PROBES)),
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
                    tokio::time::sleep(AFTER_A_FAILURE).await;
                }
            }
        };
        serving.end(self.listener, deadline).await;
    }
}

/// What connections are served with.
struct Serving {
    router: Router,
    /// The same for clients that take compressed answers: others need not pay for it.
    compressing: Router,
    audience: Audience,
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    graceful: GracefulShutdown,
    tls: Option<TlsAcceptor>,
    handshake: Duration,
    connections: Arc<Connections>,
    instead: Instead,
    gateway: Arc<Gateway>,
    /// Places of connections beside the limit.
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
                    let open = Arc::new(self.connections.beside());
                    self.spawn(stream, peer, open, Some(place));
                }
                Err(_) if self.tls.is_none() => {
                    let answer = (self.instead)(Refused::NoConnection);
                    // It fits what the system buffers; a client that is gone needs none.
                    let _ = stream.try_write(&answer);
                }
                Err(_) => {}
            },
        }
    }

    /// Serves a connection. One that has a place for probes is beside the limit: it tells how the server is,
    /// and nothing else.
    fn spawn(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        open: Arc<Open>,
        probe: Option<OwnedSemaphorePermit>,
    ) {
        // Small answers must not wait for more; if it can't be set, they do.
        let _ = stream.set_nodelay(true);
        let exchange = Arc::new(Exchange::default());
        let (router, compressing) = (self.router.clone(), self.compressing.clone());
        let counted = self.gateway.metrics.connected();
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
                let known = answer.extensions_mut().remove::<Arc<Known>>();
                Ok::<_, Infallible>(answer.map(|body| Guarded {
                    body,
                    _guards: (guards, known),
                }))
            }
        });
        // Without TLS there is HTTP/1 only: looking for another's first bytes has no time limit.
        let http1 = self.http1.clone();
        let http2 = self.http2.clone();
        let watcher = self.graceful.watcher();
        let tls = self.tls.clone();
        let handshake = self.handshake;
        let instead = Arc::clone(&self.instead);
        let serve = async move {
            let Some(tls) = tls else {
                let io = TokioIo::new(Wire::new(stream, exchange, instead));
                let connection = http1.serve_connection(io, service);
                return watcher.watch(connection.into_owned()).await;
            };
            let stream = tokio::time::timeout(handshake, tls.accept(stream)).await??;
            if stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
                let connection = http2.serve_connection(TokioIo::new(stream), service);
                return watcher.watch(connection.into_owned()).await;
            }
            let io = TokioIo::new(Wire::new(stream, exchange, instead));
            let connection = http1.serve_connection(io, service);
            watcher.watch(connection.into_owned()).await
        };
        let time = probe.as_ref().map(|_| PROBE_TIME);
        tokio::spawn(async move {
            tokio::select! {
                // Errors of a connection are its client's: it went away, or spoke no HTTP.
                ended = serve => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended badly");
                },
                () = open.closed() => {}
                () = after(time) => {}
            }
            drop((counted, probe));
        });
    }

    /// Accepts what comes for a moment, and at the end everything that the system has accepted: a closed
    /// listener resets those.
    async fn accept_last(&self, listener: TcpListener, until: Instant) {
        self.accept_until(&listener, until).await;
        if closing::refuse_new(&listener).is_ok() {
            let begun = until + LAST_HANDSHAKES;
            self.accept_until(&listener, begun).await;
        }
        let Ok(listener) = listener.into_std() else {
            return;
        };
        // It does not block: with nobody left it fails.
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
        stopping.set(Stage::Draining);
        let now = Instant::now();
        self.accept_last(listener, deadline.cut.min(now + LAST_REQUESTS))
            .await;
        let ended = self.graceful.shutdown();
        tokio::pin!(ended);
        let heads = deadline.cut.min(Instant::now() + LAST_HEADS);
        // Most close by themselves, and answer what arrived; the rest sent no whole head.
        if tokio::time::timeout_at(heads, &mut ended).await.is_err() {
            self.connections.close_idle();
            if tokio::time::timeout_at(deadline.cut, &mut ended)
                .await
                .is_err()
            {
                stopping.set(Stage::CutOff);
                self.connections.poke();
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

/// Says in our own words what the HTTP library, or the listener, has to say.
fn instead(gateway: Arc<Gateway>) -> Instead {
    Arc::new(move |refused| {
        let error = match refused {
            Refused::ByLibrary(status) => Error::no_request(status),
            Refused::Ambiguous => Error::two_lengths(),
            Refused::NoConnection => Error::too_many_connections(),
            Refused::Stopping => Error::stopping(),
        };
        let status = error.status;
        let id = gateway.request_ids.of(&HeaderMap::new());
        let request = id.to_str().unwrap_or_default();
        let (status, code) = (status.as_u16(), error.code.clone());
        tracing::debug!(request, status, code, "refused");
        gateway.metrics.unread(status);
        error.raw(request)
    })
}

/// Answers a request, and says in the answer whether its connection stays open.
async fn answer(
    gateway: &Gateway,
    exchange: &Exchange,
    router: Router,
    request: Request<Incoming>,
    is_probe: bool,
) -> Result<Response<Body>, Infallible> {
    let is_http1 = request.version() < Version::HTTP_2;
    let stays = stays_open(&request);
    let (request, unread) = lend(request);
    let mut answer = if is_probe && !routes::tells_health(request.uri().path()) {
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

/// Whether a client may send another request after this one, as far as the request says.
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

/// The answer to a request for which there is no connection.
fn refused(gateway: &Gateway, headers: &HeaderMap) -> Response<Body> {
    let id = gateway.request_ids.of(headers);
    let error = Error::too_many_connections();
    gateway.metrics.unread(error.status.as_u16());
    let mut answer = error.render(id.to_str().unwrap_or_default());
    answer.headers_mut().insert(REQUEST_ID, id);
    answer
}

/// Resolves after a time, if there is one.
async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// A response's body. What counts as being answered ends with it.
struct Guarded {
    body: Body,
    _guards: ((Answering, UnderWay), Option<Arc<Known>>),
}

impl HttpBody for Guarded {
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

fn builder(settings: &Settings) -> auto::Builder<TokioExecutor> {
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
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(settings.timeouts.header())
        .keep_alive_timeout(settings.timeouts.header());
    builder
}
