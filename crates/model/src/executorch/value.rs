//! Reads the values of a method: tensors, scalars, lists.
//!
//! The dimensions of a bounded tensor are all `Maybe` at first; `dynamism.rs` determines the
//! dynamic ones.

use super::element::{LAST_CODE, decode, element_of};
use super::flatbuffer::Table;
use super::schema::{tensor, value};
use super::storage::{Storage, StoredRange};
use crate::{Dim, Dynamism, ElementType, FormatError, TensorInfo, ValueKind};

/// Maximum number of dimensions of a tensor; the runtime itself stops at 16.
const MAX_RANK: u64 = 64;
/// Maximum size of a constant tensor whose elements are read, in bytes.
const MAX_CONSTANT_BYTES: u64 = 4096;
/// Approximate memory per element of a [`ValueKind::Tensor`]'s data, in bytes.
const ELEMENT_COST: u64 = 80;
/// Approximate memory per dimension, in bytes.
const DIM_COST: u64 = 48;

/// Union members of `KernelTypes`, by number.
pub(super) const NULL: u8 = 1;
pub(super) const INT: u8 = 2;
pub(super) const BOOL: u8 = 3;
pub(super) const DOUBLE: u8 = 4;
pub(super) const TENSOR: u8 = 5;
pub(super) const STRING: u8 = 6;
pub(super) const INT_LIST: u8 = 7;
pub(super) const DOUBLE_LIST: u8 = 8;
pub(super) const BOOL_LIST: u8 = 9;
pub(super) const TENSOR_LIST: u8 = 10;
/// The last member of the union.
pub(super) const OPTIONAL_TENSOR_LIST: u8 = 11;
const LAST_TAG: u8 = OPTIONAL_TENSOR_LIST;

/// A value: its type and table.
pub(super) struct Evalue<'a> {
    /// Member of the union `KernelTypes`.
    pub(super) tag: u8,
    /// The member's table; only `Null` may lack one.
    table: Option<Table<'a>>,
    outer: Table<'a>,
}

/// A tensor as stored in the file.
pub(super) struct ProgramTensor {
    /// Element type.
    pub(super) element: ElementType,
    /// Sizes, or their upper bounds.
    pub(super) sizes: Vec<u64>,
    /// Static, bounded or unbounded.
    pub(super) dynamism: Dynamism,
    /// Its name, if its data is in another file.
    pub(super) external: Option<String>,
    /// Size of an element in bytes, if that is whole.
    pub(super) width: Option<u64>,
    /// The source of its elements.
    pub(super) home: TensorSource,
    /// Stored bytes of a constant in row-major order, with its exact size.
    constant: Option<(StoredRange, u64)>,
}

/// The source of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TensorSource {
    /// Memory that the runtime allocates; the file stores no elements.
    Memory,
    /// Stored in the file and never written.
    Constant(StoredRange),
    /// Initialised from the file and written by the program.
    State(StoredRange),
}

impl<'a> Evalue<'a> {
    /// Reads the type of a value.
    pub(super) fn read(outer: Table<'a>) -> Result<Self, FormatError> {
        let tag = outer.u8(value::TYPE)?;
        if tag == 0 || tag > LAST_TAG {
            return Err(outer.place(value::TYPE).union_type(LAST_TAG, tag));
        }
        let table = outer.table(value::VALUE)?;
        if table.is_none() && tag != NULL {
            return Err(outer.place(value::VALUE).missing());
        }
        Ok(Self { tag, table, outer })
    }

    /// Returns the value's own table.
    pub(super) fn table(&self) -> Result<&Table<'a>, FormatError> {
        self.table
            .as_ref()
            .ok_or_else(|| self.outer.place(value::VALUE).missing())
    }

    /// Converts the value to the format-neutral form, with the data of a small constant.
    pub(super) fn describe(&self, storage: &Storage<'_>) -> Result<ValueKind, FormatError> {
        let keep = |size| self.outer.buffer().keep(size, || self.outer.here());
        keep(128)?;
        let other = |name: &str| Ok(ValueKind::Other(name.to_owned()));
        match self.tag {
            NULL => Ok(ValueKind::None),
            INT => Ok(ValueKind::Int(self.table()?.i64(value::INT)?)),
            BOOL => Ok(ValueKind::Bool(self.table()?.u8(value::BOOL)? != 0)),
            DOUBLE => Ok(ValueKind::Double(self.table()?.f64(value::DOUBLE)?)),
            TENSOR => {
                let found = ProgramTensor::read(self.table()?, storage)?;
                keep(found.sizes.len() as u64 * DIM_COST)?;
                let data = found.data(self.table()?)?;
                Ok(ValueKind::Tensor {
                    info: found.into_info(),
                    data,
                })
            }
            STRING => {
                let text = self.table()?.truncated_text(value::STRING)?;
                Ok(ValueKind::String(text.unwrap_or_default()))
            }
            INT_LIST => other("int_list"),
            DOUBLE_LIST => other("double_list"),
            BOOL_LIST => other("bool_list"),
            TENSOR_LIST => other("tensor_list"),
            _ => other("optional_tensor_list"),
        }
    }
}

impl ProgramTensor {
    /// Reads a tensor and checks its references.
    pub(super) fn read(table: &Table<'_>, storage: &Storage<'_>) -> Result<Self, FormatError> {
        let (element, width) = element_of(table.i8(tensor::SCALAR_TYPE)?);
        let sizes = read_sizes(table)?;
        let dynamism = match table.i8(tensor::DYNAMISM)? {
            0 => Dynamism::Static,
            1 => Dynamism::Bounded,
            2 => Dynamism::Unbounded,
            found => {
                return Err(table.place(tensor::DYNAMISM).enum_value(2, found));
            }
        };
        let bytes = match dynamism {
            // The stored sizes of an unbounded tensor are meaningless.
            Dynamism::Unbounded => None,
            _ => size_in_bytes(table, &sizes, width)?,
        };
        let extra = table.table(tensor::EXTRA)?;
        let external = match &extra {
            Some(extra) => external_name(extra)?,
            None => None,
        };
        let mut found = Self {
            element,
            sizes,
            dynamism,
            external,
            width,
            home: TensorSource::Memory,
            constant: None,
        };
        let index = table.u32(tensor::DATA_INDEX)?;
        // The index of external data is meaningless.
        if index == 0 || found.external.is_some() {
            return Ok(found);
        }
        let place = || table.place(tensor::DATA_INDEX);
        if table.table(tensor::ALLOCATION)?.is_some() {
            let which = match &extra {
                Some(extra) => extra.u64(tensor::MUTABLE_INDEX)?,
                None => 0,
            };
            let stored = storage.mutable(which, index, place)?;
            check_data(table, stored, bytes)?;
            found.home = TensorSource::State(stored);
        } else {
            let stored = storage.constant(index, place)?;
            check_data(table, stored, bytes)?;
            found.home = TensorSource::Constant(stored);
            let plain = table.i32(tensor::STORAGE_OFFSET)? == 0 && is_row_major(table)?;
            if let (Some(bytes), true) = (bytes, plain) {
                found.constant = Some((stored, bytes));
            }
        }
        Ok(found)
    }

    /// Returns the maximum size of a tensor in bytes, as the runtime computes it; `None` for an
    /// undefined type.
    pub(super) fn bytes(table: &Table<'_>) -> Result<Option<u64>, FormatError> {
        let code = table.i8(tensor::SCALAR_TYPE)?;
        if !(0..=LAST_CODE).contains(&code) {
            return Ok(None);
        }
        // Elements of less than a byte count as one byte.
        let width = element_of(code).1.unwrap_or(1);
        size_in_bytes(table, &read_sizes(table)?, Some(width))
    }

    /// Returns whether it is stored in the file and never written.
    pub(super) fn is_constant(&self) -> bool {
        self.constant.is_some()
    }

    /// Returns its dimensions from the outermost in memory; empty if the order is invalid.
    pub(super) fn dim_order(table: &Table<'_>) -> Result<Vec<usize>, FormatError> {
        let rank = table.vector(tensor::SIZES, 4)?.len();
        let order = table.vector(tensor::DIM_ORDER, 1)?;
        if rank > MAX_RANK || order.len() != rank {
            let row_major = order.is_empty() && rank <= MAX_RANK;
            let rank = usize::try_from(rank).unwrap_or(0);
            return Ok((0..rank).filter(|_| row_major).collect());
        }
        let order = (0..rank).map(|index| order.u8(index).map(usize::from));
        let order: Vec<usize> = order.collect::<Result<_, _>>()?;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        let sound = sorted.iter().copied().eq(0..sorted.len());
        Ok(if sound { order } else { Vec::new() })
    }

    /// Returns the elements of a small constant.
    fn data(&self, table: &Table<'_>) -> Result<Option<Vec<serde_json::Value>>, FormatError> {
        let ElementType::Known(dtype) = self.element else {
            return Ok(None);
        };
        let Some((stored, bytes)) = self
            .constant
            .filter(|(_, bytes)| *bytes <= MAX_CONSTANT_BYTES)
        else {
            return Ok(None);
        };
        let place = || table.place(tensor::DATA_INDEX);
        let buffer = table.buffer();
        buffer.keep(bytes / dtype.size() * ELEMENT_COST, place)?;
        let size = usize::try_from(bytes).expect("at most MAX_DATA");
        let raw = buffer
            .pages()
            .bytes(stored.offset, size)
            .map_err(|error| place().unreadable(&error))?;
        Ok(decode(dtype, &raw))
    }

    /// Returns dtype and shape.
    pub(super) fn into_info(self) -> TensorInfo {
        let dim = |size: u64| match self.dynamism {
            Dynamism::Static => Dim::Fixed(size),
            Dynamism::Bounded => Dim::Maybe {
                bound: size,
                likely_dynamic: false,
            },
            // Programs have neither symbols nor other bounds for these.
            Dynamism::Symbolic | Dynamism::Unbounded => Dim::ANY,
        };
        TensorInfo {
            dims: Some(self.sizes.iter().copied().map(dim).collect()),
            element: self.element,
            dynamism: self.dynamism,
        }
    }
}

fn read_sizes(table: &Table<'_>) -> Result<Vec<u64>, FormatError> {
    let vector = table.vector(tensor::SIZES, 4)?;
    if vector.len() > MAX_RANK {
        return Err(vector.here().rank(MAX_RANK, vector.len()));
    }
    (0..vector.len())
        .map(|index| {
            let found = vector.i32(index)?;
            u64::try_from(found).map_err(|_| vector.place(index).negative_size(found))
        })
        .collect()
}

/// Returns the size of a tensor in bytes, if its elements are whole bytes.
fn size_in_bytes(
    table: &Table<'_>,
    sizes: &[u64],
    width: Option<u64>,
) -> Result<Option<u64>, FormatError> {
    let elements = sizes
        .iter()
        .try_fold(1u64, |product, size| product.checked_mul(*size));
    // The runtime counts elements with a signed integer.
    let elements = elements.filter(|elements| i64::try_from(*elements).is_ok());
    let bytes = elements.and_then(|elements| elements.checked_mul(width.unwrap_or(1)));
    match bytes {
        Some(bytes) => Ok(width.map(|_| bytes)),
        None => Err(table.place(tensor::SIZES).expected(
            "a tensor whose size fits 64 bits",
            format_args!("{:?}", sizes.to_vec()),
        )),
    }
}

fn external_name(extra: &Table<'_>) -> Result<Option<String>, FormatError> {
    match extra.i8(tensor::LOCATION)? {
        0 => Ok(None),
        1 => Ok(Some(extra.name(tensor::FULL_NAME)?.unwrap_or_default())),
        found => Err(extra.place(tensor::LOCATION).enum_value(1, found)),
    }
}

fn check_data(
    table: &Table<'_>,
    stored: StoredRange,
    bytes: Option<u64>,
) -> Result<(), FormatError> {
    match bytes {
        Some(size) if size > stored.available => Err(table.place(tensor::DATA_INDEX).expected(
            format_args!("{size} bytes of tensor data at {}", stored.offset),
            format_args!("{} there", stored.available),
        )),
        _ => Ok(()),
    }
}

fn is_row_major(table: &Table<'_>) -> Result<bool, FormatError> {
    let order = table.vector(tensor::DIM_ORDER, 1)?;
    for index in 0..order.len() {
        if u64::from(order.u8(index)?) != index {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns a tensor's planned memory: the number of the memory and the offset in it.
pub(super) fn planned_memory(allocation: &Table<'_>) -> Result<(u32, u64), FormatError> {
    let low = u64::from(allocation.u32(tensor::MEMORY_LOW)?);
    let high = u64::from(allocation.u32(tensor::MEMORY_HIGH)?);
    Ok((allocation.u32(tensor::MEMORY)?, high << 32 | low))
}
