//! A proxy before a PostgreSQL server that cuts connections at random, some in the middle of a message.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::random::Random;

/// Longest pause between two cuts.
const LONGEST_PAUSE_MS: u64 = 60;

/// A proxy on a port of this machine. It ends when it is dropped.
pub(crate) struct CutProxy {
    port: u16,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct Shared {
    cuts: AtomicBool,
    count: AtomicUsize,
    connections: Mutex<HashMap<u64, Arc<Fault>>>,
}

/// A fault that a connection is to have.
#[derive(Default)]
struct Fault {
    /// The direction in which half of the next bytes arrives: 1 to the server, 2 to the client.
    half: AtomicU8,
    /// It is cut at once.
    cut: Notify,
}

const TO_SERVER: u8 = 1;
const TO_CLIENT: u8 = 2;

impl CutProxy {
    /// Starts a proxy before a socket, which cuts nothing yet.
    pub(crate) fn start(socket: PathBuf, seed: u64) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::<Shared>::default();
        runtime.spawn(disturb(Arc::clone(&shared), Random::new(seed)));
        runtime.spawn(accept(listener, Arc::clone(&shared), socket));
        Self {
            port,
            shared,
            runtime: Some(runtime),
        }
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Begins or ends to cut connections.
    pub(crate) fn cut(&self, cuts: bool) {
        self.shared.cuts.store(cuts, Ordering::SeqCst);
    }

    /// Counts the connections that were cut.
    pub(crate) fn count(&self) -> usize {
        self.shared.count.load(Ordering::SeqCst)
    }
}

impl Drop for CutProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Gives faults to connections.
async fn disturb(shared: Arc<Shared>, mut random: Random) {
    loop {
        tokio::time::sleep(Duration::from_millis(random.below(LONGEST_PAUSE_MS))).await;
        if !shared.cuts.load(Ordering::SeqCst) {
            continue;
        }
        let connections = shared.connections.lock().expect("no panic");
        let which = random.below(connections.len().max(1) as u64);
        let which = usize::try_from(which).expect("small");
        let Some(fault) = connections.values().nth(which) else {
            continue;
        };
        match random.below(3) {
            0 => fault.cut.notify_one(),
            1 => fault.half.store(TO_SERVER, Ordering::SeqCst),
            _ => fault.half.store(TO_CLIENT, Ordering::SeqCst),
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, socket: PathBuf) {
    let mut number = 0;
    while let Ok((client, _)) = listener.accept().await {
        number += 1;
        let (shared, socket) = (Arc::clone(&shared), socket.clone());
        tokio::spawn(async move {
            // A server that is away cannot be reached here, either.
            let Ok(server) = UnixStream::connect(socket).await else {
                return;
            };
            let fault = Arc::<Fault>::default();
            let known = Arc::clone(&fault);
            let connections = || shared.connections.lock().expect("no panic");
            connections().insert(number, known);
            if carry(client, server, &fault).await {
                shared.count.fetch_add(1, Ordering::SeqCst);
            }
            connections().remove(&number);
        });
    }
}

/// Carries bytes until the end of the connection. Returns whether a fault ended it.
async fn carry(client: TcpStream, server: UnixStream, fault: &Fault) -> bool {
    let _ = client.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        was_cut = pump((from_client, to_server), fault, TO_SERVER) => was_cut,
        was_cut = pump((from_server, to_client), fault, TO_CLIENT) => was_cut,
        () = fault.cut.notified() => true,
    }
}

async fn pump(
    (mut from, mut to): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    fault: &Fault,
    direction: u8,
) -> bool {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else {
            return false;
        };
        let is_cut = fault.half.load(Ordering::SeqCst) == direction;
        let bytes = &buffer[..if is_cut { count / 2 } else { count }];
        if to.write_all(bytes).await.is_err() || is_cut {
            return is_cut;
        }
    }
}
