//! Tensors to tract's, by a copy, and back: large outputs stay where tract put them.

use std::sync::Arc;

use bytes::Bytes;
use tract_onnx::prelude::{DatumType, IntoArcTensor, TValue, Tensor as TractTensor};

use super::{chain, load_error, no_dtype};
use crate::runtime::{DType, EngineError, Tensor, TensorSpec};

/// tract's name for a dtype.
pub(super) fn datum_type(dtype: DType) -> Result<DatumType, EngineError> {
    Ok(match dtype {
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
        DType::Float32 => DatumType::F32,
        DType::Float64 => DatumType::F64,
        DType::Bfloat16 => return Err(no_dtype(dtype)),
    })
}

/// A shape in tract's terms.
pub(super) fn shape(shape: &[u64]) -> Result<Vec<usize>, EngineError> {
    let sizes = shape.iter().map(|size| usize::try_from(*size));
    sizes
        .collect::<Result<_, _>>()
        .map_err(|_| load_error("a size is beyond what this machine can address"))
}

/// The same tensor for tract.
pub(super) fn to_tract(tensor: &Tensor) -> Result<TractTensor, EngineError> {
    let dtype = datum_type(tensor.dtype())?;
    let mut copy = TractTensor::zero_dt(dtype, &shape(tensor.shape())?)
        .map_err(|error| load_error(&chain(&error)))?;
    let bytes = copy.as_bytes_mut();
    if tensor.dtype() == DType::Bool {
        // Only 0 and 1 are booleans to a compiler.
        for (to, from) in bytes.iter_mut().zip(tensor.bytes()) {
            *to = u8::from(*from != 0);
        }
    } else {
        bytes.copy_from_slice(tensor.bytes());
    }
    Ok(copy)
}

/// Outputs of fewer bytes are copied: holding tract's memory costs more than that.
const SMALL: usize = 64 << 10;

/// An output of tract, which must be what the signature says.
pub(super) fn from_tract(value: TValue, spec: &TensorSpec) -> Result<Tensor, EngineError> {
    let failed = |reason: String| EngineError::Run {
        engine: super::NAME.to_owned(),
        operator: None,
        reason: format!("output `{}`: {reason}", spec.name),
    };
    let mut tensor = value.into_arc_tensor();
    // tract's own integers for shapes are what ONNX calls int64.
    if tensor.datum_type() == DatumType::TDim {
        let cast = tensor.cast_to_dt(DatumType::I64);
        let cast = cast.map_err(|error| failed(chain(&error)))?;
        tensor = cast.into_owned().into_arc_tensor();
    }
    let Some(dtype) = dtype(tensor.datum_type()) else {
        return Err(failed(format!(
            "it is of tract's type {:?}",
            tensor.datum_type()
        )));
    };
    if dtype != spec.dtype {
        return Err(failed(format!(
            "it is {dtype}, the model says {}",
            spec.dtype
        )));
    }
    let shape = tensor.shape().iter().map(|size| *size as u64).collect();
    let bytes = if tensor.as_bytes().len() < SMALL {
        Bytes::copy_from_slice(tensor.as_bytes())
    } else {
        Bytes::from_owner(Held(tensor))
    };
    Tensor::of_shared(dtype, shape, bytes).map_err(|error| failed(error.to_string()))
}

/// A tensor of tract's that keeps the elements of one of ours.
struct Held(Arc<TractTensor>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn dtype(datum_type: DatumType) -> Option<DType> {
    Some(match datum_type {
        DatumType::Bool => DType::Bool,
        DatumType::I8 | DatumType::QI8(_) => DType::Int8,
        DatumType::I16 => DType::Int16,
        DatumType::I32 | DatumType::QI32(_) => DType::Int32,
        DatumType::I64 => DType::Int64,
        DatumType::U8 | DatumType::QU8(_) => DType::Uint8,
        DatumType::U16 => DType::Uint16,
        DatumType::U32 => DType::Uint32,
        DatumType::U64 => DType::Uint64,
        DatumType::F16 => DType::Float16,
        DatumType::F32 => DType::Float32,
        DatumType::F64 => DType::Float64,
        _ => return None,
    })
}
