//! HTTP at the level of bytes: a client that can violate the protocol, and a mock upstream.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;

/// Maximum time a test waits for bytes.
const PATIENCE: Duration = Duration::from_mins(2);

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Parses the body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the error code in the body.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        let body = self.json();
        let code = body["error"]["code"].as_str();
        code.unwrap_or_else(|| panic!("expected an error, got {body}"))
            .to_owned()
    }

    /// Fails the test unless the status is `status`.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Fails the test unless this is an error with this status and code.
    #[track_caller]
    pub(crate) fn expect_error(self, status: u16, code: &str) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.code(), code);
        let body = self.json();
        assert_eq!(
            body["error"]["requestId"].as_str(),
            self.header("z-requestid"),
            "{body}"
        );
        self
    }
}

/// Sends one request on its own connection and returns the response.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    send(connect(address), (method, path, headers, body)).expect("an answer")
}

/// Sends one request on its own connection to a server that may be gone. Returns nothing if no whole response came within
/// a time.
pub(crate) fn attempt(
    address: SocketAddr,
    patience: Duration,
    request: (&str, &str, &[(&str, &str)], &[u8]),
) -> Option<Reply> {
    let stream = TcpStream::connect_timeout(&address, patience).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    send(stream, request)
}

fn send(
    mut stream: TcpStream,
    (method, path, headers, body): (&str, &str, &[(&str, &str)], &[u8]),
) -> Option<Reply> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if method != "GET" || !body.is_empty() {
        let _ = write!(text, "content-length: {}\r\n", body.len());
    }
    text.push_str("\r\n");
    // A server may reject a request before it has read all of it; the response is still read.
    let _ = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.write_all(body));
    let mut reader = BufReader::new(stream);
    if method == "HEAD" {
        read_head(&mut reader)
    } else {
        read_reply(&mut reader)
    }
}

/// Opens a connection with a read timeout.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout can be set");
    stream
}

/// Sends a GET request on its own connection; `None` if the server closes the connection.
pub(crate) fn try_request(address: SocketAddr, path: &str) -> Option<Reply> {
    let mut stream = connect(address);
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").ok()?;
    read_reply(&mut BufReader::new(stream))
}

fn read_head(stream: &mut impl BufRead) -> Option<Reply> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    Some(Reply {
        status,
        headers: read_headers(stream),
        body: Vec::new(),
    })
}

/// Reads a response; `None` if the connection ended before it.
pub(crate) fn read_reply(stream: &mut impl BufRead) -> Option<Reply> {
    let mut reply = read_head(stream)?;
    let status = reply.status;
    let length = reply.header("content-length").map(str::to_owned);
    match length {
        Some(length) => {
            let length: usize = length.parse().ok()?;
            reply.body = vec![0; length];
            stream.read_exact(&mut reply.body).ok()?;
        }
        None if reply.header("transfer-encoding").is_some() => loop {
            let mut size = String::new();
            stream.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            reply.body.extend_from_slice(&chunk[..size]);
        },
        None if status != 204 => {
            let _ = stream.read_to_end(&mut reply.body);
        }
        None => {}
    }
    Some(reply)
}

pub(crate) fn read_headers(stream: &mut impl BufRead) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        let read = stream.read_line(&mut line).unwrap_or(0);
        let line = line.trim_end();
        if read == 0 || line.is_empty() {
            return headers;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }
}

/// A request that a mock server received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// Returns all values of a header.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let headers = self.headers.iter();
        let named = headers.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// Reads a request; `None` at the end of the connection.
pub(crate) fn read_request(reader: &mut impl BufRead) -> Option<Received> {
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return None;
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let headers = read_headers(reader);
    let mut received = Received {
        method,
        path,
        headers,
        body: Vec::new(),
    };
    let length = received
        .header("content-length")
        .first()
        .map_or(0, |text| text.parse().unwrap_or(0));
    received.body = vec![0; length];
    reader.read_exact(&mut received.body).ok()?;
    Some(received)
}

/// A mock HTTP service that proxies use as their upstream. The path of a request selects its
/// behaviour:
///
/// - `/hold` answers after [`Upstream::release`] was called.
/// - `/echo` returns the request as JSON, `/text` returns it as plain text.
/// - `/status/418` answers with this status, `/text/418` does so with plain text.
/// - `/drop` closes the connection.
/// - `/events` sends one event at once and the other after [`Upstream::release`].
/// - `/keep` repeats the body after [`Upstream::release`].
/// - `/later` repeats the body after [`LATER`].
/// - `/events/broken` breaks off after the first event.
pub(crate) type Upstream = MockServer<UpstreamState>;

/// The time after which `/later` answers.
const LATER: Duration = Duration::from_millis(40);

/// The state of an [`Upstream`].
#[derive(Default)]
pub(crate) struct UpstreamState {
    gate: Gate,
    seen: AtomicUsize,
    left: AtomicUsize,
}

/// A server on a free port. Each connection is served by a thread; all threads share one state.
pub(crate) struct MockServer<S> {
    address: SocketAddr,
    pub(super) shared: Arc<S>,
}

/// The state of a [`MockServer`], with the service of a connection.
pub(crate) trait Serve: Default + Send + Sync + 'static {
    fn serve(&self, stream: TcpStream);
}

impl<S: Serve> MockServer<S> {
    /// Starts the server.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(S::default());
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Self { address, shared }
    }

    /// Returns the URL of a path on this server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Holds threads back until it is opened.
#[derive(Default)]
pub(super) struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn open(&self) {
        *self.is_open.lock().expect("the lock is not poisoned") = true;
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        *self.is_open.lock().expect("the lock is not poisoned") = false;
    }

    /// Waits until the gate is open.
    pub(super) fn pass(&self) {
        let is_open = self.is_open.lock().expect("the lock is not poisoned");
        let waited = self.changed.wait_while(is_open, |is_open| !*is_open);
        drop(waited.expect("the lock is not poisoned"));
    }

    fn is_open(&self) -> bool {
        *self.is_open.lock().expect("the lock is not poisoned")
    }
}

impl MockServer<UpstreamState> {
    /// Counts the requests that arrived.
    pub(crate) fn seen(&self) -> usize {
        self.shared.seen.load(Ordering::SeqCst)
    }

    /// Counts the event streams whose client left before their end.
    pub(crate) fn left(&self) -> usize {
        self.shared.left.load(Ordering::SeqCst)
    }

    /// Answers all held requests and all later ones.
    pub(crate) fn release(&self) {
        self.shared.gate.open();
    }
}

impl Serve for UpstreamState {
    fn serve(&self, stream: TcpStream) {
        serve(stream, self);
    }
}

fn serve(stream: TcpStream, shared: &UpstreamState) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    while let Some(Received { path, body, .. }) = read_request(&mut reader) {
        shared.seen.fetch_add(1, Ordering::SeqCst);
        let (status, body) = match path.as_str() {
            "/hold" => {
                shared.gate.pass();
                (200, br#"{"held":true}"#.to_vec())
            }
            "/echo" | "/text" => (200, body),
            "/keep" => {
                shared.gate.pass();
                (200, body)
            }
            "/later" => {
                std::thread::sleep(LATER);
                (200, body)
            }
            "/events" | "/events/broken" => {
                return send_events(&mut stream, shared, path == "/events");
            }
            "/drop" => return,
            other => {
                let status = other.rsplit('/').next().and_then(|text| text.parse().ok());
                (status.unwrap_or(404), br#"{"upstream":"says so"}"#.to_vec())
            }
        };
        let media = if path.starts_with("/text") {
            "text/plain; charset=utf-8"
        } else {
            "application/json"
        };
        let head = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let written = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&body));
        if written.is_err() {
            return;
        }
    }
}

/// The events that an [`Upstream`] sends.
pub(crate) const EVENTS: [&str; 2] = ["data: first\n\n", "data: last\n\n"];

fn send_events(stream: &mut TcpStream, shared: &UpstreamState, is_whole: bool) {
    let head = "HTTP/1.1 200 Said\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
                connection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let first = format!("{head}{}", chunk(EVENTS[0]));
    if stream.write_all(first.as_bytes()).is_err() || !is_whole {
        return;
    }
    let pause = Duration::from_millis(5);
    stream
        .set_read_timeout(Some(pause))
        .expect("a timeout can be set");
    while !shared.gate.is_open() {
        // The client sends nothing more, so an end without a timeout is the end of the connection.
        let waits = |error: &std::io::Error| {
            use std::io::ErrorKind::{TimedOut, WouldBlock};
            matches!(error.kind(), TimedOut | WouldBlock)
        };
        if !stream.read(&mut [0]).is_err_and(|error| waits(&error)) {
            shared.left.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
    let last = format!("{}{}", chunk(EVENTS[1]), chunk(""));
    // A client that has left already has received all it needs.
    let _ = stream.write_all(last.as_bytes());
}
