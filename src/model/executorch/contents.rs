//! What the payloads of a method's delegates hold, by the readers of their backends.
//!
//! A payload that several delegates share is looked into for each: what they call in it may differ. Invariant: a
//! payload that cannot be read is an answer, too, and says where it is broken.

use super::body::{ByteRange, DelegateBody, MethodBody, ProgramBody};
use super::content::Content;
use super::error::Error;
use super::{coreml, mlx, qnn, vulkan, xnnpack};
use crate::package::Backend;
use crate::source::ReadAt;

/// Finds what a program stores under a name.
type Named<'a> = &'a dyn Fn(&str) -> Option<ByteRange>;

/// Describes a payload.
type Read = fn(&dyn ReadAt, ByteRange, Named<'_>) -> Result<Content, Error>;

/// The payload of a delegate.
#[derive(Debug)]
pub struct Payload {
    /// Its backend.
    pub backend: Backend,
    /// What it holds, or why that cannot be told.
    pub content: Result<Content, Error>,
}

/// The backends whose payloads can be described.
static READERS: &[(Backend, Read)] = &[
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

/// What the payloads of a method hold, one entry a delegate; nothing for a backend whose payloads nobody reads,
/// and for a delegate without one.
pub fn contents(
    source: &dyn ReadAt,
    body: &ProgramBody,
    method: &MethodBody,
) -> Vec<Option<Payload>> {
    let delegates = method.delegates.iter();
    delegates
        .map(|delegate| content_of(source, body, delegate))
        .collect()
}

/// What the payload of one delegate of the program holds.
pub fn content_of(
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
