//! Decodes the elements of one input: JSON arrays or base64 into a tensor of the given shape.
//!
//! Invariant: a tensor never has more elements than the data.

use ::base64::Engine as _;
use serde_json::value::RawValue;

use super::super::Refusal;
use super::super::json::{self, shown};
use pkgtool_engine::tensor::input::json_array;
use pkgtool_engine::tensor::npy::MAX_RANK;
use pkgtool_engine::tensor::{DType, Tensor, TensorSpec, byte_size};
use pkgtool_model::Dim;
use pkgtool_text::chat::BASE64;

/// Parses a `shape`.
pub(super) fn shape(value: &RawValue, place: &str) -> Result<Vec<u64>, Refusal> {
    let sizes = json::elements(value.get(), MAX_RANK, place)?;
    let sizes = sizes.iter().enumerate().map(|(axis, size)| {
        size.get().parse::<u64>().map_err(|_| {
            let found = shown(size.get());
            let message = format!("expected a size, an integer from 0, got {found}");
            Refusal::at(format!("{place}[{axis}]"), message)
        })
    });
    sizes.collect()
}

/// Decodes an array or a number; `input` is the JSON path of the input.
pub(super) fn json(
    data: &RawValue,
    dtype: DType,
    shape: Option<&[u64]>,
    input: &str,
) -> Result<Tensor, Refusal> {
    let tensor = json_array(data.get(), dtype).map_err(|fault| {
        if fault.place.starts_with('[') {
            Refusal::at(format!("{input}.data{}", fault.place), fault.reason)
        } else {
            Refusal::at(format!("{input}.data"), fault.to_string())
        }
    })?;
    let Some(shape) = shape else {
        return Ok(tensor);
    };
    if tensor.shape() == shape {
        return Ok(tensor);
    }
    let found = tensor.shape().to_vec();
    let message = || format!("the shape is {shape:?}, but the data has {found:?}");
    if tensor.shape().len() > 1 {
        let message = format!("{}: nest the data like the shape, or flatten it", message());
        return Err(Refusal::at(format!("{input}.shape"), message));
    }
    let fits = plausible(dtype, shape) == Some(tensor.bytes().len() as u64);
    let reshaped = fits.then(|| tensor.reshaped(shape.to_vec()).ok()).flatten();
    reshaped.ok_or_else(|| {
        let message = format!("{}: provide as many elements as the shape has", message());
        Refusal::at(format!("{input}.shape"), message)
    })
}

/// Decodes little-endian bytes in base64.
pub(super) fn base64(
    data: &RawValue,
    spec: &TensorSpec,
    shape: Option<&[u64]>,
    input: &str,
) -> Result<Tensor, Refusal> {
    let place = format!("{input}.data");
    let text = json::string(data, &place)?;
    let bytes = BASE64
        .decode(text.as_bytes())
        .map_err(|error| Refusal::at(&place, format!("invalid base64: {error}")))?;
    let dtype = spec.dtype;
    let shape = match shape {
        Some(shape) => shape.to_vec(),
        None => implied_shape(spec, bytes.len() as u64).ok_or_else(|| {
            let message = "base64 data needs `shape`, because the model leaves the shape open";
            Refusal::at(input, message)
        })?,
    };
    if dtype == DType::Bool
        && let Some(at) = bytes.iter().position(|byte| *byte > 1)
    {
        let message = format!("byte {at} is {}: expected 0 or 1 for a bool", bytes[at]);
        return Err(Refusal::at(&place, message));
    }
    let found = bytes.len() as u64;
    match plausible(dtype, &shape) {
        Some(expected) if expected == found => {
            Tensor::new(dtype, shape, bytes).map_err(|error| Refusal::at(&place, error.to_string()))
        }
        expected => {
            let expected = expected.map_or("too many".to_owned(), |bytes| bytes.to_string());
            let message =
                format!("{dtype}{shape:?} has {expected} bytes, but the data has {found}");
            Err(Refusal::at(&place, message))
        }
    }
}

/// Returns the size of a tensor in bytes. Returns `None` if the product of its sizes, ignoring
/// zeros, overflows, so that engines cannot overflow either.
fn plausible(dtype: DType, shape: &[u64]) -> Option<u64> {
    let sizes: Vec<u64> = shape.iter().copied().filter(|size| *size > 0).collect();
    byte_size(dtype, &sizes).ok()?;
    byte_size(dtype, shape).ok()
}

/// Returns the shape that the model fixes, or whose only open dimension follows from the number of
/// bytes.
fn implied_shape(spec: &TensorSpec, bytes: u64) -> Option<Vec<u64>> {
    let dims = spec.dims.as_deref()?;
    if let [Dim::Dynamic { .. } | Dim::Maybe { .. }] = dims {
        return Some(vec![bytes / spec.dtype.size()]);
    }
    let sizes = dims.iter().map(|dim| match dim {
        Dim::Fixed(size) => Some(*size),
        Dim::Dynamic { .. } | Dim::Maybe { .. } => None,
    });
    sizes.collect()
}
