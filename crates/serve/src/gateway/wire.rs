//! The byte stream of an HTTP/1 connection, between the socket and the HTTP library.
//!
//! [`HttpWire`] replaces error answers that the HTTP library writes by itself with the error body of
//! the gateway. It also drains a client that still sends before it closes the connection.
//!
//! Invariant: bytes of answers that handlers made pass unchanged. Bytes count as the library's own
//! only if they are written while no request is in flight and everything before them is flushed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::framing::RequestFraming;

/// Maximum time to drain a client after its last answer: in all, and without receiving a byte.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(5);
const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes that are drained per read.
const DRAIN_BUFFER_BYTES: usize = 16 << 10;

/// Maximum number of reads in one poll, so that other tasks get their turn.
const MAX_READS_PER_POLL: usize = 64;

/// The reason for an error answer that no handler made.
#[derive(Debug, Clone, Copy)]
pub(super) enum RejectReason {
    /// The HTTP library rejects a request with this status.
    ByLibrary(StatusCode),
    /// The request declares its length twice.
    Ambiguous,
    /// The connection limit is reached.
    NoConnection,
    /// The request arrives while its connection closes.
    Stopping,
}

/// Builds the complete HTTP answer for a rejected request.
pub(super) type ErrorAnswer = Arc<dyn Fn(RejectReason) -> Bytes + Send + Sync>;

/// The requests in flight on a connection.
#[derive(Debug, Default)]
pub(super) struct ExchangeState {
    requests: AtomicUsize,
    is_unflushed: AtomicBool,
    /// The last answer allowed the client to send another request.
    stays_open: AtomicBool,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct ExchangeGuard(Arc<ExchangeState>);

/// An HTTP/1 connection.
pub(super) struct HttpWire<S> {
    inner: S,
    exchange: Arc<ExchangeState>,
    instead: ErrorAnswer,
    framing: RequestFraming,
    /// The last request declares its length twice and was made unreadable for the HTTP library.
    is_ambiguous: bool,
    /// The unwritten rest of an answer that replaces the library's.
    pending: Bytes,
    ending: Option<Draining>,
}

/// A connection that is drained after its last answer.
struct Draining {
    until: Instant,
    silent: Pin<Box<Sleep>>,
}

impl ExchangeState {
    /// Counts a request as in flight.
    pub(super) fn begin(self: &Arc<Self>) -> ExchangeGuard {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.is_unflushed.store(true, Ordering::Release);
        ExchangeGuard(Arc::clone(self))
    }

    /// Sets whether the next answer lets the client send another request.
    pub(super) fn stays_open(&self, stays: bool) {
        self.stays_open.store(stays, Ordering::Release);
    }

    fn is_quiet(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0 && !self.is_unflushed.load(Ordering::Acquire)
    }

    fn flushed(&self) {
        if self.requests.load(Ordering::Acquire) == 0 {
            self.is_unflushed.store(false, Ordering::Release);
        }
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S> HttpWire<S> {
    /// Wraps a new connection.
    pub(super) fn new(inner: S, exchange: Arc<ExchangeState>, instead: ErrorAnswer) -> Self {
        Self {
            inner,
            exchange,
            instead,
            framing: RequestFraming::default(),
            is_ambiguous: false,
            pending: Bytes::new(),
            ending: None,
        }
    }

    /// Returns the bytes that replace an error answer of the HTTP library.
    fn replacement(&self, head: &[u8]) -> Option<Bytes> {
        let status = head.strip_prefix(b"HTTP/1.")?.get(2..5)?;
        let status = StatusCode::from_bytes(status).ok()?;
        let is_error = status.is_client_error() || status.is_server_error();
        let refused = if self.is_ambiguous {
            RejectReason::Ambiguous
        } else {
            RejectReason::ByLibrary(status)
        };
        let is_the_librarys = is_error && self.exchange.is_quiet();
        if is_the_librarys {
            // The library closes the connection after it. Later requests get no answer.
            self.exchange.stays_open(false);
        }
        is_the_librarys.then(|| (self.instead)(refused))
    }
}

impl<S: AsyncWrite + Unpin> HttpWire<S> {
    fn poll_pending(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let written = Pin::new(&mut self.inner).poll_write(context, &self.pending);
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> HttpWire<S> {
    /// Answers a request that arrived after the library decided to close an idle connection.
    fn reject_late_request(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let mut bytes = [0; DRAIN_BUFFER_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(context, &mut buffer) {
            read?;
            if !buffer.filled().is_empty() {
                self.pending = (self.instead)(RejectReason::Stopping);
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HttpWire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let bytes = &mut buffer.filled_mut()[before..];
        if let Some(end) = self.framing.ambiguous_head(bytes) {
            self.is_ambiguous = true;
            // The library would pick one of the two lengths. A zero byte at the end of the head
            // makes it reject the request.
            bytes[end - 1] = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for HttpWire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(context))?;
        if let Some(instead) = self.replacement(bytes) {
            self.pending = instead;
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(context))?;
        let head = slices.iter().find(|slice| !slice.is_empty());
        if let Some(instead) = head.and_then(|head| self.replacement(head)) {
            self.pending = instead;
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(context))?;
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        self.exchange.flushed();
        Poll::Ready(Ok(()))
    }

    /// Closes the write half, then drains the client. Closing a connection with unread bytes resets
    /// it, and the client may lose the answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(context))?;
        if self.ending.is_none() && self.exchange.stays_open.swap(false, Ordering::AcqRel) {
            self.reject_late_request(context)?;
            ready!(self.poll_pending(context))?;
        }
        if self.ending.is_none() {
            ready!(Pin::new(&mut self.inner).poll_shutdown(context))?;
            self.ending = Some(Draining {
                until: Instant::now() + MAX_DRAIN_TIME,
                silent: Box::pin(tokio::time::sleep(DRAIN_IDLE_TIMEOUT)),
            });
        }
        let this = &mut *self;
        let Some(ending) = &mut this.ending else {
            return Poll::Ready(Ok(()));
        };
        let mut bytes = [0; DRAIN_BUFFER_BYTES];
        for _ in 0..MAX_READS_PER_POLL {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.inner).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                // The client has closed its half, or is gone.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return ending.silent.as_mut().poll(context).map(Ok),
            }
            if Instant::now() >= ending.until {
                return Poll::Ready(Ok(()));
            }
            let silent_at = ending.until.min(Instant::now() + DRAIN_IDLE_TIMEOUT);
            ending.silent.as_mut().reset(silent_at);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
