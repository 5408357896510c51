//! Reads records of a Core ML weight file (`weight.bin`): each has a header, followed by its
//! elements.
//!
//! Elements below one byte are packed. Format: `MILBlob` of coremltools 9: `u32` 0xDEADBEEF, `u32`
//! dtype, `u64` size, `u64` offset in the file. Invariant: a record's elements lie inside the file.

use super::super::storage::ByteRange;
use super::program::MilType;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

const SENTINEL: u32 = 0xDEAD_BEEF;

/// A record: type and position of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Their type.
    pub kind: MilType,
    /// Their position in the program's file.
    pub bytes: ByteRange,
}

impl Blob {
    /// Reads the record at an offset of a weight file.
    pub(crate) fn read(
        pages: &Pages<'_>,
        file: ByteRange,
        offset: u64,
    ) -> Result<Self, FormatError> {
        let place =
            || FieldPosition::new("Core ML weight record", file.offset.saturating_add(offset));
        let outside = |size: u64| place().data_offset(file.size, size);
        let inside = offset.checked_add(64).is_some_and(|end| end <= file.size);
        if !inside {
            return Err(outside(offset));
        }
        let header: [u8; 24] = pages
            .array(file.offset + offset)
            .map_err(|error| place().unreadable(&error))?;
        let four = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let eight = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight"));
        if four(0) != SENTINEL {
            return Err(place().expected("a record that begins with 0xDEADBEEF", four(0)));
        }
        let (size, start) = (eight(8), eight(16));
        match start.checked_add(size) {
            Some(end) if end <= file.size => Ok(Self {
                kind: kind(four(4)),
                bytes: ByteRange {
                    offset: file.offset + start,
                    size,
                },
            }),
            _ => Err(outside(start.saturating_add(size))),
        }
    }
}

/// Returns the element type for its number in weight files.
fn kind(code: u32) -> MilType {
    match code {
        1 => MilType::Float16,
        2 => MilType::Float32,
        3 => MilType::Uint8,
        4 => MilType::Int8,
        5 => MilType::Bfloat16,
        6 => MilType::Int16,
        7 => MilType::Uint16,
        8 => MilType::Int4,
        9 => MilType::Uint1,
        10 => MilType::Uint2,
        11 => MilType::Uint4,
        12 => MilType::Uint3,
        13 => MilType::Uint6,
        14 => MilType::Int32,
        15 => MilType::Uint32,
        _ => MilType::Unknown,
    }
}
