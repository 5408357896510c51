//! Where the parts of a payload are: `VkGraph` behind a header `VH00`, and constants behind it.
//!
//! Invariant: both parts lie inside the payload.

use super::super::error::{Error, Place};
use super::super::payload_header::Header;
use super::super::storage::ByteRange;
use crate::source::Pages;

/// What a graph's FlatBuffer is marked as.
const IDENTIFIER: [u8; 4] = *b"VK00";

/// The parts.
pub(super) struct Parts {
    /// The graph's FlatBuffer.
    pub(super) graph: ByteRange,
    /// Constants that the graph refers to.
    pub(super) constants: ByteRange,
}

/// Where the FlatBuffer of a payload is, if it is one of this backend's.
pub(in super::super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Option<ByteRange> {
    Parts::find(pages, payload).ok().map(|parts| parts.graph)
}

impl Parts {
    /// Those of a payload, which must be one of Vulkan's.
    pub(super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Result<Self, Error> {
        let ByteRange { offset, size: len } = payload;
        let place = |at: u64, field: &str| Place {
            path: format!("Vulkan payload header.{field}"),
            offset: offset + at,
        };
        let wrong = |at: u64, found: [u8; 4]| Error::PayloadMagic {
            place: place(at, "magic"),
            expected: "VH00, and VK00 in the FlatBuffer behind it",
            found: found.escape_ascii().to_string(),
        };
        if len < Header::SIZE as u64 {
            return Err(wrong(4, [0; 4]));
        }
        let header = pages.array(offset).map_err(|error| Error::Read {
            place: place(0, "magic"),
            error,
        })?;
        let header = Header::of(&header);
        if header.magic != *b"VH00" {
            return Err(wrong(4, header.magic));
        }
        let (graph, constants) = header.parts(payload, 8, place, "bytes_size")?;
        let behind = graph.offset - offset + 4;
        let mark = pages.array(offset + behind).map_err(|error| Error::Read {
            place: place(behind, "identifier"),
            error,
        })?;
        if mark != IDENTIFIER {
            return Err(wrong(behind, mark));
        }
        Ok(Self { graph, constants })
    }
}
