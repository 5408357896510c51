//! Conversion between tensors of this crate and of the tract library, without changing values.
//!
//! Inputs are copied. Large outputs stay in the library's memory.

use std::sync::Arc;

use bytemuck::AnyBitPattern;
use bytes::Bytes;
use half::bf16;
use tract_onnx::prelude::{
    Datum, DatumType, IntoArcTensor, TValue, Tensor as TractTensor, TractResult,
};

use super::guard::{LibraryFailure, guarded};
use crate::tensor::{DType, Tensor, TensorError, TensorSpec};

/// Returns the library's element type; float32 carries bfloat16, which the library lacks.
pub(crate) fn datum_type(dtype: DType) -> DatumType {
    match dtype {
        DType::Bool => DatumType::Bool,
        DType::Int8 => DatumType::I8,
        DType::Int16 => DatumType::I16,
        DType::Int32 => DatumType::I32,
        DType::Int64 => DatumType::I64,
        DType::Uint8 => DatumType::U8,
        DType::Uint16 => DatumType::U16,
        DType::Uint32 => DatumType::U32,
        DType::Uint64 => DatumType::U64,
        DType::Float16 => DatumType::F16,
        DType::Float32 | DType::Bfloat16 => DatumType::F32,
        DType::Float64 => DatumType::F64,
    }
}

/// Converts a tensor for the library.
pub(crate) fn to_tract(tensor: &Tensor) -> Result<TractTensor, LibraryFailure> {
    let shape = sizes(tensor.shape())?;
    if tensor.dtype() == DType::Bfloat16 {
        let (halves, _) = tensor.bytes().as_chunks::<2>();
        let values = halves
            .iter()
            .map(|half| bf16::from_le_bytes(*half).to_f32());
        let values: Vec<f32> = values.collect();
        return guarded(|| TractTensor::from_shape(&shape, &values));
    }
    let dtype = datum_type(tensor.dtype());
    guarded(|| {
        let bytes = tensor.bytes();
        let copied = match dtype {
            DatumType::I8 => copied::<i8>(&shape, bytes),
            DatumType::I32 => copied::<i32>(&shape, bytes),
            DatumType::I64 => copied::<i64>(&shape, bytes),
            DatumType::U8 => copied::<u8>(&shape, bytes),
            DatumType::F32 => copied::<f32>(&shape, bytes),
            DatumType::F64 => copied::<f64>(&shape, bytes),
            _ => None,
        };
        if let Some(copied) = copied {
            return copied;
        }
        let mut given = TractTensor::zero_dt(dtype, &shape)?;
        if dtype == DatumType::Bool {
            // The library requires booleans to be 0 or 1.
            for (to, from) in given.as_bytes_mut().iter_mut().zip(bytes) {
                *to = u8::from(*from != 0);
            }
        } else {
            given.as_bytes_mut().copy_from_slice(bytes);
        }
        Ok(given)
    })
}

/// Creates a tensor of these elements, if they are aligned. Skips filling it with zeros first,
/// which takes half as long as copying.
fn copied<T: Datum + Copy + AnyBitPattern>(
    shape: &[usize],
    bytes: &[u8],
) -> Option<TractResult<TractTensor>> {
    let elements = bytemuck::try_cast_slice::<u8, T>(bytes).ok()?;
    Some(TractTensor::from_shape(shape, elements))
}

/// Converts a shape for the library.
pub(crate) fn sizes(shape: &[u64]) -> Result<Vec<usize>, LibraryFailure> {
    shape
        .iter()
        .map(|size| usize::try_from(*size))
        .collect::<Result<_, _>>()
        .map_err(|_| LibraryFailure::new(format!("a tensor of shape {shape:?} exceeds memory")))
}

/// Outputs below this size, in bytes, are copied: keeping the library's memory costs more than
/// that.
const MIN_SHARED_BYTES: usize = 64 << 10;

/// Converts an output of the library to the tensor that `spec` declares.
pub(crate) fn from_tract(value: TValue, spec: &TensorSpec) -> Result<Tensor, LibraryFailure> {
    let mut tensor = value.into_arc_tensor();
    let shape: Vec<u64> = tensor.shape().iter().map(|size| *size as u64).collect();
    if tensor.datum_type() == DatumType::TDim {
        // Sizes from the library's shape arithmetic are int64 everywhere else.
        tensor = guarded(|| Ok(tensor.cast_to::<i64>()?.into_owned().into_arc_tensor()))?;
    }
    if datum_type(spec.dtype) != tensor.datum_type().unquantized() {
        return Err(LibraryFailure::new(format!(
            "output `{}` has the wrong dtype {:?}: expected {}",
            spec.name,
            tensor.datum_type(),
            spec.dtype
        )));
    }
    let bytes = guarded(|| {
        let view = tensor.try_as_plain_ram()?;
        if spec.dtype == DType::Bfloat16 {
            let values = view.as_slice::<f32>()?.iter();
            let halves = values.flat_map(|value| bf16::from_f32(*value).to_le_bytes());
            return Ok(halves.collect());
        }
        Ok(if tensor.as_bytes().len() < MIN_SHARED_BYTES {
            Bytes::copy_from_slice(tensor.as_bytes())
        } else {
            Bytes::from_owner(TractElements(tensor))
        })
    })?;
    Tensor::of_shared(spec.dtype, shape, bytes).map_err(|error: TensorError| {
        LibraryFailure::new(format!("output `{}` is invalid: {error}", spec.name))
    })
}

/// A tensor of the library that owns the elements of a tensor of this crate.
struct TractElements(Arc<TractTensor>);

impl AsRef<[u8]> for TractElements {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use tract_onnx::prelude::IntoTValue;

    use super::*;

    #[test]
    fn every_dtype_goes_there_and_back() {
        for dtype in DType::ALL {
            let tensor = Tensor::from_f64(dtype, vec![2, 1], [1.0, 0.0]).expect("it is small");
            let spec = TensorSpec {
                name: "x".to_owned(),
                dtype,
                dims: None,
                fixed: None,
                pixels: None,
            };
            let given = to_tract(&tensor).expect("every dtype has a counterpart");
            assert_eq!(from_tract(given.into_tvalue(), &spec), Ok(tensor));
        }
    }

    #[test]
    fn no_output_is_cast_silently() {
        let tensor = Tensor::from_f64(DType::Float32, vec![1], [1.0]).expect("it is small");
        let spec = TensorSpec {
            name: "y".to_owned(),
            dtype: DType::Float64,
            dims: None,
            fixed: None,
            pixels: None,
        };
        let given = to_tract(&tensor).expect("float32 is there");
        let failure = from_tract(given.into_tvalue(), &spec).expect_err("not it");
        assert_eq!(
            failure.reason,
            "output `y` has the wrong dtype F32: expected float64"
        );
    }
}
