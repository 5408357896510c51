//! The values of a method, in the form that an engine uses.

use super::super::flatbuffer::{Table, Vector};
use super::super::schema::{tensor, value};
use super::super::storage::Storage;
use super::super::value as evalue;
use super::super::value::{Evalue, ProgramTensor, TensorSource};
use super::{ByteRange, INDEX_COST, in_range, value_indices};
use crate::{Dynamism, ElementType, FormatError};

/// Approximate memory per value, in bytes.
const VALUE_COST: u64 = 160;

/// A value. Lists of `usize` hold indices of other values.
#[derive(Debug, Clone, PartialEq)]
pub enum BodyValue {
    /// None.
    Null,
    /// An integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
    /// A floating-point number.
    Double(f64),
    /// A text.
    String(String),
    /// A tensor.
    Tensor(TensorBody),
    /// Integers, as indices of values.
    IntList(Vec<usize>),
    /// Numbers.
    DoubleList(Vec<f64>),
    /// Booleans.
    BoolList(Vec<bool>),
    /// Tensors, as indices of values.
    TensorList(Vec<usize>),
    /// Optional tensors, as indices of values.
    OptionalTensorList(Vec<Option<usize>>),
}

/// A tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorBody {
    /// dtype.
    pub element: ElementType,
    /// Sizes or their upper bounds, outermost first.
    pub sizes: Vec<u64>,
    /// Dimensions in memory order, outermost first.
    pub dim_order: Vec<usize>,
    /// Whether sizes are exact or upper bounds.
    pub dynamism: Dynamism,
    /// The source of its elements.
    pub data: TensorData,
    /// Planned memory and offset of its elements while the method runs, if any. Tensors at the same
    /// position are views of each other, as long as other values are not written there.
    pub memory: Option<(u32, u64)>,
}

/// The source of a tensor's elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TensorData {
    /// The file stores no elements.
    None,
    /// Stored in the file and never written; row-major in the tensor's dimension order.
    Constant(ByteRange),
    /// Initialised from the file, written by the program, and kept between runs.
    State(ByteRange),
    /// Stored under this name in the program or in a data file.
    External(String),
}

impl BodyValue {
    /// Reads a value of a method that has `count` of them.
    pub(super) fn read(
        outer: Table<'_>,
        count: u64,
        storage: &Storage<'_>,
    ) -> Result<Self, FormatError> {
        outer.buffer().keep(VALUE_COST, || outer.here())?;
        let found = Evalue::read(outer)?;
        if found.tag == evalue::NULL {
            return Ok(Self::Null);
        }
        let table = found.table()?;
        Ok(match found.tag {
            evalue::INT => Self::Int(table.i64(value::INT)?),
            evalue::BOOL => Self::Bool(table.u8(value::BOOL)? != 0),
            evalue::DOUBLE => Self::Double(table.f64(value::DOUBLE)?),
            evalue::STRING => {
                Self::String(table.truncated_text(value::STRING)?.unwrap_or_default())
            }
            evalue::TENSOR => Self::Tensor(TensorBody::read(table, storage)?),
            evalue::INT_LIST => {
                Self::IntList(wide_indices(&table.vector(value::ITEMS, 8)?, count)?)
            }
            evalue::DOUBLE_LIST => {
                let items = table.vector(value::ITEMS, 8)?;
                items.keep(INDEX_COST)?;
                Self::DoubleList(each(&items, |at| items.f64(at))?)
            }
            evalue::BOOL_LIST => {
                let items = table.vector(value::ITEMS, 1)?;
                items.keep(INDEX_COST)?;
                Self::BoolList(each(&items, |at| Ok(items.u8(at)? != 0))?)
            }
            evalue::TENSOR_LIST => {
                Self::TensorList(value_indices(&table.vector(value::ITEMS, 4)?, count)?)
            }
            _ => Self::OptionalTensorList(optional(&table.vector(value::ITEMS, 4)?, count)?),
        })
    }

    /// Returns the tensor, if the value is one.
    pub fn tensor(&self) -> Option<&TensorBody> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }
}

impl TensorBody {
    fn read(table: &Table<'_>, storage: &Storage<'_>) -> Result<Self, FormatError> {
        let found = ProgramTensor::read(table, storage)?;
        let dim_order = ProgramTensor::dim_order(table)?;
        let offset = table.i32(tensor::STORAGE_OFFSET)?;
        if offset != 0 || dim_order.len() != found.sizes.len() {
            return Err(table.place(tensor::DIM_ORDER).layout(offset));
        }
        let mut factors = found.sizes.iter().copied().chain(found.width);
        let bytes = factors.try_fold(1_u64, u64::checked_mul);
        let bytes = bytes.filter(|_| found.width.is_some());
        let data = match (found.external, found.home, bytes) {
            (Some(name), ..) => TensorData::External(name),
            (None, TensorSource::Constant(stored), Some(size)) => TensorData::Constant(ByteRange {
                offset: stored.offset,
                size,
            }),
            (None, TensorSource::State(stored), Some(size)) => TensorData::State(ByteRange {
                offset: stored.offset,
                size,
            }),
            _ => TensorData::None,
        };
        Ok(Self {
            element: found.element,
            sizes: found.sizes,
            dim_order,
            dynamism: found.dynamism,
            data,
            memory: read_memory(table)?,
        })
    }
}

fn read_memory(table: &Table<'_>) -> Result<Option<(u32, u64)>, FormatError> {
    let allocation = table.table(tensor::ALLOCATION)?;
    allocation
        .map(|found| evalue::planned_memory(&found))
        .transpose()
}

fn each<T>(
    items: &Vector<'_>,
    read: impl Fn(u64) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    (0..items.len()).map(read).collect()
}

fn wide_indices(items: &Vector<'_>, count: u64) -> Result<Vec<usize>, FormatError> {
    items.keep(INDEX_COST)?;
    each(items, |at| {
        in_range(items.i64(at)?, count, "values", || items.place(at))
    })
}

fn optional(items: &Vector<'_>, count: u64) -> Result<Vec<Option<usize>>, FormatError> {
    items.keep(INDEX_COST)?;
    each(items, |at| match items.i32(at)? {
        -1 => Ok(None),
        found => in_range(found.into(), count, "values", || items.place(at)).map(Some),
    })
}
