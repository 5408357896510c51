//! Parses the header that ExecuTorch's QNN delegate writes before a binary of Qualcomm's tools.
//!
//! Source: `backends/qualcomm/runtime/backends/QnnCustomProtocol.h` of ExecuTorch: a magic number,
//! a signature, the size of the binary. Current releases align the binary with a header of 256
//! bytes; older ones wrote 20 bytes. Some releases in between also wrote the graph itself
//! (`QnnQcirCustomProtocol`), which the device compiles. Invariant: the located bytes lie inside
//! the payload.

use super::super::storage::ByteRange;
use super::context::is_context;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Magic number before a binary.
const BINARY_MAGIC: u32 = 0x5678_ABCD;
/// Magic number before an uncompiled graph.
const GRAPH_MAGIC: u32 = 0x1234_ABCD;
/// Size of the header fields before a binary, in bytes: magic number, signature, size.
const UNALIGNED_HEADER_BYTES: u64 = 20;
/// Size of that header with alignment (`QNN_CTX_BIN_ALIGNMENT`), in bytes.
const ALIGNED_HEADER_BYTES: u64 = 256;
/// Size of the header before a graph, in bytes: magic number, size of the FlatBuffer, size of the
/// tensors.
const GRAPH_HEADER_BYTES: u64 = 16;
/// Magic number of zip archives, including deep learning containers (DLC).
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";

/// A parsed wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrapper {
    /// Size of the header in bytes; 0 for a binary without a wrapper.
    pub(super) header_bytes: u64,
    /// The type of the content.
    pub(super) inside: WrappedContent,
    /// Position of the content.
    pub(super) range: ByteRange,
}

/// The type of the content behind the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrappedContent {
    /// A context binary with a readable description.
    Context,
    /// A deep learning container: graphs that the device compiles.
    Container,
    /// A graph in ExecuTorch's own format with its tensors; the device compiles it.
    Graph,
    /// A binary in an unknown format.
    Other,
}

/// Parses the header of a payload.
pub(super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Result<Wrapper, FormatError> {
    let ByteRange { offset, size } = payload;
    let read = |at: u64, error| place("magic", at).unreadable(&error);
    let magic = if size < 4 {
        None
    } else {
        let bytes = pages.array(offset).map_err(|error| read(offset, error))?;
        Some(u32::from_le_bytes(bytes))
    };
    let (header, range) = match magic {
        Some(BINARY_MAGIC) => binary(pages, payload)?,
        Some(GRAPH_MAGIC) => return graph(pages, payload),
        // Early releases wrote context binaries without a wrapper.
        _ if is_context(pages, payload) => (0, payload),
        _ => {
            let found = magic.map_or("too few bytes".to_owned(), |magic| format!("{magic:#010x}"));
            return Err(place("magic", offset)
                .expected("0x5678abcd, 0x1234abcd or a context binary", found));
        }
    };
    let inside = if is_context(pages, range) {
        WrappedContent::Context
    } else if range.size >= 4 {
        let bytes: [u8; 4] = pages
            .array(range.offset)
            .map_err(|error| read(range.offset, error))?;
        if bytes == ZIP_MAGIC {
            WrappedContent::Container
        } else {
            WrappedContent::Other
        }
    } else {
        WrappedContent::Other
    };
    Ok(Wrapper {
        header_bytes: header,
        inside,
        range,
    })
}

/// Returns the position of the binary behind a header. Both headers have the same fields; the size
/// decides between them.
fn binary(pages: &Pages<'_>, payload: ByteRange) -> Result<(u64, ByteRange), FormatError> {
    let at = payload.offset + 12;
    let size = number(pages, payload, 12)?;
    let fits = |header: u64| {
        let end = header.checked_add(size);
        end.is_some_and(|end| end <= payload.size)
    };
    let header = [ALIGNED_HEADER_BYTES, UNALIGNED_HEADER_BYTES]
        .into_iter()
        .find(|header| fits(*header));
    let header = header.ok_or_else(|| {
        place("binary_size", at).truncated(UNALIGNED_HEADER_BYTES, size, payload.size)
    })?;
    let range = ByteRange {
        offset: payload.offset + header,
        size,
    };
    Ok((header, range))
}

/// Locates an uncompiled graph: a FlatBuffer, then tensors.
fn graph(pages: &Pages<'_>, payload: ByteRange) -> Result<Wrapper, FormatError> {
    let sizes = number(pages, payload, 4)?;
    let flatbuffer = sizes & u64::from(u32::MAX);
    let tensors = number(pages, payload, 8)?;
    let size = flatbuffer.saturating_add(tensors);
    let end = size.checked_add(GRAPH_HEADER_BYTES);
    if end.is_none_or(|end| end > payload.size) {
        return Err(place("tensor_size", payload.offset + 8).truncated(
            GRAPH_HEADER_BYTES + flatbuffer,
            tensors,
            payload.size,
        ));
    }
    Ok(Wrapper {
        header_bytes: GRAPH_HEADER_BYTES,
        inside: WrappedContent::Graph,
        range: ByteRange {
            offset: payload.offset + GRAPH_HEADER_BYTES,
            size,
        },
    })
}

/// Reads the eight-byte number at this offset of the payload.
fn number(pages: &Pages<'_>, payload: ByteRange, at: u64) -> Result<u64, FormatError> {
    let here = payload.offset + at;
    if at + 8 > payload.size {
        return Err(place("size", here).truncated(at, 8, payload.size));
    }
    let bytes = pages
        .array(here)
        .map_err(|error| place("size", here).unreadable(&error))?;
    Ok(u64::from_le_bytes(bytes))
}

fn place(field: &str, offset: u64) -> FieldPosition {
    FieldPosition::new(format_args!("QNN payload header.{field}"), offset)
}
