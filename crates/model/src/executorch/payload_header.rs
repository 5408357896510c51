//! The header that ExecuTorch writes before the FlatBuffer of several backends' payloads.
//!
//! The header consists of a magic text and the positions of the FlatBuffer and of the data behind
//! it, relative to the payload. [`PayloadHeader::parts`] checks both positions against the
//! payload's size.

use super::storage::ByteRange;
use crate::{FieldPosition, FormatError};

/// A parsed header; each range is offset and size.
pub(super) struct PayloadHeader {
    /// The magic text.
    pub(super) magic: [u8; 4],
    /// Position of the FlatBuffer.
    pub(super) flatbuffer: (u64, u64),
    /// Position of the data.
    pub(super) data: (u64, u64),
}

impl PayloadHeader {
    /// Length of the header in bytes.
    pub(super) const SIZE: usize = 30;

    /// Parses the header in these bytes.
    pub(super) fn of(bytes: &[u8; Self::SIZE]) -> Self {
        let four = |at: usize| -> [u8; 4] { bytes[at..at + 4].try_into().expect("four bytes") };
        let number = |at: usize| u64::from(u32::from_le_bytes(four(at)));
        let size = bytes[22..30].try_into().expect("eight bytes");
        Self {
            magic: four(4),
            flatbuffer: (number(10), number(14)),
            data: (number(18), u64::from_le_bytes(size)),
        }
    }

    /// Returns the ranges in the file of the FlatBuffer, which must have a minimum size, and of the
    /// data. `place` names a field of the header, `data_size` the field with the data's size.
    pub(super) fn parts(
        &self,
        payload: ByteRange,
        least: u64,
        place: impl Fn(u64, &str) -> FieldPosition,
        data_size: &str,
    ) -> Result<(ByteRange, ByteRange), FormatError> {
        let ByteRange { offset, size: len } = payload;
        let ((graph, size), (data, constants)) = (self.flatbuffer, self.data);
        if size < least || graph + size > len {
            return Err(place(14, "flatbuffer_size").flatbuffer_size(
                8,
                len.saturating_sub(graph),
                size,
            ));
        }
        if data.checked_add(constants).is_none_or(|end| end > len) {
            return Err(place(22, data_size).truncated(data, constants, len));
        }
        let inside = |at: u64, size: u64| ByteRange {
            offset: offset + at,
            size,
        };
        Ok((inside(graph, size), inside(data, constants)))
    }
}
