//! Reads request bodies, within limits of size, time and memory.
//!
//! A body ends up in memory ([`read_body`]), in the blob store if it is large ([`receive_task_body`]), or
//! in a file that the caller writes piece by piece ([`receive_file`]).
//!
//! Invariant: memory is reserved before anything is read. No more than the limit is read, whatever
//! length the request declares and however well it is compressed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request as HttpRequest;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::Gateway;
use super::coding::{BodyDecoder, CodingError, ContentCoding};
use super::error::GatewayError;
use crate::account::AccountId;
use crate::service::{BodyBuffer, BodyReservation, OutOfBodyMemory};
use crate::task::{StoredContent, TaskId};

/// Bodies larger than this are streamed to the blob store, in bytes. Only bodies of tasks go there.
pub(super) const LARGE_BODY_BYTES: usize = 256 << 10;

/// The length that a request declares for its body; `None` if it is unknown or compressed.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeclaredLength(Option<usize>);

/// A body that was read completely.
pub(super) enum ReceivedBody {
    /// The body is in memory.
    Memory(Bytes, Arc<BodyReservation>),
    /// The body is in the blob store.
    Stored(StoredContent),
}

/// A body that is being received.
pub(super) struct IncomingBody {
    body: Body,
    decoder: BodyDecoder,
    /// Memory that the decoder needs, in bytes. It counts toward the memory for bodies.
    decoder_memory: usize,
    deadline: Instant,
    /// Decoded bytes so far, and their maximum (`limit`).
    read: usize,
    limit: usize,
}

impl DeclaredLength {
    /// Reads the length from the headers of a request.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        let is_plain = headers.get(header::CONTENT_ENCODING).is_none();
        Self(length.filter(|_| is_plain))
    }

    /// Returns `true` if the body may be larger than [`LARGE_BODY_BYTES`].
    pub(super) fn may_be_large(self) -> bool {
        self.0.is_none_or(|length| length > LARGE_BODY_BYTES)
    }
}

/// Reads the whole body of a request into memory. Callers check the caller's permissions first: the
/// body of a forbidden request is never read.
pub(super) async fn read_body(
    gateway: &Gateway,
    account: AccountId,
    request: HttpRequest,
) -> Result<(Bytes, Arc<BodyReservation>), GatewayError> {
    let declared = DeclaredLength::of(request.headers());
    let mut arriving = start_receiving(gateway, request, declared, 1)?;
    let mut buffer = arriving.buffer(gateway, account, declared.0.unwrap_or(0), declared.0)?;
    while let Some(chunk) = arriving.next().await? {
        buffer
            .push(&chunk)
            .map_err(|error| gateway.no_room(account, error))?;
    }
    Ok(buffer.finish())
}

/// Reads the body of a task: a large one goes to the blob store under the task's id.
pub(super) async fn receive_task_body(
    gateway: &Gateway,
    account: AccountId,
    request: HttpRequest,
    task: TaskId,
) -> Result<ReceivedBody, GatewayError> {
    let declared = DeclaredLength::of(request.headers());
    let mut arriving = start_receiving(gateway, request, declared, 1)?;
    let upload_memory = gateway.blobs.upload_memory();
    let expected = declared.0.unwrap_or(0).min(upload_memory);
    let mut buffer = arriving.buffer(gateway, account, expected, Some(LARGE_BODY_BYTES))?;
    let mut beyond = None;
    while let Some(chunk) = arriving.next().await? {
        if arriving.read > LARGE_BODY_BYTES {
            beyond = Some(chunk);
            break;
        }
        buffer
            .push(&chunk)
            .map_err(|error| gateway.no_room(account, error))?;
    }
    let Some(beyond) = beyond else {
        let (body, holding) = buffer.finish();
        return Ok(ReceivedBody::Memory(body, holding));
    };
    buffer
        .cover(declared.0.unwrap_or(usize::MAX).min(upload_memory))
        .map_err(|error| gateway.no_room(account, error))?;
    let (start, holding) = buffer.into_received();
    let mut upload = gateway.blobs.upload_body(task, holding);
    upload.push(start).await?;
    upload.push(beyond).await?;
    while let Some(chunk) = arriving.next().await? {
        upload.push(chunk).await?;
    }
    Ok(ReceivedBody::Stored(upload.finish().await?))
}

/// Starts receiving a body that is a file of up to `bytes` bytes. It is not buffered in memory. The
/// larger it may be, the longer it may take.
pub(super) fn receive_file(
    gateway: &Gateway,
    request: HttpRequest,
    bytes: usize,
) -> Result<IncomingBody, GatewayError> {
    let declared = DeclaredLength::of(request.headers());
    let body = gateway.current().limits.body_bytes;
    let times = u32::try_from(bytes.div_ceil(body.max(1))).unwrap_or(u32::MAX);
    let mut arriving = start_receiving(gateway, request, DeclaredLength(None), times)?;
    arriving.limit = bytes;
    if declared.0.is_some_and(|it| it > bytes) {
        return Err(GatewayError::too_large(bytes));
    }
    Ok(arriving)
}

/// Starts receiving a request's body. It may take `times` times the usual timeout.
fn start_receiving(
    gateway: &Gateway,
    request: HttpRequest,
    declared: DeclaredLength,
    times: u32,
) -> Result<IncomingBody, GatewayError> {
    let settings = gateway.current();
    let limit = settings.limits.body_bytes;
    let coding = ContentCoding::of(request.headers())
        .map_err(|coding| GatewayError::unknown_coding(&coding))?;
    if declared.0.is_some_and(|it| it > limit) {
        return Err(GatewayError::too_large(limit));
    }
    let decoder = coding
        .decoder()
        .map_err(|error| GatewayError::undecodable(&error))?;
    Ok(IncomingBody {
        decoder_memory: coding.memory(),
        body: request.into_body(),
        decoder,
        deadline: Instant::now() + settings.timeouts.body().saturating_mul(times),
        read: 0,
        limit,
    })
}

impl IncomingBody {
    /// Returns a buffer for at most `most` bytes, with `expected` bytes of the memory for bodies
    /// reserved.
    fn buffer(
        &self,
        gateway: &Gateway,
        account: AccountId,
        expected: usize,
        most: Option<usize>,
    ) -> Result<BodyBuffer, GatewayError> {
        let held = gateway.memory.take(account, self.decoder_memory + expected);
        let held = held.map_err(|error| gateway.no_room(account, error))?;
        Ok(BodyBuffer::new(
            held,
            self.decoder_memory,
            most.unwrap_or(self.limit),
        ))
    }

    fn count(&mut self, bytes: Bytes) -> Result<Bytes, GatewayError> {
        self.read = self.read.saturating_add(bytes.len());
        if self.read > self.limit {
            return Err(GatewayError::too_large(self.limit));
        }
        Ok(bytes)
    }

    /// Returns the next decoded bytes; `None` at the end of the body.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, GatewayError> {
        loop {
            let decoded = self.decoder.next();
            if let Some(bytes) = decoded.map_err(|error| GatewayError::undecodable(&error))? {
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
                    let rest = rest.map_err(|error| GatewayError::undecodable(&error))?;
                    return rest.map(|rest| self.count(rest)).transpose();
                }
                Ok(Some(Err(error))) => {
                    let message = format!("the body could not be read: {error}");
                    return Err(GatewayError::bad_request(message));
                }
                Err(_) => return Err(GatewayError::body_timeout()),
            }
        }
    }
}

impl Gateway {
    /// Reserves the memory of an upload to the blob store.
    pub(super) fn upload_memory(
        &self,
        account: AccountId,
    ) -> Result<Arc<BodyReservation>, GatewayError> {
        let held = self.memory.take(account, self.blobs.upload_memory());
        let held = held.map_err(|error| self.no_room(account, error))?;
        Ok(Arc::new(held))
    }

    /// Returns the error for a body that exceeds the memory for bodies, and counts it.
    pub(super) fn no_room(&self, account: AccountId, error: OutOfBodyMemory) -> GatewayError {
        let limit = match error {
            OutOfBodyMemory::Share => "body_memory_of_account",
            OutOfBodyMemory::Full => "body_memory",
        };
        self.limit_met(limit, &format_args!("account {}", account.0));
        GatewayError::no_room(error)
    }
}

impl GatewayError {
    fn no_room(error: OutOfBodyMemory) -> Self {
        let (status, code) = match error {
            OutOfBodyMemory::Share => (StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_BODY_BYTES"),
            OutOfBodyMemory::Full => (StatusCode::SERVICE_UNAVAILABLE, "BODY_MEMORY_IS_FULL"),
        };
        Self::new(status, code, error.to_string()).retry_after(1)
    }

    fn unknown_coding(coding: &str) -> Self {
        let message =
            format!("unsupported content encoding `{coding}`: expected gzip, zstd or none");
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::new(status, "UNSUPPORTED_CONTENT_ENCODING", message).with("place", "Content-Encoding")
    }

    fn undecodable(fault: &CodingError) -> Self {
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
