//! Dense tensors: dtype, shape and bytes, the inputs and outputs of every engine.
//!
//! Invariant: the bytes are row-major and little-endian, exactly as many as dtype and shape
//! require. No tensor is larger than [`MAX_TENSOR_BYTES`]. Engines are handled elsewhere.

use std::fmt;

use bytes::Bytes;
use half::{bf16, f16};

use super::DType;

/// Maximum size of a tensor, in bytes. Larger shapes are rejected before anything is allocated.
pub const MAX_TENSOR_BYTES: u64 = 16 << 30;

/// An n-dimensional array. Clones share the elements.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<u64>,
    bytes: Bytes,
}

/// A tensor that cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The tensor exceeds [`MAX_TENSOR_BYTES`].
    #[error(
        "{dtype}{shape:?} is too large: a tensor may have at most {} GiB",
        MAX_TENSOR_BYTES >> 30
    )]
    TooLarge {
        /// Its dtype.
        dtype: DType,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// The allocation failed.
    #[error("not enough memory for a tensor of {bytes} bytes")]
    NoMemory {
        /// Requested size, in bytes.
        bytes: u64,
    },
    /// The number of bytes does not match dtype and shape.
    #[error("{dtype}{shape:?} has {expected} bytes, not {found}")]
    Length {
        /// Its dtype.
        dtype: DType,
        /// Its shape.
        shape: Vec<u64>,
        /// Number of bytes that dtype and shape require.
        expected: u64,
        /// Number of bytes given.
        found: u64,
    },
}

/// Computes the size of a tensor with this dtype and shape, in bytes.
pub fn byte_size(dtype: DType, shape: &[u64]) -> Result<u64, TensorError> {
    // A zero makes the tensor empty, even if the product of the other sizes overflows.
    if shape.contains(&0) {
        return Ok(0);
    }
    let product = shape
        .iter()
        .try_fold(dtype.size(), |product, size| product.checked_mul(*size));
    match product {
        Some(bytes) if bytes <= MAX_TENSOR_BYTES && usize::try_from(bytes).is_ok() => Ok(bytes),
        _ => Err(TensorError::TooLarge {
            dtype,
            shape: shape.to_vec(),
        }),
    }
}

impl Tensor {
    /// Creates a tensor of these bytes.
    pub fn new(dtype: DType, shape: Vec<u64>, bytes: Vec<u8>) -> Result<Self, TensorError> {
        Self::of_shared(dtype, shape, Bytes::from(bytes))
    }

    /// Creates a tensor of shared bytes, without a copy.
    pub fn of_shared(dtype: DType, shape: Vec<u64>, bytes: Bytes) -> Result<Self, TensorError> {
        let expected = byte_size(dtype, &shape)?;
        let found = bytes.len() as u64;
        if expected == found {
            Ok(Self {
                dtype,
                shape,
                bytes,
            })
        } else {
            Err(TensorError::Length {
                dtype,
                shape,
                expected,
                found,
            })
        }
    }

    /// Creates a tensor of zeros.
    pub fn zeros(dtype: DType, shape: Vec<u64>) -> Result<Self, TensorError> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, byte_size(dtype, &shape)?)?;
        Self::new(dtype, shape, bytes)
    }

    /// Creates a tensor from the elements of `values`, rounded to the dtype: floats to the nearest,
    /// integers towards zero and clamped to their range, booleans by `!= 0`. Missing values are
    /// zero.
    pub fn from_f64(
        dtype: DType,
        shape: Vec<u64>,
        values: impl IntoIterator<Item = f64>,
    ) -> Result<Self, TensorError> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, byte_size(dtype, &shape)?)?;
        let size = usize::try_from(dtype.size()).unwrap_or(1);
        for (element, value) in bytes.chunks_exact_mut(size).zip(values) {
            write_f64(dtype, value, element);
        }
        Self::new(dtype, shape, bytes)
    }

    /// Returns the elements as binary32, rounded to the nearest.
    #[expect(clippy::missing_panics_doc, reason = "chunks of four have four bytes")]
    pub fn to_f32(&self) -> Vec<f32> {
        if self.dtype == DType::Float32 {
            let bytes = self.bytes.chunks_exact(4);
            let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
            return bytes.map(value).collect();
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded, as documented")]
        self.to_f64().map(|value| value as f32).collect()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outermost dimension first; empty for a scalar.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the elements, row-major and little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the elements by value; copies them if they are shared or belong to an engine.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into()
    }

    /// Returns the elements by value without a copy. A slice of them can be a tensor too.
    pub fn into_shared(self) -> Bytes {
        self.bytes
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / usize::try_from(self.dtype.size()).unwrap_or(1)
    }

    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the same elements in another shape of the same size.
    pub fn reshaped(self, shape: Vec<u64>) -> Result<Self, TensorError> {
        Self::of_shared(self.dtype, shape, self.bytes)
    }

    /// Iterates over the elements as binary64. Only 64-bit integers beyond 2^53 are inexact;
    /// booleans are 0 and 1.
    pub fn to_f64(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        let size = usize::try_from(self.dtype.size()).unwrap_or(1);
        let dtype = self.dtype;
        self.bytes
            .chunks_exact(size)
            .map(move |element| read_f64(dtype, element))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// Appends exactly `size` zeros, or returns an error if memory is short.
fn reserve(bytes: &mut Vec<u8>, size: u64) -> Result<(), TensorError> {
    let no_memory = TensorError::NoMemory { bytes: size };
    let Ok(wanted) = usize::try_from(size) else {
        return Err(no_memory);
    };
    if bytes.try_reserve_exact(wanted).is_err() || bytes.capacity() < wanted {
        return Err(no_memory);
    }
    bytes.resize(wanted, 0);
    Ok(())
}

fn array<const N: usize>(element: &[u8]) -> [u8; N] {
    element
        .try_into()
        .expect("a chunk has the size of its dtype")
}

#[expect(
    clippy::cast_precision_loss,
    reason = "64-bit integers beyond 2^53 are rounded, as documented"
)]
fn read_f64(dtype: DType, element: &[u8]) -> f64 {
    match dtype {
        DType::Bool => f64::from(u8::from(element[0] != 0)),
        DType::Int8 => f64::from(i8::from_le_bytes(array(element))),
        DType::Uint8 => f64::from(element[0]),
        DType::Int16 => f64::from(i16::from_le_bytes(array(element))),
        DType::Uint16 => f64::from(u16::from_le_bytes(array(element))),
        DType::Int32 => f64::from(i32::from_le_bytes(array(element))),
        DType::Uint32 => f64::from(u32::from_le_bytes(array(element))),
        DType::Int64 => i64::from_le_bytes(array(element)) as f64,
        DType::Uint64 => u64::from_le_bytes(array(element)) as f64,
        DType::Float16 => f16::from_le_bytes(array(element)).to_f64(),
        DType::Bfloat16 => bf16::from_le_bytes(array(element)).to_f64(),
        DType::Float32 => f64::from(f32::from_le_bytes(array(element))),
        DType::Float64 => f64::from_le_bytes(array(element)),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` rounds towards zero and to the nearest in range, as documented"
)]
fn write_f64(dtype: DType, value: f64, element: &mut [u8]) {
    match dtype {
        DType::Bool => element[0] = u8::from(value != 0.0),
        DType::Int8 => element.copy_from_slice(&(value as i8).to_le_bytes()),
        DType::Uint8 => element.copy_from_slice(&(value as u8).to_le_bytes()),
        DType::Int16 => element.copy_from_slice(&(value as i16).to_le_bytes()),
        DType::Uint16 => element.copy_from_slice(&(value as u16).to_le_bytes()),
        DType::Int32 => element.copy_from_slice(&(value as i32).to_le_bytes()),
        DType::Uint32 => element.copy_from_slice(&(value as u32).to_le_bytes()),
        DType::Int64 => element.copy_from_slice(&(value as i64).to_le_bytes()),
        DType::Uint64 => element.copy_from_slice(&(value as u64).to_le_bytes()),
        DType::Float16 => element.copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DType::Bfloat16 => element.copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
        DType::Float32 => element.copy_from_slice(&(value as f32).to_le_bytes()),
        DType::Float64 => element.copy_from_slice(&value.to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked_before_anything_is_allocated() {
        assert_eq!(byte_size(DType::Int32, &[]), Ok(4));
        assert_eq!(byte_size(DType::Float64, &[2, 0, u64::MAX]), Ok(0));
        for shape in [vec![u64::MAX, 2], vec![1 << 33], vec![1 << 62, 8]] {
            let error = Tensor::zeros(DType::Float32, shape.clone()).expect_err("too large");
            assert_eq!(
                error,
                TensorError::TooLarge {
                    dtype: DType::Float32,
                    shape
                }
            );
        }
        let error = Tensor::new(DType::Int16, vec![3], vec![0; 5]).expect_err("odd");
        assert_eq!(error.to_string(), "int16[3] has 6 bytes, not 5");
    }

    #[test]
    fn values_survive_every_dtype() {
        for dtype in DType::ALL {
            let tensor = Tensor::from_f64(dtype, vec![2, 2], [0.0, 1.0, 1.0]).expect("it is small");
            assert_eq!(tensor.len(), 4);
            let values: Vec<f64> = tensor.to_f64().collect();
            assert_eq!(values, [0.0, 1.0, 1.0, 0.0], "{dtype}");
        }
        let clamped = Tensor::from_f64(DType::Uint8, vec![3], [-3.0, 300.0, 2.9]);
        assert_eq!(clamped.expect("it is small").bytes(), [0, 255, 2]);
    }
}
