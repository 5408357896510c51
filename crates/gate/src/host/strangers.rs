//! Limits what a caller can send before it has shown a token.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;
use tower::{Layer, Service};

/// Maximum size of an announcement, in bytes.
const MAX_ANNOUNCEMENT_BYTES: usize = 4 << 20;

/// An extension of a request: becomes true when the caller has shown a token.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownCaller(pub(super) Arc<AtomicBool>);

/// Limits the bodies of requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct StrangerLimit;

impl<S> Layer<S> for StrangerLimit {
    type Service = LimitedCalls<S>;

    fn layer(&self, inner: S) -> LimitedCalls<S> {
        LimitedCalls(inner)
    }
}

/// A service whose requests are limited.
#[derive(Debug, Clone)]
pub(super) struct LimitedCalls<S>(S);

impl<S> Service<Request<tonic::body::Body>> for LimitedCalls<S>
where
    S: Service<Request<tonic::body::Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> S::Future {
        let known = KnownCaller::default();
        request.extensions_mut().insert(known.clone());
        let limited = request.map(|body| {
            tonic::body::Body::new(LimitedBody {
                body,
                known,
                received: 0,
            })
        });
        self.0.call(limited)
    }
}

/// A body that ends with an error if it is too long for a stranger.
struct LimitedBody {
    body: tonic::body::Body,
    known: KnownCaller,
    received: usize,
}

impl Body for LimitedBody {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && !self.known.0.load(Acquire)
        {
            self.received += data.remaining();
            if self.received > MAX_ANNOUNCEMENT_BYTES {
                let message = format!("an announcement has at most {MAX_ANNOUNCEMENT_BYTES} bytes");
                return Poll::Ready(Some(Err(Status::resource_exhausted(message))));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
