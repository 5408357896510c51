//! The body of a request: read up to its limit, in the time it has, within the memory for bodies; or on
//! its way to the blob store.
//!
//! Invariant: nothing is read before there is room for it, and never more than the limit, whatever the
//! request says of its length and however well it is compressed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request as HttpRequest;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::Gateway;
use super::coding::{Coding, Decoder, Fault};
use super::error::Error;
use crate::account::AccountId;
use crate::service::{Buffer, Holding, NoRoom};
use crate::task::{Content, TaskId, Upload};

/// Bodies of more bytes go to the blob store as they arrive, where they go there at all.
pub(super) const LARGE: usize = 256 << 10;

/// The length that a request says its body has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared(Option<usize>);

/// A body that was read.
pub(super) enum Taken {
    /// It is in memory.
    Memory(Bytes, Arc<Holding>),
    /// It is in the blob store.
    Stored(Content),
}

/// A body that arrives.
pub(super) struct Arriving {
    body: Body,
    decoder: Decoder,
    /// What the decoder takes of the memory for bodies.
    beside: usize,
    deadline: Instant,
    /// Bytes that came of it, and how many there may be.
    read: usize,
    limit: usize,
}

impl Declared {
    /// What the head of a request says.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        let is_plain = headers.get(header::CONTENT_ENCODING).is_none();
        Self(length.filter(|_| is_plain))
    }

    /// Whether the body may be large.
    pub(super) fn may_be_large(self) -> bool {
        self.0.is_none_or(|length| length > LARGE)
    }
}

/// Reads the whole body of a request into memory. Called once it is clear that the request may be made:
/// a stranger's body is not read.
pub(super) async fn read_body(
    gateway: &Gateway,
    account: AccountId,
    request: HttpRequest,
) -> Result<(Bytes, Arc<Holding>), Error> {
    let declared = Declared::of(request.headers());
    let mut arriving = arrive(gateway, request, declared, 1)?;
    let mut buffer = arriving.buffer(gateway, account, declared.0.unwrap_or(0), declared.0)?;
    while let Some(chunk) = arriving.next().await? {
        buffer
            .push(&chunk)
            .map_err(|error| gateway.no_room(account, error))?;
    }
    Ok(buffer.finish())
}

/// The same of a body that is to be stored: a large one goes to the blob store under the task's id.
pub(super) async fn take_body(
    gateway: &Gateway,
    account: AccountId,
    request: HttpRequest,
    task: TaskId,
) -> Result<Taken, Error> {
    let declared = Declared::of(request.headers());
    let mut arriving = arrive(gateway, request, declared, 1)?;
    let expected = declared.0.unwrap_or(0);
    let expected = if expected > LARGE {
        Upload::MEMORY
    } else {
        expected
    };
    let mut buffer = arriving.buffer(gateway, account, expected, Some(LARGE))?;
    let mut beyond = None;
    while let Some(chunk) = arriving.next().await? {
        if arriving.read > LARGE {
            beyond = Some(chunk);
            break;
        }
        buffer
            .push(&chunk)
            .map_err(|error| gateway.no_room(account, error))?;
    }
    let Some(beyond) = beyond else {
        let (body, holding) = buffer.finish();
        return Ok(Taken::Memory(body, holding));
    };
    // Held until all of it is stored.
    let (start, _holding) = buffer.hand_over();
    let mut upload = gateway.blobs.upload_body(task).await?;
    upload.push(start).await?;
    upload.push(beyond).await?;
    while let Some(chunk) = arriving.next().await? {
        upload.push(chunk).await?;
    }
    Ok(Taken::Stored(upload.finish().await?))
}

/// A body that is a file, of up to so many bytes: it is nowhere in memory, and has the more time the more it may
/// be.
pub(super) fn arriving_file(
    gateway: &Gateway,
    request: HttpRequest,
    bytes: usize,
) -> Result<Arriving, Error> {
    let declared = Declared::of(request.headers());
    let body = gateway.current().limits.body_bytes;
    let times = u32::try_from(bytes.div_ceil(body.max(1))).unwrap_or(u32::MAX);
    let mut arriving = arrive(gateway, request, Declared(None), times)?;
    arriving.limit = bytes;
    if declared.0.is_some_and(|it| it > bytes) {
        return Err(Error::too_large(bytes));
    }
    Ok(arriving)
}

/// A request's body, of which nothing is read yet. It has so many times as long as others.
fn arrive(
    gateway: &Gateway,
    request: HttpRequest,
    declared: Declared,
    times: u32,
) -> Result<Arriving, Error> {
    let settings = gateway.current();
    let limit = settings.limits.body_bytes;
    let coding = Coding::of(request.headers()).map_err(|coding| Error::unknown_coding(&coding))?;
    if declared.0.is_some_and(|it| it > limit) {
        return Err(Error::too_large(limit));
    }
    let decoder = coding
        .decoder()
        .map_err(|error| Error::undecodable(&error))?;
    Ok(Arriving {
        beside: coding.memory(),
        body: request.into_body(),
        decoder,
        deadline: Instant::now() + settings.timeouts.body().saturating_mul(times),
        read: 0,
        limit,
    })
}

impl Arriving {
    /// A buffer for at most so many bytes, which has `expected` bytes of the memory for bodies.
    fn buffer(
        &self,
        gateway: &Gateway,
        account: AccountId,
        expected: usize,
        most: Option<usize>,
    ) -> Result<Buffer, Error> {
        let held = gateway.memory.take(account, self.beside + expected);
        let held = held.map_err(|error| gateway.no_room(account, error))?;
        Ok(Buffer::new(held, self.beside, most.unwrap_or(self.limit)))
    }

    fn count(&mut self, bytes: Bytes) -> Result<Bytes, Error> {
        self.read = self.read.saturating_add(bytes.len());
        if self.read > self.limit {
            return Err(Error::too_large(self.limit));
        }
        Ok(bytes)
    }

    /// The next bytes, decoded.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let decoded = self.decoder.next();
            if let Some(bytes) = decoded.map_err(|error| Error::undecodable(&error))? {
                return self.count(bytes).map(Some);
            }
            let frame = tokio::time::timeout_at(self.deadline, self.body.frame());
            match frame.await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.decoder.push(bytes);
                    }
                }
                Ok(None) => {
                    let rest = self.decoder.finish();
                    let rest = rest.map_err(|error| Error::undecodable(&error))?;
                    return rest.map(|rest| self.count(rest)).transpose();
                }
                Ok(Some(Err(error))) => {
                    let message = format!("the body could not be read: {error}");
                    return Err(Error::bad_request(message));
                }
                Err(_) => return Err(Error::body_timeout()),
            }
        }
    }
}

impl Gateway {
    /// Tells that there is no memory for a body, and counts it.
    pub(super) fn no_room(&self, account: AccountId, error: NoRoom) -> Error {
        let limit = match error {
            NoRoom::Share => "body_memory_of_account",
            NoRoom::Full => "body_memory",
        };
        self.limit_met(limit, &format_args!("account {}", account.0));
        Error::no_room(error)
    }
}

impl Error {
    fn no_room(error: NoRoom) -> Self {
        let (status, code) = match error {
            NoRoom::Share => (StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_BODY_BYTES"),
            NoRoom::Full => (StatusCode::SERVICE_UNAVAILABLE, "BODY_MEMORY_IS_FULL"),
        };
        Self::new(status, code, error.to_string()).retry_after(1)
    }

    fn unknown_coding(coding: &str) -> Self {
        let message =
            format!("the body is encoded with `{coding}`; expected gzip, zstd or nothing");
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::new(status, "UNSUPPORTED_CONTENT_ENCODING", message).with("place", "Content-Encoding")
    }

    fn undecodable(fault: &Fault) -> Self {
        Self::bad_request(format!("the body cannot be decoded: {fault}"))
            .with("place", "Content-Encoding")
    }

    fn body_timeout() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "REQUEST_BODY_TIMEOUT",
            "the body did not arrive in time",
        )
    }
}
