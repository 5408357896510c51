//! Records of a weight file (`weight.bin`): a header for each, its elements behind it, packed below a byte.
//!
//! `MILBlob` of coremltools 9: `u32` 0xDEADBEEF, `u32` dtype, `u64` size, `u64` offset in the file. Invariant: a
//! record's elements lie inside the file.

use super::super::error::{Error, Place};
use super::super::storage::ByteRange;
use super::program::Kind;
use crate::source::Pages;

const SENTINEL: u32 = 0xDEAD_BEEF;

/// The elements of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// What they are.
    pub kind: Kind,
    /// Where they lie in the program's file.
    pub bytes: ByteRange,
}

impl Blob {
    /// The record at an offset of a weight file.
    pub(in crate::model) fn read(
        pages: &Pages<'_>,
        file: ByteRange,
        offset: u64,
    ) -> Result<Self, Error> {
        let place = || Place {
            path: "Core ML weight record".to_owned(),
            offset: file.offset.saturating_add(offset),
        };
        let outside = |size: u64| Error::DataOffset {
            place: place(),
            found: size,
            most: file.size,
        };
        let inside = offset.checked_add(64).is_some_and(|end| end <= file.size);
        if !inside {
            return Err(outside(offset));
        }
        let header: [u8; 24] = pages
            .array(file.offset + offset)
            .map_err(|error| Error::Read {
                place: place(),
                error,
            })?;
        let four = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let eight = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight"));
        if four(0) != SENTINEL {
            return Err(Error::Value {
                place: place(),
                expected: "a record that begins with 0xDEADBEEF".to_owned(),
                found: four(0).into(),
            });
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

/// Types of elements by their numbers in weight files.
fn kind(code: u32) -> Kind {
    match code {
        1 => Kind::Float16,
        2 => Kind::Float32,
        3 => Kind::Uint8,
        4 => Kind::Int8,
        5 => Kind::Bfloat16,
        6 => Kind::Int16,
        7 => Kind::Uint16,
        8 => Kind::Int4,
        9 => Kind::Uint1,
        10 => Kind::Uint2,
        11 => Kind::Uint4,
        12 => Kind::Uint3,
        13 => Kind::Uint6,
        14 => Kind::Int32,
        15 => Kind::Uint32,
        _ => Kind::Unknown,
    }
}
