//! Reads the graph of an MLX delegate for an engine: instructions that read and write numbered
//! slots.
//!
//! Source: `mlx/serialization/schema.fbs` of ExecuTorch 1.5.1. Invariant: every slot that an
//! instruction uses is in range. The program stores the contents of constants under names. Dynamic
//! sizes are not read: shapes follow from the inputs.

use std::collections::BTreeMap;

use super::super::element::element_of;
use super::super::flatbuffer::{self, Buffer, Table, Vector};
use super::super::storage::ByteRange;
use super::kinds::INSTRUCTION_KINDS;
use crate::{ElementType, FieldPosition, FormatError};
use pkgtool_base::source::pages::DEFAULT_BUDGET;
use pkgtool_base::source::{Pages, ReadAt};

/// Length of the header in bytes.
const HEADER_BYTES: u64 = 24;
/// Approximate memory per instruction or tensor, in bytes.
const ENTRY_MEMORY_BYTES: u64 = 512;
/// Memory per list element, in bytes.
const ITEM_MEMORY_BYTES: u64 = 24;
/// Maximum number of dimensions of a tensor.
const MAX_RANK: u64 = 16;

/// A graph.
#[derive(Debug, Clone, PartialEq)]
pub struct MlxGraph {
    /// Instructions that run once at load time.
    pub init: Vec<MlxInstruction>,
    /// Instructions of each run.
    pub main: Vec<MlxInstruction>,
    /// Inputs in the order of a call's arguments.
    pub inputs: Vec<MlxSlot>,
    /// Outputs in the order of a call's arguments.
    pub outputs: Vec<MlxSlot>,
    /// Number of leading tensor slots that are constants.
    pub constant_count: u32,
    /// Tensor slots that persist from run to run.
    pub persistent_slots: Vec<u32>,
    /// Names under which the program stores the contents of tensor slots.
    pub names: BTreeMap<u32, String>,
    /// Tensors by slot, without temporary ones.
    pub tensors: Vec<MlxTensor>,
}

/// An input or an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MlxSlot {
    /// A tensor slot.
    Tensor(u32),
    /// A value slot.
    Value(u32),
}

/// A tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct MlxTensor {
    /// Element type.
    pub element: ElementType,
    /// Sizes; `None` for a dynamic one.
    pub dims: Vec<Option<u64>>,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct MlxInstruction {
    /// Its kind (`Addmm`).
    pub kind: &'static str,
    /// Its fields by name, without absent fields that lack a default.
    pub fields: BTreeMap<&'static str, InstructionField>,
}

/// A field of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub enum InstructionField {
    /// A tensor slot.
    Tensor(u32),
    /// Tensor slots.
    Tensors(Vec<u32>),
    /// A value slot.
    Value(u32),
    /// A number, or the slot that holds it.
    Number(Number),
    /// Integers, or the value slots that hold them.
    Numbers(Vec<Number>),
    /// A text.
    Text(String),
}

/// A number, or the slot that holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A value slot.
    Value(u32),
    /// A tensor slot.
    Tensor(u32),
}

/// Returns the position of a payload's FlatBuffer, if the payload belongs to this backend.
pub(in super::super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Option<ByteRange> {
    let size = payload
        .size
        .checked_sub(HEADER_BYTES)
        .filter(|size| *size >= 8)?;
    let head: [u8; 8] = pages.array(payload.offset).ok()?;
    (&head[4..] == b"MLX0").then_some(ByteRange {
        offset: payload.offset + HEADER_BYTES,
        size,
    })
}

/// The number of tensor and value slots of a graph.
#[derive(Clone, Copy)]
struct SlotCounts {
    tensors: u64,
    values: u64,
}

const fn field(number: u16, name: &'static str) -> flatbuffer::Field {
    flatbuffer::Field(number, name)
}

impl MlxGraph {
    /// Reads the graph in a delegate's payload.
    ///
    /// # Errors
    ///
    /// Fails if the payload is invalid, with the table and the offset.
    pub fn read(source: &dyn ReadAt, payload: ByteRange) -> Result<Self, FormatError> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let range = find(&pages, payload).ok_or_else(|| {
            FieldPosition::new("MLX payload header.magic", payload.offset.saturating_add(4))
                .expected("MLX0", "other or too few bytes")
        })?;
        let buffer = Buffer::new(&pages, range.offset, range.offset + range.size);
        let root = buffer.root("MLXGraph")?;
        let counts = ["constant", "input", "output", "mutable_buffer", "temp"];
        let counts = (1..)
            .zip(counts)
            .map(|(at, name)| root.u32(field(at, name)));
        let counts: Vec<u32> = counts.collect::<Result<_, _>>()?;
        let slots = SlotCounts {
            tensors: counts.iter().map(|count| u64::from(*count)).sum(),
            values: root.u32(field(6, "num_values"))?.into(),
        };
        let chains = root.tables(field(7, "instruction_chains"))?;
        let chain =
            |index: i64, place: FieldPosition| -> Result<Vec<MlxInstruction>, FormatError> {
                match u64::try_from(index) {
                    Ok(at) if at < chains.len() => read_chain(&chains.table(at)?, slots),
                    _ => Err(place.index("chains", chains.len(), index)),
                }
            };
        let (main, init) = (field(8, "main_chain_idx"), field(9, "init_chain_idx"));
        let first = root.i32_or(init, -1)?;
        let init = if first < 0 {
            Vec::new()
        } else {
            chain(first.into(), root.place(init))?
        };
        Ok(Self {
            init,
            main: chain(root.u32(main)?.into(), root.place(main))?,
            inputs: slots.read_slots(&root.tables(field(10, "input_map"))?)?,
            outputs: slots.read_slots(&root.tables(field(11, "output_map"))?)?,
            constant_count: counts[0],
            persistent_slots: slots
                .read_slots(&root.tables(field(12, "mutable_buffer_map"))?)?
                .into_iter()
                .filter_map(|slot| match slot {
                    MlxSlot::Tensor(slot) => Some(slot),
                    MlxSlot::Value(_) => None,
                })
                .collect(),
            names: read_names(&root, slots)?,
            tensors: read_tensors(&root)?,
        })
    }
}

fn read_names(root: &Table<'_>, slots: SlotCounts) -> Result<BTreeMap<u32, String>, FormatError> {
    let named = root.tables(field(13, "named_slots"))?;
    named.keep(ENTRY_MEMORY_BYTES)?;
    let mut found = BTreeMap::new();
    for entry in named.iter_tables() {
        let entry = entry?;
        let slot = slots.read_slot(&entry.required_table(field(1, "slot"))?)?;
        if let (MlxSlot::Tensor(slot), Some(name)) = (slot, entry.name(field(0, "name"))?) {
            found.insert(slot, name);
        }
    }
    Ok(found)
}

fn read_tensors(root: &Table<'_>) -> Result<Vec<MlxTensor>, FormatError> {
    let tensors = root.tables(field(14, "tensor_meta"))?;
    tensors.keep(ENTRY_MEMORY_BYTES)?;
    let tensors = tensors.iter_tables().map(|tensor| {
        let tensor = tensor?;
        let dims = tensor.tables(field(0, "shape"))?;
        if dims.len() > MAX_RANK {
            return Err(dims.here().rank(MAX_RANK, dims.len()));
        }
        let dims = dims.iter_tables().map(|dim| {
            let size = dim?.i32_or(field(0, "value"), -1)?;
            Ok(u64::try_from(size).ok())
        });
        Ok(MlxTensor {
            element: element_of(tensor.i8(field(1, "scalar_type"))?).0,
            dims: dims.collect::<Result<_, FormatError>>()?,
        })
    });
    tensors.collect()
}

fn read_chain(chain: &Table<'_>, slots: SlotCounts) -> Result<Vec<MlxInstruction>, FormatError> {
    let instructions = chain.tables(field(0, "instructions"))?;
    instructions.keep(ENTRY_MEMORY_BYTES)?;
    let instructions = instructions.iter_tables().map(|instruction| {
        let instruction = instruction?;
        let tag_field = field(0, "op_type");
        let tag = instruction.u8(tag_field)?;
        let kind = tag
            .checked_sub(1)
            .and_then(|at| INSTRUCTION_KINDS.get(usize::from(at)));
        let Some((kind, fields)) = kind else {
            return Err(instruction
                .place(tag_field)
                .union_type(INSTRUCTION_KINDS.len(), tag));
        };
        let table = instruction.required_table(field(1, "op"))?;
        let mut read = BTreeMap::new();
        for (number, described) in (0..).zip(fields.split_whitespace()) {
            let (name, ty) = described.split_once(':').expect("`name:type`");
            if let Some(value) = slots.read_field(&table, field(number, name), ty)? {
                read.insert(name, value);
            }
        }
        Ok(MlxInstruction { kind, fields: read })
    });
    instructions.collect()
}

impl SlotCounts {
    fn check(
        self,
        found: u32,
        is_value: bool,
        place: impl FnOnce() -> FieldPosition,
    ) -> Result<u32, FormatError> {
        let (what, count) = if is_value {
            ("values", self.values)
        } else {
            ("tensors", self.tensors)
        };
        if u64::from(found) < count {
            return Ok(found);
        }
        Err(place().index(what, count, found))
    }

    fn read_slot(self, table: &Table<'_>) -> Result<MlxSlot, FormatError> {
        let is_value = table.u8(field(1, "slot_type"))? != 0;
        let index = field(0, "idx");
        let slot = self.check(table.u32(index)?, is_value, || table.place(index))?;
        Ok(if is_value {
            MlxSlot::Value(slot)
        } else {
            MlxSlot::Tensor(slot)
        })
    }

    fn read_slots(self, tables: &Vector<'_>) -> Result<Vec<MlxSlot>, FormatError> {
        tables.keep(ITEM_MEMORY_BYTES)?;
        tables
            .iter_tables()
            .map(|table| self.read_slot(&table?))
            .collect()
    }

    /// Reads a field of a type in the notation of `kinds`; `None` if it is absent and lacks a
    /// default.
    fn read_field(
        self,
        table: &Table<'_>,
        at: flatbuffer::Field,
        ty: &str,
    ) -> Result<Option<InstructionField>, FormatError> {
        let (ty, default) = ty.split_once('=').unwrap_or((ty, ""));
        let absent = !table.has(at)?;
        let place = || table.place(at);
        let int = |value: i64| Some(InstructionField::Number(Number::Int(value)));
        Ok(match ty {
            "i" | "u" | "b" | "c" | "f" if absent => match default {
                "null" => None,
                "" if ty == "f" => Some(InstructionField::Number(Number::Float(0.0))),
                "" => int(0),
                text if ty == "f" => text
                    .parse()
                    .ok()
                    .map(|x| InstructionField::Number(Number::Float(x))),
                text => text.parse().ok().and_then(int),
            },
            _ if absent => None,
            "i" => int(table.i32(at)?.into()),
            "u" => int(i64::try_from(table.u64(at)?).unwrap_or(i64::MAX)),
            "b" | "c" => int(table.i8(at)?.into()),
            "f" => Some(InstructionField::Number(Number::Float(
                table.f32(at)?.into(),
            ))),
            "s" => table.name(at)?.map(InstructionField::Text),
            "t" => Some(InstructionField::Tensor(self.check(
                table.u32(at)?,
                false,
                place,
            )?)),
            "v" => Some(InstructionField::Value(self.check(
                table.u32(at)?,
                true,
                place,
            )?)),
            "T" => {
                let items = table.vector(at, 4)?;
                items.keep(ITEM_MEMORY_BYTES)?;
                let items = (0..items.len())
                    .map(|item| self.check(items.u32(item)?, false, || items.place(item)));
                Some(InstructionField::Tensors(items.collect::<Result<_, _>>()?))
            }
            "I" => {
                let items = table.vector(at, 4)?;
                items.keep(ITEM_MEMORY_BYTES)?;
                let items = (0..items.len()).map(|item| Ok(Number::Int(items.i32(item)?.into())));
                Some(InstructionField::Numbers(
                    items.collect::<Result<_, FormatError>>()?,
                ))
            }
            "N" => {
                let items = table.tables(at)?;
                items.keep(ITEM_MEMORY_BYTES)?;
                let items = items.iter_tables().map(|item| self.number(&item?, "n"));
                Some(InstructionField::Numbers(items.collect::<Result<_, _>>()?))
            }
            "n" | "d" | "e" | "o" => {
                let number = self.number(&table.required_table(at)?, ty)?;
                Some(InstructionField::Number(number))
            }
            // Types that only occur in instructions without an implementation.
            _ => None,
        })
    }

    /// Reads a literal, or the slot that holds the number.
    fn number(self, table: &Table<'_>, ty: &str) -> Result<Number, FormatError> {
        let slot = |number: u16, is_value: bool| {
            let at = field(number, "slot");
            self.check(table.u32(at)?, is_value, || table.place(at))
        };
        let literal = field(0, "literal");
        let kind = table.u8(field(if ty == "o" { 3 } else { 2 }, "kind"))?;
        Ok(match (ty, kind) {
            ("e", 0) => Number::Tensor(slot(1, false)?),
            ("e", _) => Number::Value(slot(0, true)?),
            ("d", 0) => Number::Float(table.f64(literal)?),
            (_, 0) => Number::Int(table.i64(literal)?),
            ("o", 2) => Number::Tensor(slot(2, false)?),
            _ => Number::Value(slot(1, true)?),
        })
    }
}
