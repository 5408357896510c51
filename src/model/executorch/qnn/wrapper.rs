//! What ExecuTorch's delegate for QNN puts before a binary of Qualcomm's tools.
//!
//! `backends/qualcomm/runtime/backends/QnnCustomProtocol.h` of ExecuTorch: a magic number, a signature, the size of
//! the binary. The header has 256 bytes since binaries are aligned to them, and had 20 before. Releases between
//! also wrote the graph itself (`QnnQcirCustomProtocol`), to be compiled on the device. Invariant: what is found lies
//! inside the payload.

use super::super::error::{Error, Place};
use super::super::storage::ByteRange;
use super::context::is_context;
use crate::source::Pages;

/// Magic number before a binary.
const BINARY: u32 = 0x5678_ABCD;
/// Magic number before a graph that is not compiled.
const GRAPH: u32 = 0x1234_ABCD;
/// Bytes of the fields of the header before a binary: magic number, signature, size.
const FIELDS: u64 = 20;
/// Bytes of that header where binaries are aligned (`QNN_CTX_BIN_ALIGNMENT`).
const ALIGNED: u64 = 256;
/// Bytes of the header before a graph: magic number, size of the FlatBuffer, size of the tensors.
const GRAPH_FIELDS: u64 = 16;
/// What a zip archive begins with, and so a deep learning container (DLC), which is one.
const ZIP: [u8; 4] = *b"PK\x03\x04";

/// What a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrapped {
    /// Bytes of the header; none of a binary that has no wrapper.
    pub(super) header: u64,
    /// What is behind it.
    pub(super) inside: Inside,
    /// Where that is.
    pub(super) range: ByteRange,
}

/// What is behind the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    /// A context binary whose description can be read.
    Context,
    /// A deep learning container: graphs that the device compiles.
    Container,
    /// ExecuTorch's own form of a graph, with its tensors: the device compiles it.
    Graph,
    /// A binary with none of the beginnings that are known here.
    Other,
}

/// Looks at the head of a payload.
pub(super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Result<Wrapped, Error> {
    let ByteRange { offset, size } = payload;
    let read = |at: u64, error| Error::Read {
        place: place("magic", at),
        error,
    };
    let magic = if size < 4 {
        None
    } else {
        let bytes = pages.array(offset).map_err(|error| read(offset, error))?;
        Some(u32::from_le_bytes(bytes))
    };
    let (header, range) = match magic {
        Some(BINARY) => binary(pages, payload)?,
        Some(GRAPH) => return graph(pages, payload),
        // Early releases wrote context binaries as they are.
        _ if is_context(pages, payload) => (0, payload),
        _ => {
            let found = magic.map_or("too few bytes".to_owned(), |magic| format!("{magic:#010x}"));
            return Err(Error::PayloadMagic {
                place: place("magic", offset),
                expected: "0x5678abcd, 0x1234abcd or a context binary",
                found,
            });
        }
    };
    let inside = if is_context(pages, range) {
        Inside::Context
    } else if range.size >= 4 {
        let bytes: [u8; 4] = pages
            .array(range.offset)
            .map_err(|error| read(range.offset, error))?;
        if bytes == ZIP {
            Inside::Container
        } else {
            Inside::Other
        }
    } else {
        Inside::Other
    };
    Ok(Wrapped {
        header,
        inside,
        range,
    })
}

/// Where the binary behind a header is. Both headers say the same: what fits tells which one it is.
fn binary(pages: &Pages<'_>, payload: ByteRange) -> Result<(u64, ByteRange), Error> {
    let at = payload.offset + 12;
    let size = number(pages, payload, 12)?;
    let fits = |header: u64| {
        let end = header.checked_add(size);
        end.is_some_and(|end| end <= payload.size)
    };
    let header = [ALIGNED, FIELDS].into_iter().find(|header| fits(*header));
    let header = header.ok_or_else(|| Error::Truncated {
        place: place("binary_size", at),
        size,
        base: FIELDS,
        needs: u128::from(FIELDS) + u128::from(size),
        len: payload.size,
    })?;
    let range = ByteRange {
        offset: payload.offset + header,
        size,
    };
    Ok((header, range))
}

/// A graph that is not compiled: a FlatBuffer, then tensors.
fn graph(pages: &Pages<'_>, payload: ByteRange) -> Result<Wrapped, Error> {
    let sizes = number(pages, payload, 4)?;
    let flatbuffer = sizes & u64::from(u32::MAX);
    let tensors = number(pages, payload, 8)?;
    let size = flatbuffer.saturating_add(tensors);
    let end = size.checked_add(GRAPH_FIELDS);
    if end.is_none_or(|end| end > payload.size) {
        return Err(Error::Truncated {
            place: place("tensor_size", payload.offset + 8),
            size: tensors,
            base: GRAPH_FIELDS + flatbuffer,
            needs: u128::from(GRAPH_FIELDS) + u128::from(flatbuffer) + u128::from(tensors),
            len: payload.size,
        });
    }
    Ok(Wrapped {
        header: GRAPH_FIELDS,
        inside: Inside::Graph,
        range: ByteRange {
            offset: payload.offset + GRAPH_FIELDS,
            size,
        },
    })
}

/// The number of eight bytes at this place of the payload.
fn number(pages: &Pages<'_>, payload: ByteRange, at: u64) -> Result<u64, Error> {
    let here = payload.offset + at;
    if at + 8 > payload.size {
        return Err(Error::Truncated {
            place: place("size", here),
            size: 8,
            base: at,
            needs: u128::from(at) + 8,
            len: payload.size,
        });
    }
    let bytes = pages.array(here).map_err(|error| Error::Read {
        place: place("size", here),
        error,
    })?;
    Ok(u64::from_le_bytes(bytes))
}

fn place(field: &str, offset: u64) -> Place {
    Place {
        path: format!("QNN payload header.{field}"),
        offset,
    }
}
