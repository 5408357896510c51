//! Tensors to ONNX Runtime's values and back.
//!
//! Invariant: an input is borrowed, not copied, wherever its bytes are aligned for its dtype, which
//! an allocator's memory is; an output stays where ONNX Runtime put it, unless it is small.

use std::fmt::Debug;

use bytemuck::{Pod, cast_slice};
use bytes::Bytes;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{
    DynValue, PrimitiveTensorElementType, Shape, Tensor as Owned, TensorElementType, TensorRef,
};

use crate::tensor::{DType, Tensor};

/// Why a value is not a tensor of ours.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValueError {
    #[error("{0}")]
    Ort(#[from] ort::Error),
    #[error("it is {0}")]
    Kind(String),
    #[error("{0}")]
    Tensor(#[from] crate::tensor::TensorError),
}

/// The tensor as an input, for as long as it is borrowed.
pub(super) fn input(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    match tensor.dtype() {
        DType::Bool => booleans(tensor),
        DType::Int8 => plain::<i8>(tensor),
        DType::Int16 => plain::<i16>(tensor),
        DType::Int32 => plain::<i32>(tensor),
        DType::Int64 => plain::<i64>(tensor),
        DType::Uint8 => plain::<u8>(tensor),
        DType::Uint16 => plain::<u16>(tensor),
        DType::Uint32 => plain::<u32>(tensor),
        DType::Uint64 => plain::<u64>(tensor),
        DType::Float32 => plain::<f32>(tensor),
        DType::Float64 => plain::<f64>(tensor),
        DType::Float16 => halves::<f16>(tensor, <[u16]>::reinterpret_cast),
        DType::Bfloat16 => halves::<bf16>(tensor, <[u16]>::reinterpret_cast),
    }
}

/// Outputs of fewer bytes are copied: holding the library's memory costs more than that.
const SMALL: usize = 64 << 10;

/// A value as a tensor.
pub(super) fn output(value: DynValue) -> Result<Tensor, ValueError> {
    let Some(element) = value.dtype().tensor_type() else {
        return Err(ValueError::Kind(value.dtype().to_string()));
    };
    match element {
        TensorElementType::Bool => held::<bool>(value, DType::Bool, cast_slice),
        TensorElementType::Int8 => held::<i8>(value, DType::Int8, cast_slice),
        TensorElementType::Int16 => held::<i16>(value, DType::Int16, cast_slice),
        TensorElementType::Int32 => held::<i32>(value, DType::Int32, cast_slice),
        TensorElementType::Int64 => held::<i64>(value, DType::Int64, cast_slice),
        TensorElementType::Uint8 => held::<u8>(value, DType::Uint8, cast_slice),
        TensorElementType::Uint16 => held::<u16>(value, DType::Uint16, cast_slice),
        TensorElementType::Uint32 => held::<u32>(value, DType::Uint32, cast_slice),
        TensorElementType::Uint64 => held::<u64>(value, DType::Uint64, cast_slice),
        TensorElementType::Float32 => held::<f32>(value, DType::Float32, cast_slice),
        TensorElementType::Float64 => held::<f64>(value, DType::Float64, cast_slice),
        TensorElementType::Float16 => held::<f16>(value, DType::Float16, |it| {
            cast_slice(it.reinterpret_cast())
        }),
        TensorElementType::Bfloat16 => held::<bf16>(value, DType::Bfloat16, |it| {
            cast_slice(it.reinterpret_cast())
        }),
        other => Err(ValueError::Kind(format!("a tensor of {other}"))),
    }
}

fn plain<T>(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>>
where
    T: PrimitiveTensorElementType + Pod + Debug,
{
    match bytemuck::try_cast_slice::<u8, T>(tensor.bytes()) {
        Ok(elements) => borrowed(tensor, elements),
        Err(_) => owned(
            tensor,
            bytemuck::pod_collect_to_vec::<u8, T>(tensor.bytes()),
        ),
    }
}

fn booleans(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    match bytemuck::checked::try_cast_slice::<u8, bool>(tensor.bytes()) {
        Ok(elements) => borrowed(tensor, elements),
        // Bytes other than 0 and 1.
        Err(_) => owned(
            tensor,
            tensor.bytes().iter().map(|byte| *byte != 0).collect(),
        ),
    }
}

/// `see` sees bits as numbers.
fn halves<T>(tensor: &Tensor, see: fn(&[u16]) -> &[T]) -> ort::Result<SessionInputValue<'_>>
where
    T: PrimitiveTensorElementType + Clone + Debug + 'static,
{
    if let Ok(bits) = bytemuck::try_cast_slice::<u8, u16>(tensor.bytes()) {
        return borrowed(tensor, see(bits));
    }
    let bits: Vec<u16> = bytemuck::pod_collect_to_vec(tensor.bytes());
    owned(tensor, see(&bits).to_vec())
}

fn borrowed<'a, T>(tensor: &Tensor, elements: &'a [T]) -> ort::Result<SessionInputValue<'a>>
where
    T: PrimitiveTensorElementType + Clone + Debug + 'static,
{
    Ok(TensorRef::from_array_view((shape(tensor)?, elements))?.into())
}

fn owned<T>(tensor: &Tensor, elements: Vec<T>) -> ort::Result<SessionInputValue<'static>>
where
    T: PrimitiveTensorElementType + Clone + Debug + 'static,
{
    Ok(Owned::from_array((shape(tensor)?, elements))?.into())
}

fn shape(tensor: &Tensor) -> ort::Result<Shape> {
    let sizes = tensor.shape().iter();
    sizes
        .map(|size| i64::try_from(*size).map_err(ort::Error::wrap))
        .collect()
}

/// `see` sees elements as bytes.
fn held<T: PrimitiveTensorElementType + 'static>(
    value: DynValue,
    dtype: DType,
    see: fn(&[T]) -> &[u8],
) -> Result<Tensor, ValueError> {
    let (shape, elements) = value.try_extract_tensor::<T>()?;
    let shape = shape.iter().map(|size| size.unsigned_abs()).collect();
    let bytes = see(elements);
    if bytes.len() < SMALL {
        return Ok(Tensor::new(dtype, shape, bytes.to_vec())?);
    }
    let bytes = Bytes::from_owner(Held { value, see });
    Ok(Tensor::of_shared(dtype, shape, bytes)?)
}

/// A value of ONNX Runtime that keeps the elements of a tensor of ours.
struct Held<T> {
    value: DynValue,
    see: fn(&[T]) -> &[u8],
}

impl<T: PrimitiveTensorElementType> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        let elements = self.value.try_extract_tensor::<T>();
        let (_, elements) = elements.expect("its elements were seen before it was kept");
        (self.see)(elements)
    }
}
