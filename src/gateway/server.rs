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
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::connections::{Answering, Connected, Connections, Open};
use super::error::Error;
use super::peer::Audience;
use super::settings::Settings;
use super::stopping::{Deadline, Stage};
use super::tls::{HTTP2, Tls};
use super::wire::{Exchange, Instead, UnderWay, Wire};
use super::{Gateway, routes};

/// Pause after a connection could not be accepted: most likely there are too many open files.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

/// How often an address is asked for that is in use, and the pause between: a server before this one that
/// was killed while it started a worker leaves its sockets a moment later.
const BIND_TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

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

    /// Whether only operators and this machine can reach it: there metrics name services and accounts.
    pub fn is_trusted(&self) -> bool {
        self.audience() == Audience::Trusted
    }

    fn audience(&self) -> Audience {
        if self.for_operators || self.address.ip().is_loopback() {
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
        drop(self.listener);
        serving.end(deadline).await;
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
}

impl Serving {
    fn accepted(&self, stream: TcpStream, peer: SocketAddr) {
        let address = peer.ip().to_canonical();
        let admission = self.connections.admit(address);
        if let Some(limit) = admission.limit {
            self.gateway.limit_met(limit, &address);
        }
        match admission.open {
            Some(open) => self.spawn(stream, peer, Arc::new(open)),
            None if self.tls.is_none() => {
                let answer = (self.instead)(StatusCode::SERVICE_UNAVAILABLE);
                // It fits what the system buffers; a client that is gone needs none.
                let _ = stream.try_write(&answer);
            }
            None => {}
        }
    }

    fn spawn(&self, stream: TcpStream, peer: SocketAddr, open: Arc<Open>) {
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
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let takes_compressed = request.headers().contains_key(header::ACCEPT_ENCODING);
            let router = if takes_compressed {
                compressing.clone()
            } else {
                router.clone()
            };
            let guards = (connected.open.answering(), under_way.begin());
            request.extensions_mut().insert(Arc::clone(&connected));
            async move {
                let answer: Result<Response<Body>, Infallible> =
                    router.oneshot(request.map(Body::new)).await;
                answer.map(|answer| {
                    answer.map(|body| Guarded {
                        body,
                        _guards: guards,
                    })
                })
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
        tokio::spawn(async move {
            tokio::select! {
                // Errors of a connection are its client's: it went away, or spoke no HTTP.
                ended = serve => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended badly");
                },
                () = open.closed() => {}
            }
            drop(counted);
        });
    }

    /// Lets requests end, then cuts them off.
    async fn end(self, deadline: Deadline) {
        let stopping = &self.gateway.stopping;
        stopping.set(Stage::Draining);
        self.connections.close_idle();
        let ended = self.graceful.shutdown();
        tokio::pin!(ended);
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
    Arc::new(move |status| {
        let error = if status == StatusCode::SERVICE_UNAVAILABLE {
            Error::too_many_connections()
        } else {
            Error::no_request(status)
        };
        let id = gateway.request_ids.of(&HeaderMap::new());
        let request = id.to_str().unwrap_or_default();
        let (status, code) = (status.as_u16(), error.code.clone());
        tracing::debug!(request, status, code, "refused");
        gateway.metrics.unread(status);
        error.raw(request)
    })
}

/// A response's body. What counts as being answered ends with it.
struct Guarded {
    body: Body,
    _guards: (Answering, UnderWay),
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
