//! Where the parts of a payload are: `XNNGraph`, bare or behind a header `XH00`, and constants behind it.
//!
//! Invariant: both parts lie inside the payload.

use super::super::error::{Error, Place};
use super::super::payload_header::Header;
use super::super::storage::ByteRange;
use crate::source::Pages;

/// What a graph's FlatBuffer is marked as.
const IDENTIFIERS: [[u8; 4]; 2] = [*b"XN00", *b"XN01"];

/// The parts.
pub(super) struct Parts {
    /// The graph's FlatBuffer.
    pub(super) graph: ByteRange,
    /// Constants that the graph refers to.
    pub(super) constants: ByteRange,
}

impl Parts {
    /// Those of a payload; nothing if it does not begin like one of XNNPACK's.
    pub(super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Result<Option<Self>, Error> {
        let ByteRange { offset, size: len } = payload;
        if len < Header::SIZE as u64 {
            return Ok(None);
        }
        let place = |at: u64, field: &str| Place {
            path: format!("XNNPACK payload header.{field}"),
            offset: offset + at,
        };
        let header = pages.array(offset).map_err(|error| Error::Read {
            place: place(0, "magic"),
            error,
        })?;
        let header = Header::of(&header);
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

    /// What the FlatBuffer is marked as, if it is not as XNNPACK's graphs are.
    pub(super) fn other_mark(&self, pages: &Pages<'_>) -> Result<Option<[u8; 4]>, Error> {
        let at = self.graph.offset + 4;
        let mark = pages.array(at).map_err(|error| Error::Read {
            place: Place {
                path: "XNNPACK payload FlatBuffer".to_owned(),
                offset: at,
            },
            error,
        })?;
        Ok((!IDENTIFIERS.contains(&mark)).then_some(mark))
    }
}
