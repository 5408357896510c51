//! Locates the parts of an XNNPACK payload: an `XNNGraph`, bare or behind a header `XH00`, then
//! constants.
//!
//! Invariant: both parts lie inside the payload.

use super::super::payload_header::PayloadHeader;
use super::super::storage::ByteRange;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Identifiers of the graph's FlatBuffer.
const IDENTIFIERS: [[u8; 4]; 2] = [*b"XN00", *b"XN01"];

/// The positions of the parts.
pub(super) struct XnnpackParts {
    /// The graph's FlatBuffer.
    pub(super) graph: ByteRange,
    /// Constants that the graph references.
    pub(super) constants: ByteRange,
}

impl XnnpackParts {
    /// Locates the parts of a payload; `None` if it does not begin like an XNNPACK payload.
    pub(super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Result<Option<Self>, FormatError> {
        let ByteRange { offset, size: len } = payload;
        if len < PayloadHeader::SIZE as u64 {
            return Ok(None);
        }
        let place = |at: u64, field: &str| {
            FieldPosition::new(format_args!("XNNPACK payload header.{field}"), offset + at)
        };
        let header = pages
            .array(offset)
            .map_err(|error| place(0, "magic").unreadable(&error))?;
        let header = PayloadHeader::of(&header);
        if IDENTIFIERS.contains(&header.magic) {
            return Ok(Some(Self {
                graph: payload,
                constants: ByteRange {
                    offset: offset + len,
                    size: 0,
                },
            }));
        }
        if header.magic != *b"XH00" {
            return Ok(None);
        }
        let (graph, constants) = header.parts(payload, 1, place, "constant_data_size")?;
        Ok(Some(Self { graph, constants }))
    }

    /// Returns the identifier of the FlatBuffer, if it is not one of XNNPACK's graphs.
    pub(super) fn unexpected_identifier(
        &self,
        pages: &Pages<'_>,
    ) -> Result<Option<[u8; 4]>, FormatError> {
        let at = self.graph.offset + 4;
        let mark = pages.array(at).map_err(|error| {
            FieldPosition::new("XNNPACK payload FlatBuffer", at).unreadable(&error)
        })?;
        Ok((!IDENTIFIERS.contains(&mark)).then_some(mark))
    }
}
