//! The listener for workers, which attach by the gate protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::server::{ACCEPT_RETRY_DELAY, ServeError, listen};
use super::settings::WorkersSettings;
use super::tls::ServerCertificate;
use crate::worker::Workers;
use pkgtool_gate::host::{self, GateSocket, HostSettings};

/// Maximum time for the handshake of TLS.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Number of accepted connections that wait to be served.
const WAITING_CONNECTIONS: usize = 64;
/// Maximum number of connections that have shown no token.
const MAX_STRANGERS: usize = 64;

/// A bound listener for workers.
#[derive(Debug)]
pub struct BoundGate {
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundGate {
    /// Binds an address. Connections are accepted by [`Self::serve`].
    pub async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let (listener, address) = listen(address).await?;
        Ok(Self { listener, address })
    }

    /// Returns the bound address, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves workers until `stop` becomes true, then lets their requests end.
    pub async fn serve(
        self,
        workers: Arc<Workers>,
        (settings, grace): (WorkersSettings, Duration),
        tls: Option<ServerCertificate>,
        stop: watch::Receiver<bool>,
    ) {
        let (accepted, incoming) = mpsc::channel(WAITING_CONNECTIONS);
        let accepting = tokio::spawn(accept(self.listener, settings.connections, tls, accepted));
        let incoming = stream::unfold(incoming, |mut incoming| async {
            let socket = incoming.recv().await?;
            Some((Ok(socket), incoming))
        });
        let host = HostSettings {
            heartbeat: settings.heartbeat(),
            in_flight: settings.in_flight,
            strangers: MAX_STRANGERS,
            grace,
        };
        if let Err(error) = host::serve(workers, host, incoming, stop).await {
            tracing::error!(%error, "the listener for workers failed");
        }
        accepting.abort();
    }
}

/// Accepts connections. One beyond the limit is closed at once.
async fn accept(
    listener: TcpListener,
    most: usize,
    tls: Option<ServerCertificate>,
    accepted: mpsc::Sender<GateSocket>,
) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "a worker's connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(%peer, limit = most, "too many connections of workers");
            continue;
        };
        let (tls, accepted) = (tls.clone(), accepted.clone());
        tokio::spawn(async move {
            if let Some(socket) = opened((stream, peer), tls, place).await {
                // The server has ended.
                let _ = accepted.send(socket).await;
            }
        });
    }
}

async fn opened(
    (stream, peer): (TcpStream, SocketAddr),
    tls: Option<ServerCertificate>,
    place: OwnedSemaphorePermit,
) -> Option<GateSocket> {
    // A failure only delays small messages.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return Some(GateSocket::new(stream, peer, place));
    };
    let handshake = tokio::time::timeout(HANDSHAKE_TIME, tls.acceptor.accept(stream)).await;
    match handshake {
        Ok(Ok(stream)) => Some(GateSocket::new(stream, peer, place)),
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "a worker's connection failed");
            None
        }
        Err(_) => None,
    }
}
