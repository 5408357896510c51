//! An answer in pieces on its way to a client.
//!
//! Invariant: each event leaves as soon as it is whole, and nothing is held beside; the status is told with
//! the first event, or after fifteen seconds of silence; from then on an error is an event. Dropping it ends
//! the call.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};

use super::super::super::error::Error;
use super::events::{COMMENT, DONE, Framer};
use super::failed::failed;
use super::tally::Tally;
use super::unstreamed;
use crate::service::{self, Answer, CallError, Chunks};

/// How long nothing may come before a comment leaves.
const SILENCE: Duration = Duration::from_secs(15);

/// Media type of events.
const EVENTS: &str = "text/event-stream; charset=utf-8";

/// Tells proxies on the way not to collect what passes.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A call that is not answered yet.
pub(super) type Call = Pin<Box<dyn Future<Output = Result<Answer, CallError>> + Send>>;

/// An answer in pieces.
pub(super) struct Relay {
    source: Source,
    framer: Framer,
    tally: Tally,
    request_id: String,
    media_type: Option<String>,
    /// The client asked for events: it gets nothing else, and comments meanwhile.
    is_asked: bool,
    /// A last event is added where the service sends none.
    ends: bool,
    is_done: bool,
}

enum Source {
    Call(Call),
    Chunks(Chunks),
    Over,
}

impl Relay {
    /// The answer of a call whose client asked for events. `ends`: the last one is `[DONE]` in any case.
    pub(super) fn asked(call: Call, tally: Tally, request_id: &str, ends: bool) -> Self {
        Self {
            source: Source::Call(call),
            framer: Framer::default(),
            tally,
            request_id: request_id.to_owned(),
            media_type: None,
            is_asked: true,
            ends,
            is_done: false,
        }
    }

    /// Pieces that a client did not ask for: they pass as they are.
    pub(super) fn unasked(
        chunks: Chunks,
        media_type: String,
        tally: Tally,
        request_id: &str,
    ) -> Self {
        Self {
            source: Source::Chunks(chunks),
            framer: Framer::default(),
            tally,
            request_id: request_id.to_owned(),
            media_type: Some(media_type),
            is_asked: false,
            ends: false,
            is_done: false,
        }
    }

    /// The response, as soon as it is clear that it is no error.
    pub(super) async fn respond(mut self) -> Result<Response, Error> {
        let first = match self.next_in_time().await {
            Some(next) => next.transpose()?,
            None => Some(Bytes::from_static(COMMENT.as_bytes())),
        };
        self.tally.begins();
        let media_type = self.media_type.as_deref().unwrap_or(EVENTS);
        let media_type = HeaderValue::from_str(media_type);
        let head = [
            (
                header::CONTENT_TYPE,
                media_type.unwrap_or(HeaderValue::from_static(EVENTS)),
            ),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (BUFFERING, HeaderValue::from_static("no")),
        ];
        let rest = stream::unfold(self, async |mut relay| {
            let piece = relay.piece().await?;
            Some((piece, relay))
        });
        let pieces = stream::iter(first).chain(rest).map(Ok::<_, Infallible>);
        Ok((head, Body::from_stream(pieces)).into_response())
    }

    /// What leaves next, once the status is told.
    async fn piece(&mut self) -> Option<Bytes> {
        loop {
            match self.next_in_time().await {
                Some(Some(Ok(bytes))) => return Some(bytes),
                Some(Some(Err(error))) => return Some(self.broken(error)),
                Some(None) => return None,
                None if self.framer.is_amid() => {}
                None => return Some(Bytes::from_static(COMMENT.as_bytes())),
            }
        }
    }

    /// What comes next; `None` if nothing does for a while, though the client asked for events.
    async fn next_in_time(&mut self) -> Option<Option<Result<Bytes, Error>>> {
        if !self.is_asked {
            return Some(self.next().await);
        }
        tokio::time::timeout(SILENCE, self.next()).await.ok()
    }

    /// What comes next. Nothing is lost if it is not waited for.
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            match &mut self.source {
                Source::Over => return None,
                Source::Call(call) => {
                    let answer = call.as_mut().await;
                    self.source = Source::Over;
                    match answer {
                        Ok(answer) => {
                            if let Some(whole) = self.take(answer) {
                                return Some(whole);
                            }
                        }
                        Err(error) => return Some(Err(failed(error))),
                    }
                }
                Source::Chunks(chunks) => match chunks.next().await {
                    Some(Ok(chunk)) => {
                        if let Some(events) = self.framer.push(chunk) {
                            return Some(Ok(self.seen(events)));
                        }
                    }
                    Some(Err(error)) => {
                        self.source = Source::Over;
                        return Some(Err(failed(error)));
                    }
                    None => {
                        self.source = Source::Over;
                        let rest = self.framer.finish();
                        return self.end(rest).map(Ok);
                    }
                },
            }
        }
    }

    /// Begins with an answer; one that is whole is all there is.
    fn take(&mut self, answer: Answer) -> Option<Result<Bytes, Error>> {
        self.tally.answered(&answer);
        let body = match answer.body {
            service::Body::Stream(chunks) => {
                self.media_type = Some(answer.content_type);
                self.source = Source::Chunks(chunks);
                return None;
            }
            service::Body::Whole(body) => body,
        };
        let Some(events) = unstreamed::events(&body) else {
            let media = answer.content_type;
            let message = format!(
                "events were asked for, and the service answered with `{media}` that is no \
                 completion; ask again without `stream`"
            );
            let status = StatusCode::BAD_GATEWAY;
            return Some(Err(Error::new(status, "SERVICE_DOES_NOT_STREAM", message)));
        };
        self.tally.reported.look_at(&body);
        self.is_done = true;
        Some(Ok(events.into()))
    }

    fn seen(&mut self, events: Bytes) -> Bytes {
        self.is_done |= self.tally.reported.look_at_events(&events);
        events
    }

    /// The end of a stream, with what its last event lacks.
    fn end(&mut self, rest: Bytes) -> Option<Bytes> {
        let rest = self.seen(rest);
        if !self.ends || self.is_done {
            return (!rest.is_empty()).then_some(rest);
        }
        let between: &[u8] = if rest.is_empty() { b"" } else { b"\n\n" };
        Some([&rest[..], between, DONE.as_bytes()].concat().into())
    }

    /// An error as the last event.
    fn broken(&mut self, mut error: Error) -> Bytes {
        let (request, code) = (&self.request_id, &error.code);
        tracing::warn!(
            request,
            code,
            detail = error.detail(),
            "an answer broke off"
        );
        error.take_detail();
        let data = error.event_data(&self.request_id);
        // The rest of an event that is half told is lost: an empty line ends it.
        let before = if self.framer.is_amid() { "\n\n" } else { "" };
        let done = if self.ends { DONE } else { "" };
        format!("{before}data: {data}\n\n{done}").into()
    }
}
