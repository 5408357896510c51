//! The header that ExecuTorch writes before the FlatBuffer of several backends.
//!
//! A magic text, then where the FlatBuffer and the data behind it are, from the payload's first byte. Nothing of it
//! is believed: [`Header::parts`] holds both against the payload's size.

use super::error::{Error, Place};
use super::storage::ByteRange;

/// A header; each range is offset and size.
pub(super) struct Header {
    /// The magic text.
    pub(super) magic: [u8; 4],
    /// Where the FlatBuffer is.
    pub(super) flatbuffer: (u64, u64),
    /// Where the data is.
    pub(super) data: (u64, u64),
}

impl Header {
    /// Its length in bytes.
    pub(super) const SIZE: usize = 30;

    /// The one in these bytes.
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

    /// Where the FlatBuffer, of so many bytes at least, and the data are in a file. `place` names a field of the
    /// header, `data_size` that of the data's size.
    pub(super) fn parts(
        &self,
        payload: ByteRange,
        least: u64,
        place: impl Fn(u64, &str) -> Place,
        data_size: &str,
    ) -> Result<(ByteRange, ByteRange), Error> {
        let ByteRange { offset, size: len } = payload;
        let ((graph, size), (data, constants)) = (self.flatbuffer, self.data);
        if size < least || graph + size > len {
            return Err(Error::ProgramSize {
                place: place(14, "flatbuffer_size"),
                found: size,
                least: 8,
                most: len.saturating_sub(graph),
            });
        }
        if data.checked_add(constants).is_none_or(|end| end > len) {
            return Err(Error::Truncated {
                place: place(22, data_size),
                size: constants,
                base: data,
                needs: u128::from(data) + u128::from(constants),
                len,
            });
        }
        let inside = |at: u64, size: u64| ByteRange {
            offset: offset + at,
            size,
        };
        Ok((inside(graph, size), inside(data, constants)))
    }
}
