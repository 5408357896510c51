//! The graph of `XnnpackBackend`, as an executor needs it.
//!
//! `xnnpack/serialization/schema.fbs` (`XN01`) and `runtime_schema.fbs` (`XN00`) of ExecuTorch 1.5,
//! bare or behind a header `XH00`. Invariant: every id of a node is that of a value; every range lies
//! inside the payload. Sizes of values are bounds from the export, not to be believed.

use std::collections::BTreeMap;

use super::super::error::{Error, Place};
use super::super::flatbuffer::{Buffer, Field, Table};
use super::super::storage::ByteRange;
use super::node::Node;
use crate::source::pages::DEFAULT_BUDGET;
use crate::source::{Pages, ReadAt};

/// XNNPACK's own limit.
const MAX_RANK: u64 = 6;
/// The id of nothing, `XNN_INVALID_VALUE_ID`.
const NOTHING: u32 = u32::MAX;
/// Bytes a value or a node takes in memory, about.
const ENTRY_COST: u64 = 256;
/// Length of the header `XH00`.
const HEADER: u64 = 30;

const NODES: Field = Field(1, "xnodes");
const VALUES: Field = Field(2, "xvalues");
const INPUTS: Field = Field(4, "input_ids");
const OUTPUTS: Field = Field(5, "output_ids");
const BUFFERS: Field = Field(6, "constant_buffer");
const CONSTANTS: Field = Field(8, "constant_data");
pub(super) const UNION_TYPE: Field = Field(0, "union_type");
pub(super) const UNION: Field = Field(1, "union");

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

/// Where a constant's elements are.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// In the payload: from here to where it must end at the latest.
    Payload(ByteRange),
    /// Under this name, in the program or in a data file.
    Named(String),
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
        let extent = Extent::find(&pages, payload)?;
        let buffer = Buffer::new(&pages, extent.start, extent.end);
        let root = buffer.root("XNNGraph")?;
        let constants = read_constants(&root, &extent)?;
        let mut values = BTreeMap::new();
        for value in root.tables(VALUES)?.iter_tables() {
            let value = value?;
            buffer.keep(ENTRY_COST, || value.here())?;
            let (id, value) = Value::read(&value, &constants)?;
            values.insert(id, value);
        }
        let known = Known { values: &values };
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

/// The values that a node may name.
pub(super) struct Known<'v> {
    values: &'v BTreeMap<u32, Value>,
}

impl Known<'_> {
    fn check(&self, id: u32, place: impl FnOnce() -> Place) -> Result<u32, Error> {
        if self.values.contains_key(&id) {
            return Ok(id);
        }
        Err(Error::Value {
            place: place(),
            expected: "the id of a value of the graph".to_owned(),
            found: id.into(),
        })
    }

    pub(super) fn id(&self, table: &Table<'_>, field: Field) -> Result<u32, Error> {
        self.check(table.u32(field)?, || table.place(field))
    }

    pub(super) fn optional(&self, table: &Table<'_>, field: Field) -> Result<Option<u32>, Error> {
        match table.u32(field)? {
            NOTHING => Ok(None),
            id => self.check(id, || table.place(field)).map(Some),
        }
    }
}

/// Where the graph and its constants lie in the file.
struct Extent {
    start: u64,
    end: u64,
    constants: u64,
    constants_end: u64,
}

impl Extent {
    fn find(pages: &Pages<'_>, payload: ByteRange) -> Result<Self, Error> {
        let place = |at: u64, field: &str| Place {
            path: format!("XNNPACK payload {field}"),
            offset: payload.offset + at,
        };
        let read = |at: u64| -> Result<[u8; 8], Error> {
            pages
                .array(payload.offset + at)
                .map_err(|error| Error::Read {
                    place: place(at, "header"),
                    error,
                })
        };
        let end = payload.offset + payload.size;
        let wrong = |found: [u8; 8]| Error::PayloadMagic {
            place: place(4, "identifier"),
            found: found[4..].escape_ascii().to_string(),
        };
        if payload.size < HEADER + 8 {
            return Err(wrong([0; 8]));
        }
        let head = read(0)?;
        if matches!(&head[4..], b"XN00" | b"XN01") {
            return Ok(Self {
                start: payload.offset,
                end,
                constants: end,
                constants_end: end,
            });
        }
        if &head[4..] != b"XH00" {
            return Err(wrong(head));
        }
        let number = |at: u64| -> Result<u64, Error> {
            let [a, b, c, d, ..] = read(at)?;
            Ok(u32::from_le_bytes([a, b, c, d]).into())
        };
        let (graph, graph_size, base) = (number(10)?, number(14)?, number(18)?);
        let size = u64::from_le_bytes(read(22)?);
        let within = |offset: u64, length: u64, field: &str| match offset.checked_add(length) {
            Some(last) if last <= payload.size => Ok(payload.offset + offset),
            _ => Err(Error::Value {
                place: place(10, field),
                expected: format!("a range inside the payload's {} bytes", payload.size),
                found: offset.saturating_add(length),
            }),
        };
        let start = within(graph, graph_size.max(8), "flatbuffer_size")?;
        let constants = within(base, size, "constant_data_size")?;
        let identifier = pages.array::<8>(start).map_err(|error| Error::Read {
            place: place(graph, "FlatBuffer"),
            error,
        })?;
        if !matches!(&identifier[4..], b"XN00" | b"XN01") {
            return Err(wrong(identifier));
        }
        Ok(Self {
            start,
            end: start + graph_size,
            constants,
            constants_end: constants + size,
        })
    }
}

/// Constants by their index, which counts from 1.
fn read_constants(graph: &Table<'_>, extent: &Extent) -> Result<Vec<Data>, Error> {
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
    let offset_field = Field(0, "offset");
    let found = constants.iter_tables().map(|constant| {
        let constant = constant?;
        let name = constant.name(Field(2, "named_key"))?;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return Ok(Data::Named(name));
        }
        let (offset, size) = (constant.u64(offset_field)?, constant.u64(Field(1, "size"))?);
        let most = extent.constants_end - extent.constants;
        match offset.checked_add(size) {
            Some(end) if end <= most => Ok(Data::Payload(ByteRange {
                offset: extent.constants + offset,
                size,
            })),
            _ => Err(Error::DataOffset {
                place: constant.place(offset_field),
                found: offset.saturating_add(size),
                most,
            }),
        }
    });
    found.collect()
}

impl Value {
    fn read(outer: &Table<'_>, constants: &[Data]) -> Result<(u32, Self), Error> {
        let tag = outer.u8(UNION_TYPE)?;
        let table = outer.required(UNION)?;
        let (tensor, quantized) = match tag {
            1 => (table, None),
            2 => (table.required(Field(0, "tensor_value"))?, Some(table)),
            found => {
                return Err(Error::UnionType {
                    place: outer.place(UNION_TYPE),
                    found,
                    most: 2,
                });
            }
        };
        let dims = numbers(&tensor, Field(2, "dims"))?;
        let constant_field = Field(3, "constant_buffer_idx");
        let data = constant(&tensor, constant_field, constants)?;
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
        Ok((tensor.u32(Field(6, "id_out"))?, value))
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

/// A short vector of numbers.
pub(super) fn numbers(table: &Table<'_>, field: Field) -> Result<Vec<u64>, Error> {
    let vector = table.vector(field, 4)?;
    if vector.len() > MAX_RANK {
        return Err(Error::Rank {
            place: vector.here(),
            found: vector.len(),
            most: MAX_RANK,
        });
    }
    (0..vector.len())
        .map(|at| vector.u32(at).map(u64::from))
        .collect()
}
