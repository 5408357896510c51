//! Locates the parts of a Vulkan payload: a `VkGraph` behind a header `VH00`, then constants.
//!
//! Invariant: both parts lie inside the payload.

use super::super::payload_header::PayloadHeader;
use super::super::storage::ByteRange;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Identifier of the graph's FlatBuffer.
const IDENTIFIER: [u8; 4] = *b"VK00";

/// The positions of the parts.
pub(super) struct VulkanParts {
    /// The graph's FlatBuffer.
    pub(super) graph: ByteRange,
    /// Constants that the graph references.
    pub(super) constants: ByteRange,
}

/// Returns the position of a payload's FlatBuffer, if the payload belongs to this backend.
pub(in super::super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Option<ByteRange> {
    VulkanParts::find(pages, payload)
        .ok()
        .map(|parts| parts.graph)
}

impl VulkanParts {
    /// Locates the parts of a payload; fails if the payload belongs to another backend.
    pub(super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Result<Self, FormatError> {
        let ByteRange { offset, size: len } = payload;
        let place = |at: u64, field: &str| {
            FieldPosition::new(format_args!("Vulkan payload header.{field}"), offset + at)
        };
        let wrong = |at: u64, found: [u8; 4]| {
            place(at, "magic").expected(
                "VH00, and VK00 in the FlatBuffer behind it",
                found.escape_ascii(),
            )
        };
        if len < PayloadHeader::SIZE as u64 {
            return Err(wrong(4, [0; 4]));
        }
        let header = pages
            .array(offset)
            .map_err(|error| place(0, "magic").unreadable(&error))?;
        let header = PayloadHeader::of(&header);
        if header.magic != *b"VH00" {
            return Err(wrong(4, header.magic));
        }
        let (graph, constants) = header.parts(payload, 8, place, "bytes_size")?;
        let behind = graph.offset - offset + 4;
        let mark = pages
            .array(offset + behind)
            .map_err(|error| place(behind, "identifier").unreadable(&error))?;
        if mark != IDENTIFIER {
            return Err(wrong(behind, mark));
        }
        Ok(Self { graph, constants })
    }
}
