//! A QNN context binary: what it says of itself before the compiled graphs.
//!
//! The form is Qualcomm's own and written down nowhere in public. What is read here was found in binaries that ONNX
//! Runtime's provider for QNN 2.47 and 2.51 compiled from known models: two numbers of four bytes and one of eight,
//! big-endian (2, 3, 1); the size of a FlatBuffer, then offset and size of the compiled graphs, of eight bytes each,
//! little-endian; from byte 40 that FlatBuffer. Its tables mirror the public structures of `QnnSystemContext.h` and
//! `QnnTypes.h`: `QnnSystemContext_BinaryInfoV3_t`, `QnnSystemContext_GraphInfoV1_t` within V2 within V3, `Qnn_Tensor_t`.
//! Binaries that begin otherwise are not recognised. Invariant: the compiled graphs are never read.

use super::super::content::Port;
use super::super::error::{Error, Place};
use super::super::flatbuffer::{Buffer, Field, Table};
use super::super::storage::ByteRange;
use super::chip;
use super::element::element_of;
use crate::model::{Dim, Dynamism, TensorInfo};
use crate::source::{Pages, ReadAt};

/// What every binary of this form begins with.
const MAGIC: [u8; 16] = [0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1];
/// Bytes before the FlatBuffer.
const HEADER: u64 = 40;
/// Kind of the unions of the description and of a graph that are known: the third of each.
const KIND: u8 = 3;
/// Reads for each byte of the description, and beside: offsets may lead to one table again and again.
const BUDGET_PER_BYTE: u64 = 16;
const BASE_BUDGET: u64 = 10_000;
/// Largest description in bytes; one of a graph with a hundred tensors takes some 20 kB.
const MAX_DESCRIPTION: u64 = 64 * 1024 * 1024;
/// Most dimensions of a tensor.
const MAX_RANK: u64 = 32;
/// Bytes a graph or a tensor takes in memory, about.
const COST: u64 = 256;

/// The fields that are read, by their numbers in the FlatBuffer.
mod fields {
    use super::Field;
    /// Root: the description's union.
    pub(super) const INFO: Field = Field(0, "info");
    /// Description and graph: the kind of the union.
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
    /// The information of the version before, within that of a graph.
    pub(super) const BEFORE: Field = Field(0, "before");
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
    /// Bytes behind the dimensions, empty in all binaries that were looked into.
    pub(super) const BESIDE: Field = Field(8, "dimensions_beside");
    /// `name`.
    pub(super) const NAME: Field = Field(9, "name");
}

/// What a context binary says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The backend it was compiled for: `HTP`.
    pub backend: String,
    /// The tools that compiled it: `v2.51.0.260929181845`.
    pub build: Option<String>,
    /// The chip it was compiled for: `SM8650 (57)`.
    pub chip: Option<String>,
    /// Its graphs.
    pub graphs: Vec<Graph>,
    /// Where the description is in the file.
    pub description: ByteRange,
    /// Where the compiled graphs are, with their weights.
    pub compiled: ByteRange,
}

/// A graph of a context binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// Its name; compilers that are given none make one up.
    pub name: String,
    /// What it takes, in order.
    pub inputs: Vec<Port>,
    /// What it gives, in order.
    pub outputs: Vec<Port>,
}

/// Whether these first bytes are those of a context binary.
#[must_use]
pub fn begins(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(&MAGIC)
}

/// Whether a context binary is in these bytes of a file.
pub(super) fn is_context(pages: &Pages<'_>, range: ByteRange) -> bool {
    let head: Option<[u8; 16]> = (range.size >= HEADER)
        .then(|| pages.array(range.offset).ok())
        .flatten();
    head.is_some_and(|head| begins(&head))
}

impl Context {
    /// Reads the description of the context binary in these bytes of the file.
    ///
    /// # Errors
    ///
    /// Where it is broken, with the field and the offset.
    pub fn read(source: &dyn ReadAt, range: ByteRange) -> Result<Self, Error> {
        let (description, compiled) = parts(source, range)?;
        let budget = description.size.saturating_mul(BUDGET_PER_BYTE);
        let pages = Pages::with_budget(source, budget.saturating_add(BASE_BUDGET));
        let end = description.offset + description.size;
        let buffer = Buffer::new(&pages, description.offset, end);
        let root = buffer.root("QnnContext")?;
        let info = union(&root.required(fields::INFO)?)?;
        let chip_number = info.u32(fields::CHIP)?;
        let mut graphs = Vec::new();
        for found in info.tables(fields::GRAPHS)?.iter_tables() {
            let found = found?;
            buffer.keep(COST, || found.here())?;
            graphs.push(graph(&found)?);
        }
        Ok(Self {
            backend: chip::backend(info.u32(fields::BACKEND)?),
            build: info.cut_text(fields::BUILD)?.filter(|id| !id.is_empty()),
            chip: (chip_number != 0).then(|| chip::chip(chip_number)),
            graphs,
            description,
            compiled,
        })
    }
}

/// Where the description and the compiled graphs are.
fn parts(source: &dyn ReadAt, range: ByteRange) -> Result<(ByteRange, ByteRange), Error> {
    let pages = Pages::with_budget(source, BASE_BUDGET);
    let place = |field: &str, at: u64| Place {
        path: format!("QNN context binary.{field}"),
        offset: range.offset.saturating_add(at),
    };
    if !is_context(&pages, range) {
        return Err(Error::PayloadMagic {
            place: place("magic", 0),
            expected: "the numbers 2, 3 and 1 of a context binary",
            found: "other bytes, or too few".to_owned(),
        });
    }
    let number = |field: &str, at: u64| -> Result<u64, Error> {
        let bytes = pages.array(range.offset + at);
        let bytes = bytes.map_err(|error| Error::Read {
            place: place(field, at),
            error,
        })?;
        Ok(u64::from_le_bytes(bytes))
    };
    let size = number("description_size", 16)?;
    let (offset, compiled) = (number("compiled_offset", 24)?, number("compiled_size", 32)?);
    let most = offset.min(range.size).saturating_sub(HEADER);
    let most = most.min(MAX_DESCRIPTION);
    if size < 8 || size > most {
        return Err(Error::ProgramSize {
            place: place("description_size", 16),
            found: size,
            least: 8,
            most,
        });
    }
    if offset
        .checked_add(compiled)
        .is_none_or(|end| end > range.size)
    {
        return Err(Error::Truncated {
            place: place("compiled_size", 32),
            size: compiled,
            base: offset,
            needs: u128::from(offset) + u128::from(compiled),
            len: range.size,
        });
    }
    let inside = |at: u64, size: u64| ByteRange {
        offset: range.offset + at,
        size,
    };
    Ok((inside(HEADER, size), inside(offset, compiled)))
}

/// What is in a union of the known kind.
fn union<'a>(table: &Table<'a>) -> Result<Table<'a>, Error> {
    let kind = table.u8(fields::KIND)?;
    if kind != KIND {
        return Err(Error::Value {
            place: table.place(fields::KIND),
            expected: format!("information of version {KIND}"),
            found: kind.into(),
        });
    }
    table.required(fields::UNION)
}

fn graph(wrapper: &Table<'_>) -> Result<Graph, Error> {
    let second = union(wrapper)?.required(fields::BEFORE)?;
    let first = second.required(fields::BEFORE)?;
    Ok(Graph {
        name: first.name(fields::GRAPH_NAME)?.unwrap_or_default(),
        inputs: ports(&first, fields::INPUTS)?,
        outputs: ports(&first, fields::OUTPUTS)?,
    })
}

fn ports(graph: &Table<'_>, field: Field) -> Result<Vec<Port>, Error> {
    let tensors = graph.tables(field)?;
    tensors.keep(COST)?;
    tensors.iter_tables().map(|found| port(&found?)).collect()
}

fn port(tensor: &Table<'_>) -> Result<Port, Error> {
    let sizes = tensor.vector(fields::DIMENSIONS, 4)?;
    let rank = u64::from(tensor.u32(fields::RANK)?);
    if sizes.len() > MAX_RANK {
        return Err(Error::Rank {
            place: sizes.here(),
            found: sizes.len(),
            most: MAX_RANK,
        });
    }
    if sizes.len() != rank {
        return Err(Error::Value {
            place: tensor.place(fields::RANK),
            expected: format!("the number of dimensions, {}", sizes.len()),
            found: rank,
        });
    }
    // What these bytes say of the sizes is not known: with some there, only type and rank are believed.
    let varies = !tensor.vector(fields::BESIDE, 1)?.is_empty();
    let dim = |size: u64| {
        if !varies {
            return Dim::Fixed(size);
        }
        Dim::Dynamic {
            bound: None,
            name: None,
            allowed: None,
        }
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
