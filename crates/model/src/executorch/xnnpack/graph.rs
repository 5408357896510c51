//! Reads the graph of an XNNPACK delegate for an engine.
//!
//! Source: `xnnpack/serialization/schema.fbs` (`XN01`) and `runtime_schema.fbs` (`XN00`) of
//! ExecuTorch 1.5, bare or behind a header `XH00`. Invariant: every id of a node refers to a value,
//! and every range lies inside the payload. Sizes of values are upper bounds from the export and
//! unreliable.

use std::collections::BTreeMap;

use super::super::flatbuffer::{Buffer, Field, Table};
use super::super::payload_header::PayloadHeader;
use super::super::storage::ByteRange;
use super::super::stored::ConstantData;
use super::fields::{MAX_RANK, UNION_TYPE, ValueIds, read_sizes};
use super::node::XnnpackNode;
use super::payload::XnnpackParts;
use super::schema::{
    BUFFERS, CONSTANT_INDEX, CONSTANTS, DIMS, ID, INPUTS, NAMED_KEY, NODES, OFFSET, OUTPUTS,
    VALUES, tensor,
};
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::pages::DEFAULT_BUDGET;
use pkgtool_base::source::{Pages, ReadAt};

/// Approximate memory per value or node, in bytes.
const ENTRY_MEMORY_BYTES: u64 = 256;
/// Minimum size of a payload, in bytes.
const MIN_PAYLOAD_BYTES: u64 = PayloadHeader::SIZE as u64 + 8;

/// A graph.
#[derive(Debug, Clone, PartialEq)]
pub struct XnnpackGraph {
    /// Values by id.
    pub values: BTreeMap<u32, XnnpackValue>,
    /// Nodes in execution order.
    pub nodes: Vec<XnnpackNode>,
    /// Ids of the inputs, in the order of a call's arguments.
    pub inputs: Vec<u32>,
    /// Ids of the outputs, in the order of a call's arguments.
    pub outputs: Vec<u32>,
}

/// A value of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct XnnpackValue {
    /// Element type.
    pub datatype: Datatype,
    /// Sizes at export: upper bounds.
    pub dims: Vec<u64>,
    /// Position of a constant's elements.
    pub data: Option<ConstantData>,
    /// Parameters of a quantised value.
    pub quantization: Option<Quantization>,
    /// Its position among the inputs and outputs of the graph; meaningless for other values.
    pub external_id: u32,
}

/// dtype of a value (`XNNDatatype`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants have XNNPACK's names")]
pub enum Datatype {
    Fp32,
    Fp16,
    Qint8,
    Quint8,
    Qint32,
    Qcint8,
    Qcint32,
    Qcint4,
    Qdint8,
    Qbint4,
    Qpint8,
    Int32,
    Pfp32,
    Bf16,
}

/// Parameters of a quantised value.
#[derive(Debug, Clone, PartialEq)]
pub enum Quantization {
    /// `scale * (q - zero_point)`
    PerTensor {
        /// Scale.
        scale: f32,
        /// Zero point.
        zero_point: i32,
    },
    /// One scale per index of a dimension; the zero point is 0 (8 for 4 bits).
    PerChannel {
        /// The dimension.
        channel_dim: usize,
        /// The scales.
        scales: Scales,
    },
    /// One scale per group of neighbouring elements in a channel.
    PerGroup {
        /// The channel dimension.
        channel_dim: usize,
        /// Number of elements per group.
        group_size: u64,
        /// The scales: channels × groups, row-major.
        scales: Scales,
    },
    /// Scale and zero point are computed at run time, for each row.
    PerToken {
        /// Number of inner dimensions that share them.
        nonbatch_dims: usize,
    },
}

/// Scales of a quantisation.
#[derive(Debug, Clone, PartialEq)]
pub enum Scales {
    /// In the graph.
    Inline(Vec<f32>),
    /// Stored like a constant: float32, or bfloat16 if the data has half the size.
    Stored {
        /// Position of the data.
        data: ConstantData,
        /// Number of scales.
        count: u64,
    },
}

impl XnnpackGraph {
    /// Reads the graph in a delegate's payload.
    pub fn read(source: &dyn ReadAt, payload: ByteRange) -> Result<Self, FormatError> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let parts = find(&pages, payload)?;
        let end = parts.graph.offset + parts.graph.size;
        let buffer = Buffer::new(&pages, parts.graph.offset, end);
        let root = buffer.root("XNNGraph")?;
        let constants = read_constants(&root, parts.constants)?;
        let mut values = BTreeMap::new();
        for value in root.tables(VALUES)?.iter_tables() {
            let value = value?;
            buffer.keep(ENTRY_MEMORY_BYTES, || value.here())?;
            let (id, value) = XnnpackValue::read(&value, &constants)?;
            values.insert(id, value);
        }
        let is_known = |id| values.contains_key(&id);
        let known = ValueIds(&is_known);
        let mut nodes = Vec::new();
        for node in root.tables(NODES)?.iter_tables() {
            let node = node?;
            buffer.keep(ENTRY_MEMORY_BYTES, || node.here())?;
            nodes.push(XnnpackNode::read(&node, &known)?);
        }
        let ids = |field| -> Result<Vec<u32>, FormatError> {
            let ids = root.vector(field, 4)?;
            ids.keep(8)?;
            let ids = (0..ids.len()).map(|at| known.check(ids.u32(at)?, || ids.place(at)));
            ids.collect()
        };
        let (mut inputs, mut outputs) = (ids(INPUTS)?, ids(OUTPUTS)?);
        // A call's arguments follow the order of external ids, which may differ from these lists.
        for ids in [&mut inputs, &mut outputs] {
            ids.sort_by_key(|id| values[id].external_id);
        }
        Ok(Self {
            values,
            nodes,
            inputs,
            outputs,
        })
    }
}

/// Locates the parts of a payload; fails if the payload belongs to another backend.
fn find(pages: &Pages<'_>, payload: ByteRange) -> Result<XnnpackParts, FormatError> {
    let wrong = |found: [u8; 4]| {
        FieldPosition::new("XNNPACK payload identifier", payload.offset + 4)
            .expected("XH00, XN00 or XN01", found.escape_ascii())
    };
    if payload.size < MIN_PAYLOAD_BYTES {
        return Err(wrong([0; 4]));
    }
    let Some(parts) = XnnpackParts::find(pages, payload)? else {
        let magic = pages.array(payload.offset + 4);
        return Err(wrong(magic.unwrap_or_default()));
    };
    match parts.unexpected_identifier(pages)? {
        Some(found) => Err(wrong(found)),
        None => Ok(parts),
    }
}

/// Returns the constants by their index, which counts from 1.
fn read_constants(graph: &Table<'_>, stored: ByteRange) -> Result<Vec<ConstantData>, FormatError> {
    let constants = graph.tables(CONSTANTS)?;
    constants.keep(ENTRY_MEMORY_BYTES)?;
    // Entry 0 of both lists means "no constant".
    if constants.is_empty() {
        let buffers = graph.tables(BUFFERS)?;
        buffers.keep(ENTRY_MEMORY_BYTES)?;
        let ranges = buffers.iter_tables().map(|buffer| {
            let bytes = buffer?.vector(Field(0, "storage"), 1)?;
            Ok(ConstantData::Payload(ByteRange {
                offset: bytes.first(),
                size: bytes.len(),
            }))
        });
        return ranges.collect();
    }
    let found = constants.iter_tables().map(|constant| {
        let constant = constant?;
        let name = constant.name(NAMED_KEY)?;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return Ok(ConstantData::Named(name));
        }
        let (offset, size) = (constant.u64(OFFSET)?, constant.u64(Field(1, "size"))?);
        ConstantData::part(stored, offset, size, || constant.place(OFFSET))
    });
    found.collect()
}

impl XnnpackValue {
    fn read(outer: &Table<'_>, constants: &[ConstantData]) -> Result<(u32, Self), FormatError> {
        let Some((tensor, quantized)) = tensor(outer)? else {
            return Err(outer.place(UNION_TYPE).union_type(2, outer.u8(UNION_TYPE)?));
        };
        let dims = read_sizes(&tensor, DIMS)?;
        let data = constant(&tensor, CONSTANT_INDEX, constants)?;
        let quantization = match &quantized {
            Some(table) => Quantization::read(table, constants)?,
            None => None,
        };
        let value = Self {
            datatype: Datatype::read(&tensor)?,
            dims,
            data,
            quantization,
            external_id: tensor.u32(Field(4, "external_id"))?,
        };
        Ok((tensor.u32(ID)?, value))
    }
}

fn constant(
    table: &Table<'_>,
    field: Field,
    constants: &[ConstantData],
) -> Result<Option<ConstantData>, FormatError> {
    let index = table.u32(field)?;
    if index == 0 {
        return Ok(None);
    }
    let found = constants.get(index as usize).cloned();
    found.map(Some).ok_or_else(|| {
        table
            .place(field)
            .index("constants", constants.len(), index)
    })
}

impl Datatype {
    fn read(tensor: &Table<'_>) -> Result<Self, FormatError> {
        let field = Field(0, "datatype");
        Ok(match tensor.i16(field)? {
            1 => Self::Fp32,
            2 => Self::Fp16,
            3 => Self::Qint8,
            4 => Self::Quint8,
            5 => Self::Qint32,
            6 => Self::Qcint8,
            7 => Self::Qcint32,
            8 => Self::Qcint4,
            9 => Self::Qdint8,
            10 => Self::Qbint4,
            11 => Self::Qpint8,
            12 => Self::Int32,
            13 => Self::Pfp32,
            14 => Self::Bf16,
            found => {
                return Err(tensor
                    .place(field)
                    .expected("a data type of 1 to 14", found.unsigned_abs()));
            }
        })
    }
}

impl Quantization {
    fn read(
        quantized: &Table<'_>,
        constants: &[ConstantData],
    ) -> Result<Option<Self>, FormatError> {
        let tag_field = Field(1, "quant_params_type");
        let tag = quantized.u8(tag_field)?;
        if tag == 0 {
            return Ok(None);
        }
        let table = quantized.required_table(Field(2, "quant_params"))?;
        let dim = |field| -> Result<usize, FormatError> {
            let found = table.i32(field)?;
            match usize::try_from(found) {
                Ok(dim) if (dim as u64) < MAX_RANK => Ok(dim),
                _ => Err(table
                    .place(field)
                    .expected("a valid dimension index", found.unsigned_abs())),
            }
        };
        Ok(Some(match tag {
            1 => Self::PerChannel {
                channel_dim: dim(Field(1, "channel_dim"))?,
                scales: Scales::read(&table, 2, 3, constants)?,
            },
            2 => Self::PerTensor {
                scale: table.f32(Field(0, "scale"))?,
                zero_point: table.i32(Field(1, "zero_point"))?,
            },
            3 => Self::PerToken {
                nonbatch_dims: dim(Field(0, "num_nonbatch_dims"))?,
            },
            4 => {
                let field = Field(2, "group_size");
                let found = table.i32(field)?;
                let group_size = u64::try_from(found).ok().filter(|&size| size > 0);
                Self::PerGroup {
                    channel_dim: dim(Field(1, "channel_dim"))?,
                    group_size: group_size.ok_or_else(|| {
                        table
                            .place(field)
                            .expected("a group size of at least 1", found.unsigned_abs())
                    })?,
                    scales: Scales::read(&table, 4, 5, constants)?,
                }
            }
            found => {
                return Err(quantized.place(tag_field).union_type(4, found));
            }
        }))
    }
}

impl Scales {
    fn read(
        table: &Table<'_>,
        index: u16,
        count: u16,
        constants: &[ConstantData],
    ) -> Result<Self, FormatError> {
        let stored = constant(table, Field(index, "scale_buffer_idx"), constants)?;
        if let Some(data) = stored {
            let count = table.u32(Field(count, "num_scales"))?.into();
            return Ok(Self::Stored { data, count });
        }
        let scales = table.vector(Field(0, "scale"), 4)?;
        scales.keep(4)?;
        let scales = (0..scales.len()).map(|at| scales.f32(at));
        let inline: Vec<f32> = scales.collect::<Result<_, _>>()?;
        if !inline.is_empty() {
            return Ok(Self::Inline(inline));
        }
        // Older programs store a group's scales as the upper halves of floats.
        let halves = table.vector(Field(3, "scale_bf16"), 2)?;
        halves.keep(4)?;
        let halves = (0..halves.len()).map(|at| {
            let bits = u32::from(halves.u16(at)?) << 16;
            Ok(f32::from_bits(bits))
        });
        Ok(Self::Inline(halves.collect::<Result<_, _>>()?))
    }
}
