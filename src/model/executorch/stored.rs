//! Where the constants of a delegate's graph are kept.

use super::error::{Error, Place};
use super::storage::ByteRange;

/// Where a constant's elements are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// In the payload: from here to where it must end at the latest.
    Payload(ByteRange),
    /// Under this name, in the program or in a data file.
    Named(String),
}

impl Data {
    /// The part `offset`, `size` of the bytes that a payload stores.
    pub(super) fn part(
        stored: ByteRange,
        offset: u64,
        size: u64,
        place: impl FnOnce() -> Place,
    ) -> Result<Self, Error> {
        match offset.checked_add(size) {
            Some(end) if end <= stored.size => Ok(Self::Payload(ByteRange {
                offset: stored.offset + offset,
                size,
            })),
            _ => Err(Error::DataOffset {
                place: place(),
                found: offset.saturating_add(size),
                most: stored.size,
            }),
        }
    }
}
