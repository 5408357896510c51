//! The server of a gate: one call for each instance.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::session::{self, OpenedSession};
use super::socket::GateSocket;
use super::strangers::{KnownCaller, StrangerLimit};
use super::{GateHost, HostSettings};
use crate::protocol::gate_server::{Gate, GateServer};
use crate::protocol::{
    ClientRequestProto, ClientResponseProto, ContentProto, ContentRequestProto, GateToServiceProto,
    HeartBeatProto, MAX_MESSAGE_BYTES, OK, ServiceToGateProto,
};

/// Number of messages that wait until an instance reads them.
const WAITING_MESSAGES: usize = 1024;
/// Maximum number of calls on one connection.
const MAX_CALLS: u32 = 64;
/// Bytes that a peer may send before they are read: on a call, and on a connection.
const WINDOWS: [u32; 2] = [1 << 20, 4 << 20];
/// Size of the pieces of a file, and the number of those that wait to be sent.
const PIECE_BYTES: usize = 256 << 10;
const WAITING_PIECES: usize = 4;
/// Interval between probes of connections.
const PROBE_INTERVAL: Duration = Duration::from_secs(20);

/// Serves instances until `stop` becomes true, and their calls in flight have ended.
pub async fn serve<H: GateHost>(
    host: Arc<H>,
    settings: HostSettings,
    incoming: impl Stream<Item = Result<GateSocket, io::Error>> + Send + 'static,
    mut stop: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let service = HostedGate {
        strangers: Arc::new(Semaphore::new(settings.strangers)),
        stop: stop.clone(),
        host,
        settings: Arc::new(settings),
    };
    let service = GateServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    Server::builder()
        .layer(StrangerLimit)
        .initial_stream_window_size(WINDOWS[0])
        .initial_connection_window_size(WINDOWS[1])
        .max_concurrent_streams(MAX_CALLS)
        .http2_keepalive_interval(Some(PROBE_INTERVAL))
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, async move {
            // The sender lives as long as the process.
            let _ = stop.wait_for(|stop| *stop).await;
        })
        .await
}

struct HostedGate<H> {
    host: Arc<H>,
    settings: Arc<HostSettings>,
    strangers: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

/// Sends a file in pieces.
async fn send_file(
    path: &Path,
    offset: u64,
    pieces: &mpsc::Sender<Result<ContentProto, Status>>,
) -> io::Result<()> {
    let mut file = tokio::fs::File::open(path).await?;
    file.seek(io::SeekFrom::Start(offset)).await?;
    loop {
        let mut data = Vec::with_capacity(PIECE_BYTES);
        let mut piece = (&mut file).take(PIECE_BYTES as u64);
        if piece.read_to_end(&mut data).await? == 0 {
            return Ok(());
        }
        if pieces.send(Ok(ContentProto { data })).await.is_err() {
            return Ok(());
        }
    }
}

/// Answers a call that only clients of the platform make.
fn no_clients<T>() -> Result<T, Status> {
    Err(Status::unimplemented(
        "this gate serves instances; clients send requests over HTTP",
    ))
}

#[tonic::async_trait]
impl<H: GateHost> Gate for HostedGate<H> {
    async fn health_check(
        &self,
        _: Request<HeartBeatProto>,
    ) -> Result<Response<HeartBeatProto>, Status> {
        let status = if *self.stop.borrow() { "Stopping" } else { OK };
        Ok(Response::new(HeartBeatProto {
            status: status.to_owned(),
            interval: 0,
        }))
    }

    type processAsyncStream =
        Pin<Box<dyn Stream<Item = Result<GateToServiceProto, Status>> + Send>>;

    async fn process_async(
        &self,
        request: Request<Streaming<ServiceToGateProto>>,
    ) -> Result<Response<Self::processAsyncStream>, Status> {
        let stranger = Arc::clone(&self.strangers).try_acquire_owned();
        let stranger = stranger.map_err(|_| {
            Status::resource_exhausted("too many connections that have shown no token; try again")
        })?;
        let peer: Option<SocketAddr> = request.extensions().get().copied();
        let known = request.extensions().get::<KnownCaller>();
        let is_known: Arc<AtomicBool> =
            known.map_or_else(Arc::default, |known| Arc::clone(&known.0));
        let (to_service, messages) = mpsc::channel(WAITING_MESSAGES);
        let opened = OpenedSession {
            answers: request.into_inner(),
            to_service,
            peer,
            stranger,
            is_known,
            stop: self.stop.clone(),
        };
        let (host, settings) = (Arc::clone(&self.host), Arc::clone(&self.settings));
        tokio::spawn(async move { session::run(&*host, &settings, opened).await });
        let messages = ReceiverStream::new(messages).map(|message| Ok(*message));
        Ok(Response::new(Box::pin(messages)))
    }

    type contentStream = ReceiverStream<Result<ContentProto, Status>>;

    async fn content(
        &self,
        request: Request<ContentRequestProto>,
    ) -> Result<Response<Self::contentStream>, Status> {
        let request = request.into_inner();
        let offset = request.offset;
        let file = self.host.content(request).await;
        let file = file.map_err(|error| Status::not_found(error.message))?;
        let (pieces, sent) = mpsc::channel(WAITING_PIECES);
        tokio::spawn(async move {
            if let Err(error) = send_file(&file, offset, &pieces).await {
                // The peer may have left.
                let _ = pieces.send(Err(Status::internal(error.to_string()))).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(sent)))
    }

    async fn process(
        &self,
        _: Request<ClientRequestProto>,
    ) -> Result<Response<ClientResponseProto>, Status> {
        no_clients()
    }

    type processResponseStreamStream = ReceiverStream<Result<ClientResponseProto, Status>>;

    async fn process_response_stream(
        &self,
        _: Request<ClientRequestProto>,
    ) -> Result<Response<Self::processResponseStreamStream>, Status> {
        no_clients()
    }
}
