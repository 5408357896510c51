//! The graph of `XnnpackBackend`, as an executor needs it.
//!
//! `xnnpack/serialization/schema.fbs` (`XN01`) and `runtime_schema.fbs` (`XN00`) of ExecuTorch 1.5,
//! bare or behind a header `XH00`. Invariant: every id of a node is that of a value; every range lies
//! inside the payload. Sizes of values are bounds from the export, not to be believed.

use std::collections::BTreeMap;

use super::super::error::{Error, Place};
use super::super::flatbuffer::{Buffer, Field, Table};
use super::super::payload_header::Header;
use super::super::storage::ByteRange;
use super::super::stored::Data;
use super::fields::{Ids, MAX_RANK, UNION_TYPE, numbers};
use super::node::Node;
use super::payload::Parts;
use super::schema::{
    BUFFERS, CONSTANT, CONSTANTS, DIMS, ID, INPUTS, KEY, NODES, OFFSET, OUTPUTS, VALUES, tensor,
};
use crate::source::pages::DEFAULT_BUDGET;
use crate::source::{Pages, ReadAt};

/// Bytes a value or a node takes in memory, about.
const ENTRY_COST: u64 = 256;
/// Bytes of the smallest payload.
const LEAST: u64 = Header::SIZE as u64 + 8;

/// A graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Values by their ids.
    pub values: BTreeMap<u32, Value>,
    /// Nodes, each after those it needs.
    pub nodes: Vec<Node>,
    /// Ids of the inputs, in the order of a call's arguments.
    pub inputs: Vec<u32>,
    /// Ids of the outputs, in the order of a call's arguments.
    pub outputs: Vec<u32>,
}

/// A value of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// dtype.
    pub datatype: Datatype,
    /// Sizes at export: upper bounds.
    pub dims: Vec<u64>,
    /// Where a constant's elements are.
    pub data: Option<Data>,
    /// What integers stand for.
    pub quantization: Option<Quantization>,
    /// Its place among the inputs and outputs of the graph; meaningless for other values.
    pub external_id: u32,
}

/// dtype of a value (`XNNDatatype`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "XNNPACK's own names say it")]
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

/// What integers stand for.
#[derive(Debug, Clone, PartialEq)]
pub enum Quantization {
    /// `scale * (q - zero_point)`
    PerTensor {
        /// Scale.
        scale: f32,
        /// Zero point.
        zero_point: i32,
    },
    /// A scale for each place of one dimension; the zero point is 0 (8 for 4 bits).
    PerChannel {
        /// The dimension.
        channel_dim: usize,
        /// The scales.
        scales: Scales,
    },
    /// A scale for each group of neighbours in a channel.
    PerGroup {
        /// The dimension of channels.
        channel_dim: usize,
        /// Elements in a group.
        group_size: u64,
        /// The scales: channels × groups, row major.
        scales: Scales,
    },
    /// Scale and zero point are found when the program runs, for each row.
    PerToken {
        /// Inner dimensions that share them.
        nonbatch_dims: usize,
    },
}

/// Scales of a quantization.
#[derive(Debug, Clone, PartialEq)]
pub enum Scales {
    /// In the graph.
    Inline(Vec<f32>),
    /// Stored like a constant: float32, or bfloat16 where they are half as many bytes.
    Stored {
        /// Where.
        data: Data,
        /// How many.
        count: u64,
    },
}

impl Graph {
    /// Reads the graph in a delegate's payload.
    pub fn read(source: &dyn ReadAt, payload: ByteRange) -> Result<Self, Error> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let parts = find(&pages, payload)?;
        let end = parts.graph.offset + parts.graph.size;
        let buffer = Buffer::new(&pages, parts.graph.offset, end);
        let root = buffer.root("XNNGraph")?;
        let constants = read_constants(&root, parts.constants)?;
        let mut values = BTreeMap::new();
        for value in root.tables(VALUES)?.iter_tables() {
            let value = value?;
            buffer.keep(ENTRY_COST, || value.here())?;
            let (id, value) = Value::read(&value, &constants)?;
            values.insert(id, value);
        }
        let is_known = |id| values.contains_key(&id);
        let known = Ids(&is_known);
        let mut nodes = Vec::new();
        for node in root.tables(NODES)?.iter_tables() {
            let node = node?;
            buffer.keep(ENTRY_COST, || node.here())?;
            nodes.push(Node::read(&node, &known)?);
        }
        let ids = |field| -> Result<Vec<u32>, Error> {
            let ids = root.vector(field, 4)?;
            ids.keep(8)?;
            let ids = (0..ids.len()).map(|at| known.check(ids.u32(at)?, || ids.place(at)));
            ids.collect()
        };
        let (mut inputs, mut outputs) = (ids(INPUTS)?, ids(OUTPUTS)?);
        // A call's arguments are in the order of external ids, which the lists need not be.
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

/// The parts of a payload, which must be one of XNNPACK's.
fn find(pages: &Pages<'_>, payload: ByteRange) -> Result<Parts, Error> {
    let wrong = |found: [u8; 4]| Error::PayloadMagic {
        place: Place {
            path: "XNNPACK payload identifier".to_owned(),
            offset: payload.offset + 4,
        },
        expected: "XH00, XN00 or XN01",
        found: found.escape_ascii().to_string(),
    };
    if payload.size < LEAST {
        return Err(wrong([0; 4]));
    }
    let Some(parts) = Parts::find(pages, payload)? else {
        let magic = pages.array(payload.offset + 4);
        return Err(wrong(magic.unwrap_or_default()));
    };
    match parts.other_mark(pages)? {
        Some(found) => Err(wrong(found)),
        None => Ok(parts),
    }
}

/// Constants by their index, which counts from 1.
fn read_constants(graph: &Table<'_>, stored: ByteRange) -> Result<Vec<Data>, Error> {
    let constants = graph.tables(CONSTANTS)?;
    constants.keep(ENTRY_COST)?;
    // The first of both lists stands for "no constant".
    if constants.is_empty() {
        let buffers = graph.tables(BUFFERS)?;
        buffers.keep(ENTRY_COST)?;
        let ranges = buffers.iter_tables().map(|buffer| {
            let bytes = buffer?.vector(Field(0, "storage"), 1)?;
            Ok(Data::Payload(ByteRange {
                offset: bytes.first(),
                size: bytes.len(),
            }))
        });
        return ranges.collect();
    }
    let found = constants.iter_tables().map(|constant| {
        let constant = constant?;
        let name = constant.name(KEY)?;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return Ok(Data::Named(name));
        }
        let (offset, size) = (constant.u64(OFFSET)?, constant.u64(Field(1, "size"))?);
        Data::part(stored, offset, size, || constant.place(OFFSET))
    });
    found.collect()
}

impl Value {
    fn read(outer: &Table<'_>, constants: &[Data]) -> Result<(u32, Self), Error> {
        let Some((tensor, quantized)) = tensor(outer)? else {
            return Err(Error::UnionType {
                place: outer.place(UNION_TYPE),
                found: outer.u8(UNION_TYPE)?,
                most: 2,
            });
        };
        let dims = numbers(&tensor, DIMS)?;
        let data = constant(&tensor, CONSTANT, constants)?;
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

fn constant(table: &Table<'_>, field: Field, constants: &[Data]) -> Result<Option<Data>, Error> {
    let index = table.u32(field)?;
    if index == 0 {
        return Ok(None);
    }
    let found = constants.get(index as usize).cloned();
    found.map(Some).ok_or_else(|| Error::Index {
        place: table.place(field),
        what: "constants",
        count: constants.len() as u64,
        found: index.into(),
    })
}

impl Datatype {
    fn read(tensor: &Table<'_>) -> Result<Self, Error> {
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
                return Err(Error::Value {
                    place: tensor.place(field),
                    expected: "a data type of 1 to 14".to_owned(),
                    found: u64::from(found.unsigned_abs()),
                });
            }
        })
    }
}

impl Quantization {
    fn read(quantized: &Table<'_>, constants: &[Data]) -> Result<Option<Self>, Error> {
        let tag_field = Field(1, "quant_params_type");
        let tag = quantized.u8(tag_field)?;
        if tag == 0 {
            return Ok(None);
        }
        let table = quantized.required(Field(2, "quant_params"))?;
        let dim = |field| -> Result<usize, Error> {
            let found = table.i32(field)?;
            match usize::try_from(found) {
                Ok(dim) if (dim as u64) < MAX_RANK => Ok(dim),
                _ => Err(Error::Value {
                    place: table.place(field),
                    expected: "a dimension".to_owned(),
                    found: u64::from(found.unsigned_abs()),
                }),
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
                    group_size: group_size.ok_or_else(|| Error::Value {
                        place: table.place(field),
                        expected: "a group size of at least 1".to_owned(),
                        found: u64::from(found.unsigned_abs()),
                    })?,
                    scales: Scales::read(&table, 4, 5, constants)?,
                }
            }
            found => {
                return Err(Error::UnionType {
                    place: quantized.place(tag_field),
                    found,
                    most: 4,
                });
            }
        }))
    }
}

impl Scales {
    fn read(table: &Table<'_>, index: u16, count: u16, constants: &[Data]) -> Result<Self, Error> {
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
        // Older programs keep a group's scales as the upper halves of floats.
        let halves = table.vector(Field(3, "scale_bf16"), 2)?;
        halves.keep(4)?;
        let halves = (0..halves.len()).map(|at| {
            let bits = u32::from(halves.u16(at)?) << 16;
            Ok(f32::from_bits(bits))
        });
        Ok(Self::Inline(halves.collect::<Result<_, _>>()?))
    }
}
