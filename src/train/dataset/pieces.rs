//! Bytes that come piece by piece from elsewhere, read by a thread that may wait for them.

use std::io::{self, Read};

use bytes::{Buf as _, Bytes};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces that may wait to be read.
const AHEAD: usize = 4;

/// The reader of pieces.
#[derive(Debug)]
pub struct Pieces {
    receiver: Receiver<io::Result<Bytes>>,
    now: Bytes,
}

/// A reader that finds out at the end whether the bytes are those that were stored.
pub struct Verified<R> {
    inner: R,
    hash: Option<Sha256>,
    expected: [u8; 32],
}

/// Where pieces are put, and where they are read. They end when the sender is dropped.
pub fn pieces() -> (Sender<io::Result<Bytes>>, Pieces) {
    let (sender, receiver) = channel(AHEAD);
    let now = Bytes::new();
    (sender, Pieces { receiver, now })
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.now.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.now = piece?,
                None => return Ok(0),
            }
        }
        let count = self.now.len().min(buffer.len());
        self.now.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

impl<R> Verified<R> {
    /// Bytes that have this SHA-256.
    pub fn new(inner: R, expected: [u8; 32]) -> Self {
        Self {
            inner,
            hash: Some(Sha256::new()),
            expected,
        }
    }
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if count > 0 {
            if let Some(hash) = &mut self.hash {
                hash.update(&buffer[..count]);
            }
        } else if !buffer.is_empty()
            && let Some(hash) = self.hash.take()
            && <[u8; 32]>::from(hash.finalize()) != self.expected
        {
            return Err(io::Error::other(
                "the stored content is not what was stored",
            ));
        }
        Ok(count)
    }
}
