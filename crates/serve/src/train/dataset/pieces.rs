//! Blocking readers over bytes that arrive in pieces from an asynchronous source.

use std::io::{self, Read};

use bytes::{Buf as _, Bytes};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of pieces waiting to be read.
const MAX_QUEUED_PIECES: usize = 4;

/// The reader of the pieces.
#[derive(Debug)]
pub struct PieceReader {
    receiver: Receiver<io::Result<Bytes>>,
    now: Bytes,
}

/// A reader that verifies the SHA-256 checksum when it reaches the end.
pub struct ChecksumReader<R> {
    inner: R,
    hash: Option<Sha256>,
    expected: [u8; 32],
}

/// Returns a sender of pieces and their reader. The reader ends when the sender is dropped.
pub fn pieces() -> (Sender<io::Result<Bytes>>, PieceReader) {
    let (sender, receiver) = channel(MAX_QUEUED_PIECES);
    let now = Bytes::new();
    (sender, PieceReader { receiver, now })
}

impl Read for PieceReader {
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

impl<R> ChecksumReader<R> {
    /// Wraps a reader of bytes with this expected SHA-256.
    pub fn new(inner: R, expected: [u8; 32]) -> Self {
        Self {
            inner,
            hash: Some(Sha256::new()),
            expected,
        }
    }
}

impl<R: Read> Read for ChecksumReader<R> {
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
            return Err(io::Error::other("the stored content is corrupt"));
        }
        Ok(count)
    }
}
