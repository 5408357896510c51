//! A mock server that receives webhooks.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use super::http::{MockServer, Received, Serve, read_request};

/// A server that keeps what it receives, and answers with a chosen status.
pub(crate) type HookServer = MockServer<HookState>;

/// The state of a [`HookServer`].
pub(crate) struct HookState {
    status: AtomicU16,
    received: Mutex<Vec<Received>>,
}

impl Default for HookState {
    fn default() -> Self {
        Self {
            status: AtomicU16::new(204),
            received: Mutex::default(),
        }
    }
}

impl MockServer<HookState> {
    /// Answers later requests with this status.
    pub(crate) fn answer(&self, status: u16) {
        self.shared.status.store(status, Ordering::SeqCst);
    }

    /// Returns the requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        let received = self.shared.received.lock();
        received.expect("the lock is not poisoned").clone()
    }
}

impl Serve for HookState {
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut stream = stream;
        while let Some(received) = read_request(&mut reader) {
            let all = self.received.lock();
            all.expect("the lock is not poisoned").push(received);
            let status = self.status.load(Ordering::SeqCst);
            let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n");
            if stream.write_all(head.as_bytes()).is_err() {
                return;
            }
        }
    }
}
