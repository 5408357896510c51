//! A mock HTTP service that tests of the proxy use as their upstream.
//!
//! A test can stop it, restart it on the same port, set the status of its health checks, and choose
//! how it answers `POST` requests.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::http::{Gate, Received, read_request};

/// Interval at which the accept loop checks whether it must stop.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// How the service reacts to a `POST` request.
#[derive(Debug, Clone)]
pub(crate) enum Does {
    /// Answers with a status and a body.
    Answers(u16, String),
    /// Closes the connection.
    Drops,
    /// Answers 200 after [`Backend::release`] was called.
    Holds,
}

/// A mock HTTP service. Requests other than `POST` are answered with the status of its health.
pub(crate) struct Backend {
    address: SocketAddr,
    shared: Arc<Shared>,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

struct Shared {
    does: Mutex<Does>,
    health: Mutex<u16>,
    gate: Gate,
    seen: Mutex<Vec<Received>>,
}

impl Backend {
    /// Starts a service that answers with a JSON object.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut backend = Self {
            address: listener.local_addr().expect("an address"),
            shared: Arc::new(Shared {
                does: Mutex::new(Does::Answers(200, r#"{"is":"fine"}"#.to_owned())),
                health: Mutex::new(200),
                gate: Gate::default(),
                seen: Mutex::default(),
            }),
            running: None,
        };
        backend.listen(listener);
        backend
    }

    /// Returns the URL of a path on this service.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the host and port.
    pub(crate) fn place(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn does(&self, does: Does) {
        self.shared.gate.close();
        *self.shared.does.lock().expect("the lock is not poisoned") = does;
    }

    pub(crate) fn answers(&self, status: u16) {
        self.does(Does::Answers(status, format!("{{\"status\":{status}}}")));
    }

    pub(crate) fn is_healthy(&self, status: u16) {
        *self.shared.health.lock().expect("the lock is not poisoned") = status;
    }

    /// Answers all held requests and all later ones.
    pub(crate) fn release(&self) {
        self.shared.gate.open();
    }

    /// Returns the requests seen so far and clears the list.
    pub(crate) fn take_seen(&self) -> Vec<Received> {
        std::mem::take(&mut *self.shared.seen.lock().expect("the lock is not poisoned"))
    }

    /// Counts the `POST` requests seen so far.
    pub(crate) fn posts(&self) -> usize {
        let seen = self.shared.seen.lock().expect("the lock is not poisoned");
        seen.iter().filter(|seen| seen.method == "POST").count()
    }

    /// Stops the service, so that its port refuses connections.
    pub(crate) fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            stop.store(true, Ordering::SeqCst);
            thread.join().expect("the thread does not panic");
        }
    }

    /// Restarts the service on the same port.
    pub(crate) fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).expect("the port is free again");
        self.listen(listener);
    }

    fn listen(&mut self, listener: TcpListener) {
        listener
            .set_nonblocking(true)
            .expect("the socket mode is set");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, shared) = (Arc::clone(&stop), Arc::clone(&self.shared));
        let thread = std::thread::spawn(move || {
            let mut open = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(BETWEEN_LOOKS);
                    continue;
                };
                stream
                    .set_nonblocking(false)
                    .expect("the socket mode is set");
                open.push(stream.try_clone().expect("a second handle"));
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
            for stream in open {
                // The connection may be closed already.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        });
        self.running = Some((stop, thread));
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    while let Some(seen) = read_request(&mut reader) {
        let method = seen.method.clone();
        shared
            .seen
            .lock()
            .expect("the lock is not poisoned")
            .push(seen);
        let does = shared
            .does
            .lock()
            .expect("the lock is not poisoned")
            .clone();
        let (status, body) = match does {
            _ if method != "POST" => (
                *shared.health.lock().expect("the lock is not poisoned"),
                String::new(),
            ),
            Does::Answers(status, body) => (status, body),
            Does::Drops => {
                // Dropping the stream is not enough while another handle is open, so this shuts the
                // connection down.
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
            Does::Holds => {
                shared.gate.pass();
                (200, r#"{"held":true}"#.to_owned())
            }
        };
        if stream.write_all(answer(status, &body).as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(status: u16, body: &str) -> String {
    if status == 204 {
        return "HTTP/1.1 204 Said\r\n\r\n".to_owned();
    }
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}
