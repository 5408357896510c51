//! Reads the graph of a Vulkan delegate for an engine: operator calls over a list of values.
//!
//! Source: `vulkan/serialization/schema.fbs` of ExecuTorch 1.5. Invariant: every index in a call or
//! list refers to a value, and every range lies inside the payload. Sizes of tensors other than
//! constants are those at export and unreliable. The GPU layout of tensors is not read.

use super::super::element::element_of;
use super::super::flatbuffer::{Buffer, Table, Vector};
use super::super::storage::ByteRange;
use super::super::stored::ConstantData;
use super::payload::VulkanParts;
use super::schema::{
    ARGS, BOOL, CHAIN, CONSTANT, CONSTANTS, DATATYPE, DIMS, DOUBLE, INPUTS, INT, IS_BOOL,
    IS_BOOL_LIST, IS_DOUBLE, IS_DOUBLE_LIST, IS_INT, IS_INT_LIST, IS_NULL, IS_SYMBOL, IS_TENSOR,
    IS_TEXT, IS_VALUE_LIST, ITEMS, KEY, LENGTH, NAME, OFFSET, OUTPUTS, SYMBOL, TEXT, TYPE, VALUE,
    VALUES,
};
use crate::{ElementType, FieldPosition, FormatError};
use pkgtool_base::source::pages::DEFAULT_BUDGET;
use pkgtool_base::source::{Pages, ReadAt};

/// Approximate memory per value or call, in bytes.
const ENTRY_MEMORY_BYTES: u64 = 192;
/// Memory per list element, in bytes.
const ITEM_MEMORY_BYTES: u64 = 16;
/// Maximum number of dimensions of a tensor.
const MAX_RANK: u64 = 16;

/// A graph.
#[derive(Debug, Clone, PartialEq)]
pub struct VulkanGraph {
    /// Values; calls refer to them by index.
    pub values: Vec<VulkanValue>,
    /// Calls in execution order.
    pub calls: Vec<VulkanCall>,
    /// Indices of the input values, in the order of a call's arguments.
    pub inputs: Vec<usize>,
    /// Indices of the output values, in the order of a call's arguments.
    pub outputs: Vec<usize>,
}

/// A call of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VulkanCall {
    /// The operator's name (`aten.add.Tensor`).
    pub name: String,
    /// Indices of values: the arguments in the order of the operator's schema, then the result.
    pub args: Vec<usize>,
}

/// A value of a graph.
#[derive(Debug, Clone, PartialEq)]
pub enum VulkanValue {
    /// The absent value `None`.
    Null,
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// A boolean.
    Bool(bool),
    /// A tensor.
    Tensor(VulkanTensor),
    /// Integers.
    Ints(Vec<i64>),
    /// Floating-point numbers.
    Doubles(Vec<f64>),
    /// Booleans.
    Bools(Vec<bool>),
    /// Indices of values: tensors, integers or symbols.
    Values(Vec<usize>),
    /// A text.
    Text(String),
    /// An integer that a call writes, with its value at export.
    Symbol(i32),
}

/// A tensor of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct VulkanTensor {
    /// Element type.
    pub element: ElementType,
    /// Sizes at export, outermost first.
    pub dims: Vec<u64>,
    /// Position of a constant's elements, row-major.
    pub data: Option<ConstantData>,
}

impl VulkanGraph {
    /// Reads the graph in a delegate's payload.
    ///
    /// # Errors
    ///
    /// Fails if the payload is invalid, with the table and the offset.
    pub fn read(source: &dyn ReadAt, payload: ByteRange) -> Result<Self, FormatError> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let parts = VulkanParts::find(&pages, payload)?;
        let end = parts.graph.offset + parts.graph.size;
        let buffer = Buffer::new(&pages, parts.graph.offset, end);
        let root = buffer.root("VkGraph")?;
        let constants = read_constants(&root, parts.constants)?;
        let tables = root.tables(VALUES)?;
        tables.keep(ENTRY_MEMORY_BYTES)?;
        let count = tables.len();
        let values = tables.iter_tables();
        let values = values.map(|value| VulkanValue::read(&value?, count, &constants));
        let values = values.collect::<Result<_, FormatError>>()?;
        let chain = root.tables(CHAIN)?;
        chain.keep(ENTRY_MEMORY_BYTES)?;
        let calls = chain.iter_tables().map(|call| {
            let call = call?;
            let name = call.name(NAME)?.ok_or_else(|| call.place(NAME).missing())?;
            let args = read_indices(&call.vector(ARGS, 4)?, count)?;
            Ok(VulkanCall { name, args })
        });
        Ok(Self {
            values,
            calls: calls.collect::<Result<_, FormatError>>()?,
            inputs: read_indices(&root.vector(INPUTS, 4)?, count)?,
            outputs: read_indices(&root.vector(OUTPUTS, 4)?, count)?,
        })
    }
}

/// Reads indices of values and checks that they are in range.
fn read_indices(vector: &Vector<'_>, count: u64) -> Result<Vec<usize>, FormatError> {
    vector.keep(ITEM_MEMORY_BYTES)?;
    (0..vector.len())
        .map(|at| check_index(vector.i32(at)?.into(), count, "values", || vector.place(at)))
        .collect()
}

fn check_index(
    found: i64,
    count: u64,
    what: &'static str,
    place: impl FnOnce() -> FieldPosition,
) -> Result<usize, FormatError> {
    match usize::try_from(found) {
        Ok(index) if (index as u64) < count => Ok(index),
        _ => Err(place().index(what, count, found)),
    }
}

fn read_constants(graph: &Table<'_>, stored: ByteRange) -> Result<Vec<ConstantData>, FormatError> {
    let constants = graph.tables(CONSTANTS)?;
    constants.keep(ENTRY_MEMORY_BYTES)?;
    let found = constants.iter_tables().map(|constant| {
        let constant = constant?;
        let name = constant.name(KEY)?;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return Ok(ConstantData::Named(name));
        }
        let (offset, size) = (constant.u64(OFFSET)?, constant.u64(LENGTH)?);
        ConstantData::part(stored, offset, size, || constant.place(OFFSET))
    });
    found.collect()
}

impl VulkanValue {
    fn read(
        outer: &Table<'_>,
        count: u64,
        constants: &[ConstantData],
    ) -> Result<Self, FormatError> {
        let tag = outer.u8(TYPE)?;
        if tag == IS_NULL {
            return Ok(Self::Null);
        }
        let table = outer.required_table(VALUE)?;
        let list = |width| -> Result<Vector<'_>, FormatError> {
            let items = table.vector(ITEMS, width)?;
            items.keep(ITEM_MEMORY_BYTES)?;
            Ok(items)
        };
        Ok(match tag {
            IS_INT => Self::Int(table.i64(INT)?),
            IS_DOUBLE => Self::Double(table.f64(DOUBLE)?),
            IS_BOOL => Self::Bool(table.u8(BOOL)? != 0),
            IS_TENSOR => Self::Tensor(VulkanTensor::read(&table, constants)?),
            IS_INT_LIST => {
                let items = list(8)?;
                Self::Ints(read_items(&items, |at| items.i64(at))?)
            }
            IS_DOUBLE_LIST => {
                let items = list(8)?;
                Self::Doubles(read_items(&items, |at| items.f64(at))?)
            }
            IS_BOOL_LIST => {
                let items = list(1)?;
                Self::Bools(read_items(&items, |at| Ok(items.u8(at)? != 0))?)
            }
            IS_VALUE_LIST => Self::Values(read_indices(&table.vector(ITEMS, 4)?, count)?),
            IS_TEXT => Self::Text(table.name(TEXT)?.unwrap_or_default()),
            IS_SYMBOL => Self::Symbol(table.i32(SYMBOL)?),
            found => {
                return Err(outer.place(TYPE).union_type(IS_SYMBOL, found));
            }
        })
    }
}

fn read_items<T>(
    items: &Vector<'_>,
    read: impl Fn(u64) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    (0..items.len()).map(read).collect()
}

impl VulkanTensor {
    fn read(table: &Table<'_>, constants: &[ConstantData]) -> Result<Self, FormatError> {
        let dims = table.vector(DIMS, 4)?;
        if dims.len() > MAX_RANK {
            return Err(dims.here().rank(MAX_RANK, dims.len()));
        }
        let constant = table.i32(CONSTANT)?;
        let data = if constant < 0 {
            None
        } else {
            let place = || table.place(CONSTANT);
            let count = constants.len() as u64;
            let index = check_index(constant.into(), count, "constants", place)?;
            Some(constants[index].clone())
        };
        Ok(Self {
            element: read_datatype(table)?,
            dims: read_items(&dims, |at| dims.u32(at).map(u64::from))?,
            data,
        })
    }
}

/// Converts `VkDataType` to the code of the same type in ExecuTorch's `ScalarType`.
fn read_datatype(table: &Table<'_>) -> Result<ElementType, FormatError> {
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
            return Err(table.place(DATATYPE).enum_value(7, found));
        }
    };
    Ok(element_of(code).0)
}
