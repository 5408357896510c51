//! The bytes of an HTTP/1 connection: what the HTTP library answers by itself gets the body that every
//! error has, and a client that still sends is heard out before its connection is closed.
//!
//! Invariant: bytes of answers that handlers made pass unchanged: only what is written while no request
//! is being answered, and everything before it is flushed, is the library's own.

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

use super::framing::Framing;

/// How long a client that still sends is heard after its answer, in all and without a byte.
const HEARD: Duration = Duration::from_secs(5);
const SILENT: Duration = Duration::from_secs(1);

/// How much is heard in one go, in bytes.
const HEARD_AT_ONCE: usize = 16 << 10;

/// Reads of a client that sends without end between which others have their turn.
const READS: usize = 64;

/// Whom the bytes of an answer refuse that no handler made.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refused {
    /// A request that the HTTP library answers with this status.
    ByLibrary(StatusCode),
    /// A request that says its length twice.
    Ambiguous,
    /// A client for which there is no connection.
    NoConnection,
    /// A request that arrives while its connection closes.
    Stopping,
}

/// The whole answer to who is refused.
pub(super) type Instead = Arc<dyn Fn(Refused) -> Bytes + Send + Sync>;

/// What is under way on a connection.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    requests: AtomicUsize,
    is_unflushed: AtomicBool,
    /// The last answer let the client send another request.
    stays_open: AtomicBool,
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Exchange>);

/// A connection.
pub(super) struct Wire<S> {
    inner: S,
    exchange: Arc<Exchange>,
    instead: Instead,
    framing: Framing,
    /// A request was made unreadable for the library, since it says its length twice.
    is_ambiguous: bool,
    /// What is still to be written of an answer in place of the library's.
    pending: Bytes,
    ending: Option<Ending>,
}

/// A connection whose last answer is sent.
struct Ending {
    until: Instant,
    silent: Pin<Box<Sleep>>,
}

impl Exchange {
    /// A request came.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.is_unflushed.store(true, Ordering::Release);
        UnderWay(Arc::clone(self))
    }

    /// Whether the answer that comes next lets the client send another request.
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

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S> Wire<S> {
    /// A connection on which nothing was said yet.
    pub(super) fn new(inner: S, exchange: Arc<Exchange>, instead: Instead) -> Self {
        Self {
            inner,
            exchange,
            instead,
            framing: Framing::default(),
            is_ambiguous: false,
            pending: Bytes::new(),
            ending: None,
        }
    }

    /// What to write instead of an answer of the library's.
    fn replaced(&self, head: &[u8]) -> Option<Bytes> {
        let status = head.strip_prefix(b"HTTP/1.")?.get(2..5)?;
        let status = StatusCode::from_bytes(status).ok()?;
        let is_error = status.is_client_error() || status.is_server_error();
        let refused = if self.is_ambiguous {
            Refused::Ambiguous
        } else {
            Refused::ByLibrary(status)
        };
        let is_the_librarys = is_error && self.exchange.is_quiet();
        if is_the_librarys {
            // It closes the connection: what arrives after it gets no further answer.
            self.exchange.stays_open(false);
        }
        is_the_librarys.then(|| (self.instead)(refused))
    }
}

impl<S: AsyncWrite + Unpin> Wire<S> {
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

impl<S: AsyncRead + Unpin> Wire<S> {
    /// Answers a request that arrived after the library decided to close an idle connection.
    fn refuse_late(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let mut bytes = [0; HEARD_AT_ONCE];
        let mut buffer = ReadBuf::new(&mut bytes);
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(context, &mut buffer) {
            read?;
            if !buffer.filled().is_empty() {
                self.pending = (self.instead)(Refused::Stopping);
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
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
            // The library would take one of the two lengths. No head ends so: it rejects this one.
            bytes[end - 1] = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(context))?;
        if let Some(instead) = self.replaced(bytes) {
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
        if let Some(instead) = head.and_then(|head| self.replaced(head)) {
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

    /// Tells the client that nothing more comes, then hears it out: closing a connection with unread
    /// bytes resets it, and may take the answer with it.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(context))?;
        if self.ending.is_none() && self.exchange.stays_open.swap(false, Ordering::AcqRel) {
            self.refuse_late(context)?;
            ready!(self.poll_pending(context))?;
        }
        if self.ending.is_none() {
            ready!(Pin::new(&mut self.inner).poll_shutdown(context))?;
            self.ending = Some(Ending {
                until: Instant::now() + HEARD,
                silent: Box::pin(tokio::time::sleep(SILENT)),
            });
        }
        let this = &mut *self;
        let Some(ending) = &mut this.ending else {
            return Poll::Ready(Ok(()));
        };
        let mut bytes = [0; HEARD_AT_ONCE];
        for _ in 0..READS {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.inner).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                // The client has ended, or is gone.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return ending.silent.as_mut().poll(context).map(Ok),
            }
            if Instant::now() >= ending.until {
                return Poll::Ready(Ok(()));
            }
            let silent_at = ending.until.min(Instant::now() + SILENT);
            ending.silent.as_mut().reset(silent_at);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
