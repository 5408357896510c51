//! Reads the payloads of a method's delegates with the readers of their backends.
//!
//! A payload shared by several delegates is read for each of them, because they may call different
//! functions. Invariant: an unreadable payload is reported in the result with the position of the
//! error.

use super::body::{ByteRange, DelegateBody, MethodBody, ProgramBody};
use super::content::PayloadSummary;
use super::delegate::FindNamed;
use super::{coreml, mlx, qnn, vulkan, xnnpack};
use crate::FormatError;
use pkgtool_base::package::Backend;
use pkgtool_base::source::ReadAt;

/// Summarises a payload.
type ReadPayload = fn(&dyn ReadAt, ByteRange, FindNamed<'_>) -> Result<PayloadSummary, FormatError>;

/// The payload of a delegate.
#[derive(Debug)]
pub struct Payload {
    /// Its backend.
    pub backend: Backend,
    /// Its contents, or why they cannot be read.
    pub content: Result<PayloadSummary, FormatError>,
}

/// Readers by backend.
static READERS: &[(Backend, ReadPayload)] = &[
    (Backend::Xnnpack, |source, payload, _| {
        xnnpack::content(source, payload)
    }),
    (Backend::CoreMl, coreml::content),
    (Backend::Vulkan, |source, payload, _| {
        vulkan::content(source, payload)
    }),
    (Backend::Mlx, |source, payload, _| {
        mlx::content(source, payload)
    }),
    (Backend::Qnn, |source, payload, _| {
        qnn::content(source, payload)
    }),
];

/// Returns the payload contents of a method, one entry per delegate. `None` for a delegate without
/// a payload, or with a backend that lacks a reader.
pub fn contents(
    source: &dyn ReadAt,
    body: &ProgramBody,
    method: &MethodBody,
) -> Vec<Option<Payload>> {
    let delegates = method.delegates.iter();
    delegates
        .map(|delegate| payload_summary(source, body, delegate))
        .collect()
}

/// Returns the payload contents of one delegate of the program.
pub fn payload_summary(
    source: &dyn ReadAt,
    body: &ProgramBody,
    delegate: &DelegateBody,
) -> Option<Payload> {
    let named = |name: &str| body.named.get(name).copied();
    let backend = Backend::of_delegate(&delegate.id)?;
    let (_, read) = READERS.iter().find(|(known, _)| *known == backend)?;
    let content = read(source, delegate.payload?, &named);
    Some(Payload { backend, content })
}
