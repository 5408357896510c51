//! The location of the constants of a delegate's graph.

use super::storage::ByteRange;
use crate::{FieldPosition, FormatError};

/// The location of a constant's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConstantData {
    /// In the payload: the range from its first byte to its maximum end.
    Payload(ByteRange),
    /// Under this name, in the program or in a data file.
    Named(String),
}

impl ConstantData {
    /// Returns the part with this offset and size of the bytes that a payload stores.
    pub(super) fn part(
        stored: ByteRange,
        offset: u64,
        size: u64,
        place: impl FnOnce() -> FieldPosition,
    ) -> Result<Self, FormatError> {
        match offset.checked_add(size) {
            Some(end) if end <= stored.size => Ok(Self::Payload(ByteRange {
                offset: stored.offset + offset,
                size,
            })),
            _ => Err(place().data_offset(stored.size, offset.saturating_add(size))),
        }
    }
}
