//! Request ids: the id that the client sent, or a generated one that is unique to this process.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header of a request's id. An id that the client sends is kept.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("z-requestid");

/// The name under which clients of chat adapters read the same id.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of a client's id, in bytes.
const MAX_ID_BYTES: usize = 128;

/// Generates ids that differ between processes and requests.
#[derive(Debug)]
pub(super) struct RequestIds {
    process: u64,
    next: AtomicU64,
}

impl RequestIds {
    /// Returns a generator for this process.
    pub(super) fn new() -> Self {
        let mut random = [0; 8];
        // Without randomness ids repeat after a restart. Only the logs would show it.
        let _ = getrandom::fill(&mut random);
        Self {
            process: u64::from_ne_bytes(random),
            next: AtomicU64::new(1),
        }
    }

    /// Returns the id of a request with these headers: the client's id, or a new one.
    pub(super) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let sent = headers.get(REQUEST_ID).filter(|sent| {
            let visible = |byte: &u8| byte.is_ascii_graphic();
            !sent.is_empty() && sent.len() <= MAX_ID_BYTES && sent.as_bytes().iter().all(visible)
        });
        if let Some(sent) = sent {
            return sent.clone();
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = String::with_capacity(32);
        // Writing to a string does not fail.
        let _ = write!(text, "{:016x}-{number:x}", self.process);
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("-"))
    }
}
