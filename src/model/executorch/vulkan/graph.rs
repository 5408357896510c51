//! The graph of `VulkanBackend`, as an executor needs it: calls by name over a list of values.
//!
//! `vulkan/serialization/schema.fbs` of ExecuTorch 1.5. Invariant: every index of a call or a list is that of
//! a value; every range lies inside the payload. Sizes of tensors that are no constants are those of the
//! export, not to be believed; how tensors are laid out on a GPU is not read.

use super::super::element::element_of;
use super::super::error::{Error, Place};
use super::super::flatbuffer::{Buffer, Table, Vector};
use super::super::storage::ByteRange;
use super::super::stored::Data;
use super::payload::Parts;
use super::schema::{
    ARGS, BOOL, CHAIN, CONSTANT, CONSTANTS, DATATYPE, DIMS, DOUBLE, INPUTS, INT, IS_BOOL,
    IS_BOOL_LIST, IS_DOUBLE, IS_DOUBLE_LIST, IS_INT, IS_INT_LIST, IS_NULL, IS_SYMBOL, IS_TENSOR,
    IS_TEXT, IS_VALUE_LIST, ITEMS, KEY, LENGTH, NAME, OFFSET, OUTPUTS, SYMBOL, TEXT, TYPE, VALUE,
    VALUES,
};
use crate::model::ElementType;
use crate::source::pages::DEFAULT_BUDGET;
use crate::source::{Pages, ReadAt};

/// Bytes a value or a call takes in memory, about.
const ENTRY_COST: u64 = 192;
/// Bytes an element of a list takes in memory.
const ITEM_COST: u64 = 16;
/// Most dimensions of a tensor.
const MAX_RANK: u64 = 16;

/// A graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Values. Calls name them by their places.
    pub values: Vec<Value>,
    /// Calls, each after those it needs.
    pub calls: Vec<Call>,
    /// Values that are its inputs, in the order of a call's arguments.
    pub inputs: Vec<usize>,
    /// Values that are its outputs, in the order of a call's arguments.
    pub outputs: Vec<usize>,
}

/// A call of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The operator's name (`aten.add.Tensor`).
    pub name: String,
    /// Values: its arguments in the order of its schema, then its result.
    pub args: Vec<usize>,
}

/// A value of a graph.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// None.
    Null,
    /// An integer.
    Int(i64),
    /// A number.
    Double(f64),
    /// A boolean.
    Bool(bool),
    /// A tensor.
    Tensor(Tensor),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Doubles(Vec<f64>),
    /// Booleans.
    Bools(Vec<bool>),
    /// Values: tensors, integers or symbols.
    Values(Vec<usize>),
    /// A text.
    Text(String),
    /// An integer that a call writes; what it was at export.
    Symbol(i32),
}

/// A tensor of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// dtype.
    pub element: ElementType,
    /// Sizes at export, outermost first.
    pub dims: Vec<u64>,
    /// Where a constant's elements are, row major.
    pub data: Option<Data>,
}

impl Graph {
    /// Reads the graph in a delegate's payload.
    ///
    /// # Errors
    ///
    /// Where the payload is broken, with the table and the offset.
    pub fn read(source: &dyn ReadAt, payload: ByteRange) -> Result<Self, Error> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let parts = Parts::find(&pages, payload)?;
        let end = parts.graph.offset + parts.graph.size;
        let buffer = Buffer::new(&pages, parts.graph.offset, end);
        let root = buffer.root("VkGraph")?;
        let constants = read_constants(&root, parts.constants)?;
        let tables = root.tables(VALUES)?;
        tables.keep(ENTRY_COST)?;
        let count = tables.len();
        let values = tables.iter_tables();
        let values = values.map(|value| Value::read(&value?, count, &constants));
        let values = values.collect::<Result<_, Error>>()?;
        let chain = root.tables(CHAIN)?;
        chain.keep(ENTRY_COST)?;
        let calls = chain.iter_tables().map(|call| {
            let call = call?;
            let name = call.name(NAME)?.ok_or_else(|| Error::MissingField {
                place: call.place(NAME),
            })?;
            let args = indices(&call.vector(ARGS, 4)?, count)?;
            Ok(Call { name, args })
        });
        Ok(Self {
            values,
            calls: calls.collect::<Result<_, Error>>()?,
            inputs: indices(&root.vector(INPUTS, 4)?, count)?,
            outputs: indices(&root.vector(OUTPUTS, 4)?, count)?,
        })
    }
}

/// Places of values; each must be one.
fn indices(vector: &Vector<'_>, count: u64) -> Result<Vec<usize>, Error> {
    vector.keep(ITEM_COST)?;
    (0..vector.len())
        .map(|at| index(vector.i32(at)?.into(), count, "values", || vector.place(at)))
        .collect()
}

fn index(
    found: i64,
    count: u64,
    what: &'static str,
    place: impl FnOnce() -> Place,
) -> Result<usize, Error> {
    match usize::try_from(found) {
        Ok(index) if (index as u64) < count => Ok(index),
        _ => Err(Error::Index {
            place: place(),
            what,
            count,
            found,
        }),
    }
}

fn read_constants(graph: &Table<'_>, stored: ByteRange) -> Result<Vec<Data>, Error> {
    let constants = graph.tables(CONSTANTS)?;
    constants.keep(ENTRY_COST)?;
    let found = constants.iter_tables().map(|constant| {
        let constant = constant?;
        let name = constant.name(KEY)?;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return Ok(Data::Named(name));
        }
        let (offset, size) = (constant.u64(OFFSET)?, constant.u64(LENGTH)?);
        Data::part(stored, offset, size, || constant.place(OFFSET))
    });
    found.collect()
}

impl Value {
    fn read(outer: &Table<'_>, count: u64, constants: &[Data]) -> Result<Self, Error> {
        let tag = outer.u8(TYPE)?;
        if tag == IS_NULL {
            return Ok(Self::Null);
        }
        let table = outer.required(VALUE)?;
        let list = |width| -> Result<Vector<'_>, Error> {
            let items = table.vector(ITEMS, width)?;
            items.keep(ITEM_COST)?;
            Ok(items)
        };
        Ok(match tag {
            IS_INT => Self::Int(table.i64(INT)?),
            IS_DOUBLE => Self::Double(table.f64(DOUBLE)?),
            IS_BOOL => Self::Bool(table.u8(BOOL)? != 0),
            IS_TENSOR => Self::Tensor(Tensor::read(&table, constants)?),
            IS_INT_LIST => {
                let items = list(8)?;
                Self::Ints(each(&items, |at| items.i64(at))?)
            }
            IS_DOUBLE_LIST => {
                let items = list(8)?;
                Self::Doubles(each(&items, |at| items.f64(at))?)
            }
            IS_BOOL_LIST => {
                let items = list(1)?;
                Self::Bools(each(&items, |at| Ok(items.u8(at)? != 0))?)
            }
            IS_VALUE_LIST => Self::Values(indices(&table.vector(ITEMS, 4)?, count)?),
            IS_TEXT => Self::Text(table.name(TEXT)?.unwrap_or_default()),
            IS_SYMBOL => Self::Symbol(table.i32(SYMBOL)?),
            found => {
                return Err(Error::UnionType {
                    place: outer.place(TYPE),
                    found,
                    most: IS_SYMBOL,
                });
            }
        })
    }
}

fn each<T>(items: &Vector<'_>, read: impl Fn(u64) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    (0..items.len()).map(read).collect()
}

impl Tensor {
    fn read(table: &Table<'_>, constants: &[Data]) -> Result<Self, Error> {
        let dims = table.vector(DIMS, 4)?;
        if dims.len() > MAX_RANK {
            return Err(Error::Rank {
                place: dims.here(),
                found: dims.len(),
                most: MAX_RANK,
            });
        }
        let constant = table.i32(CONSTANT)?;
        let data = if constant < 0 {
            None
        } else {
            let place = || table.place(CONSTANT);
            let count = constants.len() as u64;
            let index = index(constant.into(), count, "constants", place)?;
            Some(constants[index].clone())
        };
        Ok(Self {
            element: read_datatype(table)?,
            dims: each(&dims, |at| dims.u32(at).map(u64::from))?,
            data,
        })
    }
}

/// `VkDataType`, as the code of the same type in ExecuTorch's own list.
fn read_datatype(table: &Table<'_>) -> Result<ElementType, Error> {
    let code = match table.i8(DATATYPE)? {
        0 => 11,
        1 => 0,
        2 => 1,
        3 => 3,
        4 => 5,
        5 => 6,
        6 => 7,
        7 => 4,
        found => {
            return Err(Error::EnumValue {
                place: table.place(DATATYPE),
                found,
                most: 7,
            });
        }
    };
    Ok(element_of(code).0)
}
