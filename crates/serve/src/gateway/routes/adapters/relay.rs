//! Relays a streamed answer to a client.
//!
//! The HTTP status is sent with the first event, or after fifteen seconds of silence with a
//! comment. Later errors are sent as events. Dropping the relay ends the call.
//!
//! Invariant: each event leaves as soon as it is complete, and only incomplete events are buffered.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};

use super::super::super::error::GatewayError;
use super::super::predict::name_worker;
use super::failed::call_error;
use super::tally::UsageTally;
use super::unstreamed;
use crate::service::events::{DONE, EventFramer, KEEP_ALIVE};
use crate::service::{self, Answer, CallError, Chunks};

/// Idle time after which a comment is sent.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Media type of events.
const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

/// The header that disables buffering in proxies on the way.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A call in progress.
pub(super) type RelayedCall = Pin<Box<dyn Future<Output = Result<Answer, CallError>> + Send>>;

/// A streamed answer on its way to a client.
pub(super) struct Relay {
    source: AnswerSource,
    framer: EventFramer,
    tally: UsageTally,
    request_id: String,
    /// The attached instance that answers, once it has begun.
    worker: Option<String>,
    media_type: Option<String>,
    /// The client asked for events: it gets only events, and comments while it waits.
    is_asked: bool,
    /// A final event is added if the service sends none.
    ends: bool,
    is_done: bool,
}

enum AnswerSource {
    Call(RelayedCall),
    Chunks(Chunks),
    Over,
}

impl Relay {
    /// Relays a call whose client asked for events. With `ends`, the last event is always `[DONE]`.
    pub(super) fn asked(
        call: RelayedCall,
        tally: UsageTally,
        request_id: &str,
        ends: bool,
    ) -> Self {
        Self {
            source: AnswerSource::Call(call),
            framer: EventFramer::default(),
            tally,
            request_id: request_id.to_owned(),
            media_type: None,
            worker: None,
            is_asked: true,
            ends,
            is_done: false,
        }
    }

    /// Relays chunks that the client did not ask for, unchanged.
    pub(super) fn passthrough(
        chunks: Chunks,
        media_type: String,
        tally: UsageTally,
        request_id: &str,
    ) -> Self {
        Self {
            source: AnswerSource::Chunks(chunks),
            framer: EventFramer::default(),
            tally,
            request_id: request_id.to_owned(),
            media_type: Some(media_type),
            worker: None,
            is_asked: false,
            ends: false,
            is_done: false,
        }
    }

    /// Returns the response once the first event has arrived, or an error.
    pub(super) async fn respond(mut self) -> Result<Response, GatewayError> {
        let first = match self.next_in_time().await {
            Some(next) => next.transpose()?,
            None => Some(Bytes::from_static(KEEP_ALIVE.as_bytes())),
        };
        self.tally.begins();
        let worker = self.worker.take();
        let media_type = self.media_type.as_deref().unwrap_or(EVENT_STREAM);
        let media_type = HeaderValue::from_str(media_type);
        let head = [
            (
                header::CONTENT_TYPE,
                media_type.unwrap_or(HeaderValue::from_static(EVENT_STREAM)),
            ),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (BUFFERING, HeaderValue::from_static("no")),
        ];
        let rest = stream::unfold(self, async |mut relay| {
            let piece = relay.piece().await?;
            Some((piece, relay))
        });
        let pieces = stream::iter(first).chain(rest).map(Ok::<_, Infallible>);
        let mut response = (head, Body::from_stream(pieces)).into_response();
        name_worker(&mut response, worker);
        Ok(response)
    }

    /// Returns the next bytes to send after the status was sent.
    async fn piece(&mut self) -> Option<Bytes> {
        loop {
            match self.next_in_time().await {
                Some(Some(Ok(bytes))) => return Some(bytes),
                Some(Some(Err(error))) => return Some(self.error_event(error)),
                Some(None) => return None,
                None if self.framer.is_amid() => {}
                None => return Some(Bytes::from_static(KEEP_ALIVE.as_bytes())),
            }
        }
    }

    /// Returns the next event; `None` if a client that asked for events should get a comment
    /// meanwhile.
    async fn next_in_time(&mut self) -> Option<Option<Result<Bytes, GatewayError>>> {
        if !self.is_asked {
            return Some(self.next().await);
        }
        tokio::time::timeout(KEEP_ALIVE_INTERVAL, self.next())
            .await
            .ok()
    }

    /// Returns the next event. Cancel-safe: dropping the future loses no data.
    async fn next(&mut self) -> Option<Result<Bytes, GatewayError>> {
        loop {
            match &mut self.source {
                AnswerSource::Over => return None,
                AnswerSource::Call(call) => {
                    let answer = call.as_mut().await;
                    self.source = AnswerSource::Over;
                    match answer {
                        Ok(answer) => {
                            if let Some(whole) = self.take(answer) {
                                return Some(whole);
                            }
                        }
                        Err(error) => return Some(Err(call_error(error))),
                    }
                }
                AnswerSource::Chunks(chunks) => match chunks.next().await {
                    Some(Ok(chunk)) => {
                        if let Some(events) = self.framer.push(chunk) {
                            return Some(Ok(self.seen(events)));
                        }
                    }
                    Some(Err(error)) => {
                        self.source = AnswerSource::Over;
                        return Some(Err(call_error(error)));
                    }
                    None => {
                        self.source = AnswerSource::Over;
                        let rest = self.framer.finish();
                        return self.end(rest).map(Ok);
                    }
                },
            }
        }
    }

    /// Starts to relay an answer. An unstreamed answer is converted and returned completely.
    fn take(&mut self, answer: Answer) -> Option<Result<Bytes, GatewayError>> {
        self.tally.answered(&answer);
        self.worker = answer.worker;
        let body = match answer.body {
            service::Body::Stream(chunks) => {
                self.media_type = Some(answer.content_type);
                self.source = AnswerSource::Chunks(chunks);
                return None;
            }
            service::Body::Whole(body) => body,
        };
        let Some(events) = unstreamed::events(&body) else {
            let media = answer.content_type;
            let message = format!(
                "the service does not stream: expected events or a completion, got `{media}`; \
                 retry without `stream`"
            );
            let status = StatusCode::BAD_GATEWAY;
            return Some(Err(GatewayError::new(
                status,
                "SERVICE_DOES_NOT_STREAM",
                message,
            )));
        };
        self.tally.reported.read_answer(&body);
        self.is_done = true;
        Some(Ok(events.into()))
    }

    fn seen(&mut self, events: Bytes) -> Bytes {
        self.is_done |= self.tally.reported.read_events(&events);
        events
    }

    /// Returns the end of a stream, completed with a final event if it lacks one.
    fn end(&mut self, rest: Bytes) -> Option<Bytes> {
        let rest = self.seen(rest);
        if !self.ends || self.is_done {
            return (!rest.is_empty()).then_some(rest);
        }
        let between: &[u8] = if rest.is_empty() { b"" } else { b"\n\n" };
        Some([&rest[..], between, DONE.as_bytes()].concat().into())
    }

    /// Returns an error as the last event.
    fn error_event(&mut self, mut error: GatewayError) -> Bytes {
        let (request, code) = (&self.request_id, &error.code);
        tracing::warn!(
            request,
            code,
            detail = error.detail(),
            "the answer was interrupted"
        );
        error.take_detail();
        let data = error.event_data(&self.request_id);
        // An empty line ends an event that was sent only in part.
        let before = if self.framer.is_amid() { "\n\n" } else { "" };
        let done = if self.ends { DONE } else { "" };
        format!("{before}data: {data}\n\n{done}").into()
    }
}
