//! Parses the description at the start of a QNN context binary, before the compiled graphs.
//!
//! Qualcomm has not published the format. It was derived from binaries that ONNX Runtime's
//! execution provider for QNN 2.47 and 2.51 compiled from known models:
//!
//! - two numbers of four bytes and one of eight, big-endian: 2, 3, 1
//! - the size of a FlatBuffer, then offset and size of the compiled graphs: eight bytes each,
//!   little-endian
//! - the FlatBuffer, from byte 40
//!
//! Its tables mirror the public structures of `QnnSystemContext.h` and `QnnTypes.h`:
//! `QnnSystemContext_BinaryInfoV3_t`, `QnnSystemContext_GraphInfoV1_t` within V2 within V3,
//! `Qnn_Tensor_t`. Binaries with another beginning are not recognised. Invariant: the compiled
//! graphs are never read.

use super::super::content::Port;
use super::super::flatbuffer::{Buffer, Field, Table};
use super::super::storage::ByteRange;
use super::chip;
use super::element::element_of;
use crate::{Dim, Dynamism, FieldPosition, FormatError, TensorInfo};
use pkgtool_base::source::{Pages, ReadAt};

/// The first bytes of every binary in this format.
const MAGIC: [u8; 16] = [0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1];
/// Number of bytes before the FlatBuffer.
const HEADER_BYTES: u64 = 40;
/// The supported member of the description's union and of a graph's union: the third of each.
const KIND: u8 = 3;
/// Read budget per byte of the description, and its base; offsets may lead to the same table many
/// times.
const READS_PER_BYTE: u64 = 16;
const BASE_READS: u64 = 10_000;
/// Maximum size of a description in bytes; a graph with a hundred tensors takes some 20 kB.
const MAX_DESCRIPTION_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum number of dimensions of a tensor.
const MAX_RANK: u64 = 32;
/// Approximate memory per graph or tensor, in bytes.
const ENTRY_MEMORY_BYTES: u64 = 256;

/// Field numbers of the FlatBuffer's tables.
mod fields {
    use super::Field;
    /// Root: the description's union.
    pub(super) const INFO: Field = Field(0, "info");
    /// Description and graph: the type of the union.
    pub(super) const KIND: Field = Field(1, "info_type");
    /// Description and graph: the union.
    pub(super) const UNION: Field = Field(2, "info");
    /// `backendId`.
    pub(super) const BACKEND: Field = Field(0, "backendId");
    /// `buildId`.
    pub(super) const BUILD: Field = Field(1, "buildId");
    /// `graphs`.
    pub(super) const GRAPHS: Field = Field(10, "graphs");
    /// `socModel`.
    pub(super) const CHIP: Field = Field(16, "socModel");
    /// The structure of the previous version, nested in that of a graph.
    pub(super) const PREVIOUS_VERSION: Field = Field(0, "before");
    /// `graphName`.
    pub(super) const GRAPH_NAME: Field = Field(0, "graphName");
    /// `graphInputs`.
    pub(super) const INPUTS: Field = Field(2, "graphInputs");
    /// `graphOutputs`.
    pub(super) const OUTPUTS: Field = Field(4, "graphOutputs");
    /// `dataType`.
    pub(super) const TYPE: Field = Field(3, "dataType");
    /// `rank`.
    pub(super) const RANK: Field = Field(6, "rank");
    /// `dimensions`.
    pub(super) const DIMENSIONS: Field = Field(7, "dimensions");
    /// Bytes after the dimensions; empty in all examined binaries.
    pub(super) const UNKNOWN_BYTES: Field = Field(8, "dimensions_beside");
    /// `name`.
    pub(super) const NAME: Field = Field(9, "name");
}

/// The description of a context binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QnnContext {
    /// The target backend: `HTP`.
    pub backend: String,
    /// The version of the compiler: `v2.51.0.260929181845`.
    pub build: Option<String>,
    /// The target chip: `SM8650 (57)`.
    pub chip: Option<String>,
    /// Its graphs.
    pub graphs: Vec<QnnGraph>,
    /// Position of the description in the file.
    pub description: ByteRange,
    /// Position of the compiled graphs with their weights.
    pub compiled: ByteRange,
}

/// A graph of a context binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QnnGraph {
    /// Its name; compilers generate one if it is not specified.
    pub name: String,
    /// Inputs in order.
    pub inputs: Vec<Port>,
    /// Outputs in order.
    pub outputs: Vec<Port>,
}

/// Returns whether these first bytes begin a context binary.
#[must_use]
pub fn begins(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(&MAGIC)
}

/// Returns whether these bytes of a file begin a context binary.
pub(super) fn is_context(pages: &Pages<'_>, range: ByteRange) -> bool {
    let head: Option<[u8; 16]> = (range.size >= HEADER_BYTES)
        .then(|| pages.array(range.offset).ok())
        .flatten();
    head.is_some_and(|head| begins(&head))
}

impl QnnContext {
    /// Parses the description of the context binary in these bytes of the file.
    ///
    /// # Errors
    ///
    /// Fails if the description is invalid, with the field and the offset.
    pub fn read(source: &dyn ReadAt, range: ByteRange) -> Result<Self, FormatError> {
        let (description, compiled) = locate_parts(source, range)?;
        let budget = description.size.saturating_mul(READS_PER_BYTE);
        let pages = Pages::with_budget(source, budget.saturating_add(BASE_READS));
        let end = description.offset + description.size;
        let buffer = Buffer::new(&pages, description.offset, end);
        let root = buffer.root("QnnContext")?;
        let info = supported_member(&root.required_table(fields::INFO)?)?;
        let chip_number = info.u32(fields::CHIP)?;
        let mut graphs = Vec::new();
        for found in info.tables(fields::GRAPHS)?.iter_tables() {
            let found = found?;
            buffer.keep(ENTRY_MEMORY_BYTES, || found.here())?;
            graphs.push(graph(&found)?);
        }
        Ok(Self {
            backend: chip::backend(info.u32(fields::BACKEND)?),
            build: info
                .truncated_text(fields::BUILD)?
                .filter(|id| !id.is_empty()),
            chip: (chip_number != 0).then(|| chip::format_chip(chip_number)),
            graphs,
            description,
            compiled,
        })
    }
}

/// Returns the positions of the description and of the compiled graphs.
fn locate_parts(
    source: &dyn ReadAt,
    range: ByteRange,
) -> Result<(ByteRange, ByteRange), FormatError> {
    let pages = Pages::with_budget(source, BASE_READS);
    let place = |field: &str, at: u64| {
        FieldPosition::new(
            format_args!("QNN context binary.{field}"),
            range.offset.saturating_add(at),
        )
    };
    if !is_context(&pages, range) {
        return Err(place("magic", 0).expected(
            "the numbers 2, 3 and 1 of a context binary",
            "other or too few bytes",
        ));
    }
    let number = |field: &str, at: u64| -> Result<u64, FormatError> {
        let bytes = pages.array(range.offset + at);
        let bytes = bytes.map_err(|error| place(field, at).unreadable(&error))?;
        Ok(u64::from_le_bytes(bytes))
    };
    let size = number("description_size", 16)?;
    let (offset, compiled) = (number("compiled_offset", 24)?, number("compiled_size", 32)?);
    let most = offset.min(range.size).saturating_sub(HEADER_BYTES);
    let most = most.min(MAX_DESCRIPTION_BYTES);
    if size < 8 || size > most {
        return Err(place("description_size", 16).flatbuffer_size(8, most, size));
    }
    if offset
        .checked_add(compiled)
        .is_none_or(|end| end > range.size)
    {
        return Err(place("compiled_size", 32).truncated(offset, compiled, range.size));
    }
    let inside = |at: u64, size: u64| ByteRange {
        offset: range.offset + at,
        size,
    };
    Ok((inside(HEADER_BYTES, size), inside(offset, compiled)))
}

/// Returns the table in a union of the supported type.
fn supported_member<'a>(table: &Table<'a>) -> Result<Table<'a>, FormatError> {
    let kind = table.u8(fields::KIND)?;
    if kind != KIND {
        return Err(table
            .place(fields::KIND)
            .expected(format_args!("information of version {KIND}"), kind));
    }
    table.required_table(fields::UNION)
}

fn graph(wrapper: &Table<'_>) -> Result<QnnGraph, FormatError> {
    let second = supported_member(wrapper)?.required_table(fields::PREVIOUS_VERSION)?;
    let first = second.required_table(fields::PREVIOUS_VERSION)?;
    Ok(QnnGraph {
        name: first.name(fields::GRAPH_NAME)?.unwrap_or_default(),
        inputs: read_ports(&first, fields::INPUTS)?,
        outputs: read_ports(&first, fields::OUTPUTS)?,
    })
}

fn read_ports(graph: &Table<'_>, field: Field) -> Result<Vec<Port>, FormatError> {
    let tensors = graph.tables(field)?;
    tensors.keep(ENTRY_MEMORY_BYTES)?;
    tensors
        .iter_tables()
        .map(|found| read_port(&found?))
        .collect()
}

fn read_port(tensor: &Table<'_>) -> Result<Port, FormatError> {
    let sizes = tensor.vector(fields::DIMENSIONS, 4)?;
    let rank = u64::from(tensor.u32(fields::RANK)?);
    if sizes.len() > MAX_RANK {
        return Err(sizes.here().rank(MAX_RANK, sizes.len()));
    }
    if sizes.len() != rank {
        return Err(tensor.place(fields::RANK).expected(
            format_args!("the number of dimensions, {}", sizes.len()),
            rank,
        ));
    }
    // The meaning of these bytes is unknown. If they are present, only type and rank are reliable.
    let varies = !tensor.vector(fields::UNKNOWN_BYTES, 1)?.is_empty();
    let dim = |size: u64| {
        if !varies {
            return Dim::Fixed(size);
        }
        Dim::ANY
    };
    let dims = sizes.numbers::<4>()?.into_iter().map(dim).collect();
    Ok(Port {
        name: tensor.name(fields::NAME)?.filter(|name| !name.is_empty()),
        tensor: Some(TensorInfo {
            element: element_of(tensor.u32(fields::TYPE)?),
            dims: Some(dims),
            dynamism: if varies {
                Dynamism::Unbounded
            } else {
                Dynamism::Static
            },
        }),
    })
}
