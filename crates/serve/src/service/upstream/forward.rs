//! Forwards a request to one address of an upstream, and retries it at another if that is safe.
//!
//! Invariant: a request that an address may have accepted is not sent to another. An answer is read
//! up to a size limit, and each of its events is passed on before the next one is read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::stream;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use super::pool::{CallFault, CallGuard};
use super::{JSON, Upstream, reason};
use crate::service::deadline::CallDeadline;
use crate::service::{Answer, Body, CallError, Chunks};

/// Size of the pieces in which a large body is sent, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Maximum number of addresses that a request is sent to.
const MAX_ATTEMPTS: usize = 3;

/// Maximum of the seconds that are passed on from `Retry-After`.
const MAX_RETRY_AFTER: u64 = 86_400;

/// Pause before the second attempt; it doubles for each further one. A random part of up to half is
/// subtracted as jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A request for an upstream.
#[derive(Debug)]
pub struct Forward {
    upstream: Arc<Upstream>,
    body: Bytes,
    content_type: HeaderValue,
}

/// Result of an attempt.
enum AttemptResult {
    /// The address accepted the request and started to answer.
    Answered(Response),
    /// The address rejected the request because it is overloaded or not ready.
    Refused(Response),
    /// The address did not receive the request.
    NotConnected(CallError),
    /// The address may have accepted the request.
    Failed(CallError),
}

impl Forward {
    pub(super) fn new(upstream: &Arc<Upstream>, body: Bytes, content_type: HeaderValue) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            body,
            content_type,
        }
    }

    /// Calls the upstream. Server-sent events are passed on as they arrive, each within the
    /// timeout. Other answers are returned when complete, within the timeout. Dropping the answer
    /// cancels the call.
    pub async fn predict(self, timeout: Option<Duration>) -> Result<Answer, CallError> {
        let deadline = CallDeadline::after(timeout);
        let upstream = Arc::clone(&self.upstream);
        let (held, response) = self.respond(deadline).await?;
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or(JSON).to_owned();
        let is_stream = status.is_success() && is_events(&content_type);
        let retry_after = retry_after(response.headers(), Utc::now());
        let chunks = AnswerReader {
            response,
            deadline,
            each: timeout.filter(|_| is_stream),
            read: 0,
            most: upstream.options.max_answer,
            _held: held,
        }
        .into_chunks();
        let mut body = Body::Stream(chunks);
        if !is_stream {
            body = Body::Whole(body.whole().await?);
        }
        if status.is_success() {
            return Ok(Answer {
                status: client_status(status),
                body,
                content_type,
                spent: None,
                worker: None,
            });
        }
        Err(CallError::Upstream {
            status: status.as_u16(),
            content_type,
            body: upstream.without_secrets(body.whole().await?),
            retry_after,
        })
    }

    /// Sends the request, with retries, and returns the head of the last answer.
    async fn respond(mut self, deadline: CallDeadline) -> Result<(CallGuard, Response), CallError> {
        let upstream = Arc::clone(&self.upstream);
        let pool = &upstream.pool;
        let most = pool.targets().len().min(MAX_ATTEMPTS);
        let mut tried = Vec::new();
        let mut next = pool.take(&tried);
        let mut last = None;
        while let Some(mut held) = next {
            if last.is_some() {
                deadline
                    .wait(tokio::time::sleep(pause(tried.len())))
                    .await?;
            }
            tried.push(held.number);
            // The last attempt consumes the body, so that its memory is freed once it is sent.
            let body = if tried.len() < most {
                self.body.clone()
            } else {
                std::mem::take(&mut self.body)
            };
            let sent = self.send(&held, body, deadline).await;
            last = Some(match record_result(&upstream, &mut held, sent) {
                AttemptResult::Answered(response) => return Ok((held, response)),
                AttemptResult::Failed(error) => return Err(error),
                AttemptResult::Refused(response) => Ok((held, response)),
                AttemptResult::NotConnected(error) => Err(error),
            });
            next = (tried.len() < most).then(|| pool.take(&tried)).flatten();
        }
        last.unwrap_or_else(|| {
            Err(CallError::Down {
                addresses: pool.targets().len(),
                retry_after: pool.wait(),
            })
        })
    }

    async fn send(
        &self,
        held: &CallGuard,
        body: Bytes,
        deadline: CallDeadline,
    ) -> Result<Result<Response, reqwest::Error>, CallError> {
        let upstream = &self.upstream;
        let request = upstream.client.post(held.target.address.url());
        let request = request
            .headers(upstream.headers.clone())
            .header(CONTENT_TYPE, self.content_type.clone())
            .header(ACCEPT, JSON);
        deadline.wait(with_body(request, body).send()).await
    }
}

/// Records the result of an attempt.
fn record_result(
    upstream: &Upstream,
    held: &mut CallGuard,
    sent: Result<Result<Response, reqwest::Error>, CallError>,
) -> AttemptResult {
    let pool = &upstream.pool;
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            let is_gone = error.is_connect();
            let reason = reason(error);
            let fault = if is_gone {
                CallFault::Gone
            } else {
                CallFault::Failed
            };
            pool.failed(held, fault, &reason);
            let error = CallError::Unreachable(reason);
            return if is_gone {
                AttemptResult::NotConnected(error)
            } else {
                AttemptResult::Failed(error)
            };
        }
        Err(error) => {
            pool.failed(held, CallFault::Failed, &error.to_string());
            return AttemptResult::Failed(error);
        }
    };
    match response.status().as_u16() {
        status @ (502..=504) => {
            pool.failed(held, CallFault::Failed, &format!("it answered {status}"));
        }
        _ => pool.succeeded(held),
    }
    match response.status() {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            AttemptResult::Refused(response)
        }
        _ => AttemptResult::Answered(response),
    }
}

/// Returns the status of an answer. Partial content becomes 200, because the client did not request
/// a range.
fn client_status(status: StatusCode) -> u16 {
    match status {
        StatusCode::PARTIAL_CONTENT => 200,
        other => other.as_u16(),
    }
}

/// Returns the pause after this many attempts.
fn pause(tried: usize) -> Duration {
    let mut random = [0];
    // Without random bytes, all clients pause equally long.
    let _ = getrandom::fill(&mut random);
    let doubled = FIRST_PAUSE * (1 << (tried.clamp(1, MAX_ATTEMPTS) - 1));
    doubled.mul_f64(1.0 - f64::from(random[0]) / 512.0)
}

/// An answer that is being read.
struct AnswerReader {
    response: reqwest::Response,
    deadline: CallDeadline,
    /// Time limit of each chunk after the first, instead of one for the whole answer.
    each: Option<Duration>,
    /// Bytes read so far, and their maximum.
    read: usize,
    most: usize,
    /// Counts the call as in flight until everything is read.
    _held: CallGuard,
}

impl AnswerReader {
    fn into_chunks(self) -> Chunks {
        Box::pin(stream::try_unfold(self, |mut reading| async move {
            let chunk = reading.next().await?;
            Ok(chunk.map(|chunk| (chunk, reading)))
        }))
    }

    async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        let chunk = self.deadline.wait(self.response.chunk()).await?;
        let chunk = chunk.map_err(|error| CallError::Unreachable(reason(error)))?;
        let Some(chunk) = chunk else { return Ok(None) };
        if self.each.is_some() {
            self.deadline = CallDeadline::after(self.each);
        }
        self.read = self.read.saturating_add(chunk.len());
        if self.read > self.most {
            return Err(CallError::Unreachable(format!(
                "its answer exceeds the limit of {} bytes",
                self.most
            )));
        }
        Ok(Some(chunk))
    }
}

/// Adds a body to a request. A large body is sent in pieces, so that its memory is freed once it is
/// sent instead of when the answer arrives.
fn with_body(request: reqwest::RequestBuilder, body: Bytes) -> reqwest::RequestBuilder {
    if body.len() <= PIECE_BYTES {
        return request.body(body);
    }
    let length = body.len();
    let pieces = stream::unfold(body, async |mut rest| {
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        (!piece.is_empty()).then_some((Ok::<_, std::convert::Infallible>(piece), rest))
    });
    let request = request.header(CONTENT_LENGTH, length);
    request.body(reqwest::Body::wrap_stream(pieces))
}

/// Returns the seconds of `Retry-After`, which has a number or a date.
fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<u64> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = value.parse().ok().or_else(|| {
        let date = DateTime::parse_from_rfc2822(value).ok()?;
        Some(u64::try_from((date.to_utc() - now).num_seconds()).unwrap_or(0))
    })?;
    Some(seconds.min(MAX_RETRY_AFTER))
}

/// Returns whether a media type is that of server-sent events.
fn is_events(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default();
    media.trim().eq_ignore_ascii_case("text/event-stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_says_when_to_try_again() {
        let now = DateTime::parse_from_rfc2822("Sat, 28 Nov 2026 10:00:00 GMT");
        let now = now.expect("a date").to_utc();
        let seconds = |text: &'static str| {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(text))];
            retry_after(&headers.into_iter().collect(), now)
        };
        assert_eq!(seconds("7"), Some(7));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(seconds("99999999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(seconds("Sat, 28 Nov 2026 10:01:30 GMT"), Some(90));
        assert_eq!(seconds("Sat, 28 Nov 2026 09:00:00 GMT"), Some(0));
        for odd in ["", "-1", "soon", "1.5", "99999999999999999999999"] {
            assert_eq!(seconds(odd), None, "{odd}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn events_are_told_by_their_media_type() {
        for events in ["text/event-stream", "Text/Event-Stream ; charset=utf-8"] {
            assert!(is_events(events), "{events}");
        }
        for other in ["application/json", "text/event-stream-x", "text/plain", ""] {
            assert!(!is_events(other), "{other}");
        }
    }

    #[test]
    fn pauses_are_short_and_differ() {
        for tried in 1..=MAX_ATTEMPTS {
            let longest = FIRST_PAUSE * (1 << (tried - 1));
            for _ in 0..100 {
                let pause = pause(tried);
                assert!(pause <= longest && pause > longest / 2, "{pause:?}");
            }
        }
    }
}
