//! Handles the part of a request's body that its handler did not read.
//!
//! The server lends the body to the handler and gets the rest back. A short rest is read and
//! discarded.
//!
//! Invariant: an HTTP/1 connection is reused only if the last body was read to its end. Otherwise
//! the answer announces that the connection closes, so that the client stops sending.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, Version, header};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

/// Maximum size of a rest that is read and discarded, in bytes. Reading it is cheaper than a new
/// connection.
const MAX_DISCARDED_BYTES: u64 = 256 << 10;

/// Maximum time for the rest of a body to arrive.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// A request's body while its handler has it. Dropping it returns the rest.
struct LentBody {
    /// `None` once the body was read or returned.
    body: Option<Incoming>,
    was_asked_for: bool,
    return_slot: Arc<ReturnSlot>,
}

/// The slot to which a handler returns the body.
#[derive(Default)]
struct ReturnSlot(Mutex<Remainder>);

/// The part of a body that a handler left unread.
#[derive(Default)]
enum Remainder {
    /// The handler still has the body.
    #[default]
    Unknown,
    /// The body was read completely.
    Nothing,
    /// A rest is left. The client may not have sent it yet.
    Rest { body: Incoming, was_asked_for: bool },
}

/// The body of a request, as it comes back from the handler.
pub(super) struct UnreadBody {
    slot: Arc<ReturnSlot>,
    /// The client waits for `100 Continue` before it sends the body.
    waits: bool,
}

/// Lends the body of a request to its handler. Requests of HTTP/2 and requests without a body need
/// no cleanup.
pub(super) fn lend(request: Request<Incoming>) -> (Request<Body>, Option<UnreadBody>) {
    if request.version() == Version::HTTP_2 || request.body().is_end_stream() {
        return (request.map(Body::new), None);
    }
    let slot = Arc::new(ReturnSlot::default());
    let unread = UnreadBody {
        waits: expects_continue(request.headers()),
        slot: Arc::clone(&slot),
    };
    let request = request.map(|body| {
        Body::new(LentBody {
            body: Some(body),
            was_asked_for: false,
            return_slot: slot,
        })
    });
    (request, Some(unread))
}

fn expects_continue(headers: &HeaderMap) -> bool {
    let expect = headers.get(header::EXPECT);
    expect.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl UnreadBody {
    /// Reads a short rest of the body. Returns `false` if some of it is left after that.
    pub(super) async fn finish(self) -> bool {
        let left = mem::take(&mut *self.slot.left());
        let (body, was_asked_for) = match left {
            Remainder::Unknown => return false,
            Remainder::Nothing => return true,
            Remainder::Rest {
                body,
                was_asked_for,
            } => (body, was_asked_for),
        };
        // Reading would make the client send a body that is not needed.
        let is_unsent = self.waits && !was_asked_for;
        if is_unsent || body.size_hint().lower() > MAX_DISCARDED_BYTES {
            return false;
        }
        let read = tokio::time::timeout(DISCARD_TIMEOUT, drain(body)).await;
        read.unwrap_or(false)
    }
}

/// Reads a body to its end; returns `false` if it is too long or breaks off.
async fn drain(mut body: Incoming) -> bool {
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        read += frame.data_ref().map_or(0, |data| data.len() as u64);
        if read > MAX_DISCARDED_BYTES {
            return false;
        }
    }
    true
}

impl ReturnSlot {
    fn left(&self) -> MutexGuard<'_, Remainder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.was_asked_for = true;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if frame.is_none() {
            self.body = None;
            *self.return_slot.left() = Remainder::Nothing;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map(HttpBody::size_hint);
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            *self.return_slot.left() = if body.is_end_stream() {
                Remainder::Nothing
            } else {
                Remainder::Rest {
                    body,
                    was_asked_for: self.was_asked_for,
                }
            };
        }
    }
}
