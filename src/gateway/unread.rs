//! The part of a request's body that its handler did not read.
//!
//! Invariant: a connection of HTTP/1 is used for another request only if the body of the last one was read to
//! its end. Otherwise the answer says that the connection closes, so that no client sends into the void.

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

/// Most bytes of a body that are read for nobody: fewer cost less than another connection.
const MOST_UNREAD: u64 = 256 << 10;

/// How long the rest of a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(1);

/// A request's body on loan to its handler.
struct Lent {
    /// `None` once it is given back.
    body: Option<Incoming>,
    was_asked_for: bool,
    back: Arc<Slot>,
}

/// Where a body is given back.
#[derive(Default)]
struct Slot(Mutex<Left>);

/// What a handler left of a body.
#[derive(Default)]
enum Left {
    /// The handler has the body.
    #[default]
    Unknown,
    /// Nothing.
    Nothing,
    /// Some of it; or all of it, which its client may not have sent yet.
    Rest { body: Incoming, was_asked_for: bool },
}

/// What becomes of a request's body.
pub(super) struct Unread {
    slot: Arc<Slot>,
    /// The client sends the body once it is asked for it.
    waits: bool,
}

/// Lends the body of a request to its handler. A request of HTTP/2, or without a body, leaves nothing unread.
pub(super) fn lend(request: Request<Incoming>) -> (Request<Body>, Option<Unread>) {
    if request.version() == Version::HTTP_2 || request.body().is_end_stream() {
        return (request.map(Body::new), None);
    }
    let slot = Arc::new(Slot::default());
    let unread = Unread {
        waits: waits(request.headers()),
        slot: Arc::clone(&slot),
    };
    let request = request.map(|body| {
        Body::new(Lent {
            body: Some(body),
            was_asked_for: false,
            back: slot,
        })
    });
    (request, Some(unread))
}

fn waits(headers: &HeaderMap) -> bool {
    let expect = headers.get(header::EXPECT);
    expect.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl Unread {
    /// Reads a short rest of the body. Returns `false` if some is left after that.
    pub(super) async fn finish(self) -> bool {
        let left = mem::take(&mut *self.slot.left());
        let (body, was_asked_for) = match left {
            Left::Unknown => return false,
            Left::Nothing => return true,
            Left::Rest {
                body,
                was_asked_for,
            } => (body, was_asked_for),
        };
        // Reading would ask the client for a body that nobody needs.
        let is_unsent = self.waits && !was_asked_for;
        if is_unsent || body.size_hint().lower() > MOST_UNREAD {
            return false;
        }
        let read = tokio::time::timeout(PATIENCE, drain(body)).await;
        read.unwrap_or(false)
    }
}

/// Reads a body to its end; `false` if it is too long, or breaks off.
async fn drain(mut body: Incoming) -> bool {
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        read += frame.data_ref().map_or(0, |data| data.len() as u64);
        if read > MOST_UNREAD {
            return false;
        }
    }
    true
}

impl Slot {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Lent {
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
            *self.back.left() = Left::Nothing;
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

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            *self.back.left() = if body.is_end_stream() {
                Left::Nothing
            } else {
                Left::Rest {
                    body,
                    was_asked_for: self.was_asked_for,
                }
            };
        }
    }
}
