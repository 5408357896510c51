//! Inputs of models.

use pkgtool_engine::tensor::{DType, Tensor, TensorSpec};
use pkgtool_model::Dim;

/// Returns an input or output without a fixed value; `None` stands for unknown dimensions.
pub(crate) fn spec(name: &str, dtype: DType, dims: Option<Vec<Dim>>) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype,
        dims,
        fixed: None,
        pixels: None,
    }
}

/// Returns a tensor of zeros for an input, with size 1 along dynamic dimensions. Returns `None` for
/// oversized inputs, which the tool rejects before it calls an engine.
pub(crate) fn small_zeros(spec: &TensorSpec) -> Option<Tensor> {
    let sizes = spec.dims.iter().flatten().map(|dim| match dim {
        Dim::Fixed(size) | Dim::Maybe { bound: size, .. } => *size,
        Dim::Dynamic { .. } => 1,
    });
    let shape: Vec<u64> = sizes.collect();
    let elements = shape
        .iter()
        .try_fold(1_u64, |all, size| all.checked_mul(*size))?;
    (elements <= 1 << 20).then(|| Tensor::zeros(spec.dtype, shape).expect("it is small"))
}
