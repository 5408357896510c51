//! Conversion between tensors of this crate and ONNX Runtime's values.
//!
//! Invariant: an input is borrowed, not copied, if its bytes are aligned for its dtype, as
//! allocated memory is. An output stays in ONNX Runtime's memory, unless it is small.

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

/// Why a value cannot be converted to a tensor.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrtValueError {
    #[error("{0}")]
    Ort(#[from] ort::Error),
    #[error("unsupported value: {0}")]
    Kind(String),
    #[error("{0}")]
    Tensor(#[from] crate::tensor::TensorError),
}

/// Returns the tensor as an input that borrows its elements.
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

/// Returns the tensor as a value that owns its elements.
pub(super) fn owned(tensor: &Tensor) -> ort::Result<DynValue> {
    match tensor.dtype() {
        DType::Bool => {
            let elements = tensor.bytes().iter().map(|byte| *byte != 0).collect();
            owned_of(tensor, elements)
        }
        DType::Int8 => pods::<i8>(tensor),
        DType::Int16 => pods::<i16>(tensor),
        DType::Int32 => pods::<i32>(tensor),
        DType::Int64 => pods::<i64>(tensor),
        DType::Uint8 => pods::<u8>(tensor),
        DType::Uint16 => pods::<u16>(tensor),
        DType::Uint32 => pods::<u32>(tensor),
        DType::Uint64 => pods::<u64>(tensor),
        DType::Float32 => pods::<f32>(tensor),
        DType::Float64 => pods::<f64>(tensor),
        DType::Float16 => owned_of(tensor, bits(tensor).reinterpret_cast::<f16>().to_vec()),
        DType::Bfloat16 => owned_of(tensor, bits(tensor).reinterpret_cast::<bf16>().to_vec()),
    }
}

fn pods<T>(tensor: &Tensor) -> ort::Result<DynValue>
where
    T: PrimitiveTensorElementType + Pod + Debug,
{
    owned_of(
        tensor,
        bytemuck::pod_collect_to_vec::<u8, T>(tensor.bytes()),
    )
}

fn bits(tensor: &Tensor) -> Vec<u16> {
    bytemuck::pod_collect_to_vec(tensor.bytes())
}

fn owned_of<T>(tensor: &Tensor, elements: Vec<T>) -> ort::Result<DynValue>
where
    T: PrimitiveTensorElementType + Clone + Debug + 'static,
{
    Ok(Owned::from_array((shape(tensor)?, elements))?.into_dyn())
}

/// Outputs below this size, in bytes, are copied: keeping the library's memory costs more than
/// that.
const MIN_SHARED_BYTES: usize = 64 << 10;

/// Converts a value to a tensor.
pub(super) fn output(value: DynValue) -> Result<Tensor, OrtValueError> {
    let (dtype, shape, bytes) = view(&value)?;
    if bytes.len() < MIN_SHARED_BYTES {
        return Ok(Tensor::new(dtype, shape, bytes.to_vec())?);
    }
    let bytes = Bytes::from_owner(OrtElements(value));
    Ok(Tensor::of_shared(dtype, shape, bytes)?)
}

/// Copies a value to a tensor.
pub(super) fn copied(value: &DynValue) -> Result<Tensor, OrtValueError> {
    let (dtype, shape, bytes) = view(value)?;
    Ok(Tensor::new(dtype, shape, bytes.to_vec())?)
}

/// Returns dtype, shape and elements of a value.
fn view(value: &DynValue) -> Result<(DType, Vec<u64>, &[u8]), OrtValueError> {
    let Some(element) = value.dtype().tensor_type() else {
        return Err(OrtValueError::Kind(value.dtype().to_string()));
    };
    match element {
        TensorElementType::Bool => view_as::<bool>(value, DType::Bool, cast_slice),
        TensorElementType::Int8 => view_as::<i8>(value, DType::Int8, cast_slice),
        TensorElementType::Int16 => view_as::<i16>(value, DType::Int16, cast_slice),
        TensorElementType::Int32 => view_as::<i32>(value, DType::Int32, cast_slice),
        TensorElementType::Int64 => view_as::<i64>(value, DType::Int64, cast_slice),
        TensorElementType::Uint8 => view_as::<u8>(value, DType::Uint8, cast_slice),
        TensorElementType::Uint16 => view_as::<u16>(value, DType::Uint16, cast_slice),
        TensorElementType::Uint32 => view_as::<u32>(value, DType::Uint32, cast_slice),
        TensorElementType::Uint64 => view_as::<u64>(value, DType::Uint64, cast_slice),
        TensorElementType::Float32 => view_as::<f32>(value, DType::Float32, cast_slice),
        TensorElementType::Float64 => view_as::<f64>(value, DType::Float64, cast_slice),
        TensorElementType::Float16 => view_as::<f16>(value, DType::Float16, |it| {
            cast_slice(it.reinterpret_cast())
        }),
        TensorElementType::Bfloat16 => view_as::<bf16>(value, DType::Bfloat16, |it| {
            cast_slice(it.reinterpret_cast())
        }),
        other => Err(OrtValueError::Kind(format!("a tensor of {other}"))),
    }
}

/// `see` casts elements to bytes.
fn view_as<T: PrimitiveTensorElementType + 'static>(
    value: &DynValue,
    dtype: DType,
    see: fn(&[T]) -> &[u8],
) -> Result<(DType, Vec<u64>, &[u8]), OrtValueError> {
    let (shape, elements) = value.try_extract_tensor::<T>()?;
    let shape = shape.iter().map(|size| size.unsigned_abs()).collect();
    Ok((dtype, shape, see(elements)))
}

fn plain<T>(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>>
where
    T: PrimitiveTensorElementType + Pod + Debug,
{
    match bytemuck::try_cast_slice::<u8, T>(tensor.bytes()) {
        Ok(elements) => borrowed(tensor, elements),
        Err(_) => given(
            tensor,
            bytemuck::pod_collect_to_vec::<u8, T>(tensor.bytes()),
        ),
    }
}

fn booleans(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    match bytemuck::checked::try_cast_slice::<u8, bool>(tensor.bytes()) {
        Ok(elements) => borrowed(tensor, elements),
        // The tensor has bytes other than 0 and 1.
        Err(_) => given(
            tensor,
            tensor.bytes().iter().map(|byte| *byte != 0).collect(),
        ),
    }
}

/// `see` casts bit patterns to numbers.
fn halves<T>(tensor: &Tensor, see: fn(&[u16]) -> &[T]) -> ort::Result<SessionInputValue<'_>>
where
    T: PrimitiveTensorElementType + Clone + Debug + 'static,
{
    if let Ok(bits) = bytemuck::try_cast_slice::<u8, u16>(tensor.bytes()) {
        return borrowed(tensor, see(bits));
    }
    let bits: Vec<u16> = bytemuck::pod_collect_to_vec(tensor.bytes());
    given(tensor, see(&bits).to_vec())
}

fn borrowed<'a, T>(tensor: &Tensor, elements: &'a [T]) -> ort::Result<SessionInputValue<'a>>
where
    T: PrimitiveTensorElementType + Clone + Debug + 'static,
{
    Ok(TensorRef::from_array_view((shape(tensor)?, elements))?.into())
}

fn given<T>(tensor: &Tensor, elements: Vec<T>) -> ort::Result<SessionInputValue<'static>>
where
    T: PrimitiveTensorElementType + Clone + Debug + 'static,
{
    Ok(owned_of(tensor, elements)?.into())
}

fn shape(tensor: &Tensor) -> ort::Result<Shape> {
    let sizes = tensor.shape().iter();
    sizes
        .map(|size| i64::try_from(*size).map_err(ort::Error::wrap))
        .collect()
}

/// A value of ONNX Runtime that owns the elements of a tensor.
struct OrtElements(DynValue);

impl AsRef<[u8]> for OrtElements {
    fn as_ref(&self) -> &[u8] {
        let seen = view(&self.0);
        let (_, _, bytes) = seen.expect("its elements were seen before it was kept");
        bytes
    }
}
