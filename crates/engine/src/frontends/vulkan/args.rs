//! Argument access shared by Vulkan operators with their own lowering.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::VulkanLowering;
use crate::tensor::DType;

/// Returns the value of an argument; trailing arguments may be absent.
pub(super) fn at(args: &[usize], place: usize) -> TractResult<usize> {
    let value = args.get(place).copied();
    value.with_context(|| format!("missing argument {place}"))
}

/// Adds a bias to the last dimension, if there is one.
pub(super) fn with_bias(
    lowering: &mut VulkanLowering<'_>,
    outlet: OutletId,
    bias: Option<Arc<Tensor>>,
) -> TractResult<OutletId> {
    let Some(bias) = bias else { return Ok(outlet) };
    let bias = lowering.builder.constant(bias, DType::Float32)?.outlet;
    lowering.builder.binary(Box::new(math::Add), outlet, bias)
}
