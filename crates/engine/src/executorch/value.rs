//! Conversion between tensors of this crate and the values of a method.
//!
//! Invariant: a [`TensorView`] borrows its elements. Outputs are copied once. Inputs are copied only if
//! the program stores the tensor in another order than row-major, or if a boolean is neither 0 nor
//! 1. Numbers that ExecuTorch passes as scalars are tensors of rank 0 everywhere else.

use std::borrow::Cow;

use super::layout;
use crate::tensor::{DType, Tensor, TensorError};

/// Maximum number of dimensions of a tensor; `MAX_RANK` of the shim.
pub(super) const MAX_RANK: usize = 16;

/// The type of an input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueType {
    None,
    Tensor,
    Int,
    Double,
    Bool,
    /// A string or a list.
    Other,
}

/// An input or output as the program declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValueSlot {
    pub(super) kind: ValueType,
    /// Dimensions of a tensor, from the outermost in memory.
    pub(super) order: Vec<u8>,
}

/// A value of an input or output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    None,
    Int(i64),
    Double(f64),
    Bool(bool),
    Tensor(TensorView<'a>),
    /// A string, a list, or a tensor with an unsupported dtype.
    Other,
}

/// A borrowed tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TensorView<'a> {
    pub(super) dtype: DType,
    pub(super) sizes: Sizes,
    /// Dimensions from the outermost in memory. Only the first entries count, one for each size.
    pub(super) order: Order,
    pub(super) bytes: &'a [u8],
}

/// An order of at most [`MAX_RANK`] dimensions.
pub(super) type Order = [u8; MAX_RANK];

/// Sizes of at most [`MAX_RANK`] dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    rank: usize,
    all: [i32; MAX_RANK],
}

/// Why an input cannot be set or an output not be read. The texts follow the name of the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValueError {
    #[error("has {0:?}, which exceeds ExecuTorch's limits")]
    Sizes(Vec<u64>),
    #[error("has the wrong type: expected {wanted}, got {found}")]
    Scalar { wanted: DType, found: String },
    #[error("is a string or a list, which is unsupported")]
    Other,
    #[error("has no value")]
    Nothing,
    #[error("has an invalid memory order")]
    Order,
    #[error("is an invalid tensor: {0}")]
    Tensor(#[from] TensorError),
}

/// The dtypes of this crate and their codes in a program.
const DTYPES: [(DType, i32); 13] = [
    (DType::Uint8, 0),
    (DType::Int8, 1),
    (DType::Int16, 2),
    (DType::Int32, 3),
    (DType::Int64, 4),
    (DType::Float16, 5),
    (DType::Float32, 6),
    (DType::Float64, 7),
    (DType::Bool, 11),
    (DType::Bfloat16, 15),
    (DType::Uint16, 27),
    (DType::Uint32, 28),
    (DType::Uint64, 29),
];

/// Returns the dtype of a code, if it is supported.
pub(super) fn dtype_of(code: i32) -> Option<DType> {
    let found = DTYPES.iter().find(|(_, known)| *known == code);
    found.map(|(dtype, _)| *dtype)
}

/// Returns the code of a dtype.
pub(super) fn code_of(dtype: DType) -> i32 {
    let found = DTYPES.iter().find(|(known, _)| *known == dtype);
    found.map_or(-1, |(_, code)| *code)
}

impl Sizes {
    /// Sizes as a program stores them. Entries after the rank are ignored.
    pub(super) fn of(rank: usize, all: [i32; MAX_RANK]) -> Self {
        let rank = rank.min(MAX_RANK);
        Self { rank, all }
    }

    /// Converts these sizes; `None` if they do not fit.
    pub(super) fn new(sizes: &[u64]) -> Option<Self> {
        let mut all = [0; MAX_RANK];
        for (size, place) in sizes.iter().zip(&mut all) {
            *place = i32::try_from(*size).ok()?;
        }
        (sizes.len() <= MAX_RANK).then_some(Self::of(sizes.len(), all))
    }

    /// Returns the sizes, one per dimension.
    pub(super) fn as_slice(&self) -> &[i32] {
        &self.all[..self.rank]
    }

    /// Returns the sizes with the unused entries after them.
    pub(super) fn padded(&self) -> [i32; MAX_RANK] {
        self.all
    }

    /// Returns the size in bytes of a tensor of these sizes, unless it overflows.
    pub(super) fn bytes(&self, dtype: DType) -> Option<usize> {
        let mut bytes = usize::try_from(dtype.size()).ok()?;
        for size in self.as_slice() {
            bytes = bytes.checked_mul(usize::try_from(*size).ok()?)?;
        }
        isize::try_from(bytes).is_ok().then_some(bytes)
    }
}

/// Returns the elements of a tensor in the memory order of the slot.
pub(super) fn elements<'a>(
    tensor: &'a Tensor,
    slot: &ValueSlot,
) -> Result<Cow<'a, [u8]>, ValueError> {
    let bytes = tensor.bytes();
    if tensor.dtype() == DType::Bool && bytes.iter().any(|byte| *byte > 1) {
        let booleans: Vec<u8> = bytes.iter().map(|byte| u8::from(*byte != 0)).collect();
        let tensor = Tensor::new(DType::Bool, tensor.shape().to_vec(), booleans)?;
        return Ok(Cow::Owned(elements(&tensor, slot)?.into_owned()));
    }
    let sizes = sizes_of(tensor)?;
    if layout::is_row_major(sizes.as_slice(), &slot.order) {
        return Ok(Cow::Borrowed(bytes));
    }
    let width = usize::try_from(tensor.dtype().size()).unwrap_or(1);
    let ordered = layout::from_row_major(bytes, width, sizes.as_slice(), &slot.order);
    ordered.map(Cow::Owned).ok_or(ValueError::Order)
}

/// Returns the value to set the slot to. `elements` is the result of [`elements`] for the tensor.
pub(super) fn value<'a>(
    tensor: &Tensor,
    elements: &'a [u8],
    slot: &ValueSlot,
) -> Result<Value<'a>, ValueError> {
    let scalar = |wanted: DType| {
        let fits = tensor.dtype() == wanted && tensor.len() == 1;
        fits.then_some(()).ok_or_else(|| ValueError::Scalar {
            wanted,
            found: format!("{tensor:?}"),
        })
    };
    let bits = || {
        let bytes = tensor.bytes().try_into();
        u64::from_le_bytes(bytes.expect("one element of eight bytes"))
    };
    match slot.kind {
        ValueType::Int => scalar(DType::Int64).map(|()| Value::Int(bits().cast_signed())),
        ValueType::Double => scalar(DType::Float64).map(|()| Value::Double(f64::from_bits(bits()))),
        ValueType::Bool => scalar(DType::Bool).map(|()| Value::Bool(tensor.bytes() != [0])),
        ValueType::None => Ok(Value::None),
        ValueType::Other => Err(ValueError::Other),
        ValueType::Tensor => {
            let mut order = [0; MAX_RANK];
            for (place, dim) in order.iter_mut().zip(&slot.order) {
                *place = *dim;
            }
            Ok(Value::Tensor(TensorView {
                dtype: tensor.dtype(),
                sizes: sizes_of(tensor)?,
                order,
                bytes: elements,
            }))
        }
    }
}

fn sizes_of(tensor: &Tensor) -> Result<Sizes, ValueError> {
    Sizes::new(tensor.shape()).ok_or_else(|| ValueError::Sizes(tensor.shape().to_vec()))
}

/// Converts an output to a tensor.
pub(super) fn tensor(value: &Value<'_>) -> Result<Tensor, ValueError> {
    let scalar = |dtype, bytes: &[u8]| Ok(Tensor::new(dtype, Vec::new(), bytes.to_vec())?);
    match value {
        Value::Int(value) => scalar(DType::Int64, &value.to_le_bytes()),
        Value::Double(value) => scalar(DType::Float64, &value.to_le_bytes()),
        Value::Bool(value) => scalar(DType::Bool, &[u8::from(*value)]),
        Value::None => Err(ValueError::Nothing),
        Value::Other => Err(ValueError::Other),
        Value::Tensor(view) => {
            let sizes = view.sizes.as_slice();
            let order = &view.order[..sizes.len()];
            let bytes = if layout::is_row_major(sizes, order) {
                view.bytes.to_vec()
            } else {
                let width = usize::try_from(view.dtype.size()).unwrap_or(1);
                layout::to_row_major(view.bytes, width, sizes, order).ok_or(ValueError::Order)?
            };
            let shape = sizes.iter().map(|size| u64::from(size.unsigned_abs()));
            Ok(Tensor::new(view.dtype, shape.collect(), bytes)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(kind: ValueType, order: &[u8]) -> ValueSlot {
        ValueSlot {
            kind,
            order: order.to_vec(),
        }
    }

    #[test]
    fn tensors_go_in_and_come_out_in_any_order() {
        let given = Tensor::from_f64(DType::Int16, vec![1, 2, 3], (0_u8..6).map(f64::from));
        let given = given.expect("it is small");
        for order in [[0, 1, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0]] {
            let slot = slot(ValueType::Tensor, &order);
            let elements = elements(&given, &slot).expect("an order");
            let value = value(&given, &elements, &slot).expect("it fits");
            assert_eq!(tensor(&value), Ok(given.clone()), "{order:?}");
        }
        let no_order = elements(&given, &slot(ValueType::Tensor, &[0, 2, 2]));
        assert_eq!(no_order, Err(ValueError::Order));
    }

    #[test]
    fn numbers_are_tensors_of_rank_0() {
        for (kind, dtype, number) in [
            (ValueType::Int, DType::Int64, -3.0),
            (ValueType::Double, DType::Float64, 0.5),
            (ValueType::Bool, DType::Bool, 1.0),
        ] {
            let given = Tensor::from_f64(dtype, vec![], [number]).expect("it is small");
            let slot = slot(kind, &[]);
            let passed = value(&given, given.bytes(), &slot).expect("it fits");
            assert_eq!(tensor(&passed), Ok(given));
            let other = Tensor::from_f64(DType::Float32, vec![], [number]).expect("it is small");
            let error = value(&other, other.bytes(), &slot).expect_err("another dtype");
            let expected = format!("has the wrong type: expected {dtype}, got float32[]");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn booleans_are_0_or_1() {
        let given = Tensor::new(DType::Bool, vec![3], vec![0, 7, 1]).expect("it fits");
        let elements = elements(&given, &slot(ValueType::Tensor, &[0])).expect("an order");
        assert_eq!(*elements, [0, 1, 1]);
    }

    #[test]
    fn sizes_that_cannot_be_counted_are_refused() {
        assert_eq!(Sizes::new(&[1 << 31]), None);
        assert_eq!(Sizes::new(&[1; 17]), None);
        let negative = Sizes::of(2, [-1; MAX_RANK]);
        assert_eq!(negative.bytes(DType::Uint8), None);
        let large = Sizes::of(16, [i32::MAX; MAX_RANK]);
        assert_eq!(large.bytes(DType::Uint8), None);
        assert_eq!(Sizes::of(0, [0; MAX_RANK]).bytes(DType::Int32), Some(4));
    }
}
