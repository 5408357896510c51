//! The listeners: connections with limits on their number, their heads and their time, and a graceful
//! stop.
//!
//! Invariant: a slow or silent client holds its own connection only, and not for ever.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::peer::{Audience, Peer};
use super::settings::Settings;
use super::tls::{HTTP2, Tls};
use super::{Gateway, routes};

/// Pause after a connection could not be accepted: most likely there are too many open files.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

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
        let listener = TcpListener::bind(address).await.map_err(fault)?;
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

    /// Serves until `stop` is done, then accepts no more and gives open requests `grace` to end.
    pub async fn serve(
        self,
        gateway: Arc<Gateway>,
        tls: Option<Tls>,
        stop: impl Future<Output = ()>,
    ) {
        let settings = gateway.settings.clone();
        let connections = Connections {
            router: if self.for_operators {
                routes::for_operators(Arc::clone(&gateway))
            } else {
                routes::router(Arc::clone(&gateway))
            },
            gateway,
            audience: self.audience(),
            http1: builder(&settings).http1_only(),
            http2: builder(&settings).http2_only(),
            graceful: GracefulShutdown::new(),
            tls: tls.map(|tls| tls.acceptor),
            handshake: settings.timeouts.header(),
        };
        let room = Arc::new(Semaphore::new(settings.limits.connections));
        tokio::pin!(stop);
        loop {
            // Beyond the limit connections wait in the system's queue.
            let permit = tokio::select! {
                permit = Arc::clone(&room).acquire_owned() => permit,
                () = &mut stop => break,
            };
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, peer)) => connections.spawn(stream, Peer(peer), permit.ok()),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(AFTER_A_FAILURE).await;
                }
            }
        }
        drop(self.listener);
        let ended = connections.graceful.shutdown();
        if tokio::time::timeout(settings.timeouts.grace(), ended)
            .await
            .is_err()
        {
            tracing::warn!("requests were cut off at the end of the grace period");
        }
    }
}

struct Connections {
    router: Router,
    gateway: Arc<Gateway>,
    audience: Audience,
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    graceful: GracefulShutdown,
    tls: Option<TlsAcceptor>,
    handshake: Duration,
}

impl Connections {
    fn spawn(
        &self,
        stream: TcpStream,
        peer: Peer,
        permit: Option<tokio::sync::OwnedSemaphorePermit>,
    ) {
        // Small answers must not wait for more; if it can't be set, they do.
        let _ = stream.set_nodelay(true);
        let router = self.router.clone();
        let open = self.gateway.metrics.connected();
        let audience = self.audience;
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(audience);
            let router = router.clone();
            async move {
                let answer: Result<Response<Body>, Infallible> =
                    router.oneshot(request.map(Body::new)).await;
                answer
            }
        });
        // Without TLS there is HTTP/1 only: looking for another's first bytes has no time limit.
        let http1 = self.http1.clone();
        let http2 = self.http2.clone();
        let watcher = self.graceful.watcher();
        let tls = self.tls.clone();
        let handshake = self.handshake;
        tokio::spawn(async move {
            // Errors of a connection are its client's: it went away, or spoke no HTTP.
            let ended = match tls {
                None => {
                    let connection = http1.serve_connection(TokioIo::new(stream), service);
                    watcher.watch(connection.into_owned()).await
                }
                Some(tls) => match tokio::time::timeout(handshake, tls.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        let chosen = stream.get_ref().1.alpn_protocol();
                        let builder = if chosen == Some(HTTP2) { http2 } else { http1 };
                        let connection = builder.serve_connection(TokioIo::new(stream), service);
                        watcher.watch(connection.into_owned()).await
                    }
                    Ok(Err(error)) => Err(error.into()),
                    Err(late) => Err(late.into()),
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended badly");
            }
            drop((open, permit));
        });
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
