//! Replaces max pooling of float32 images by a kernel of this crate.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cnn::MaxPool;

use super::channels_last::ImageAxes;
use crate::graph::images::{ImageWindows, over_images};
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::largest_of_windows;
use pkgtool_kernels::window::WindowPositions;

/// Returns the replacement of this node, if it computes maxima without their positions.
pub(super) fn replaced(
    model: &TypedModel,
    node: &TypedNode,
    cpu: Cpu,
) -> TractResult<Option<TypedModelPatch>> {
    let Some(pool) = node
        .op_as::<MaxPool>()
        .filter(|pool| pool.with_index_outputs.is_none())
    else {
        return Ok(None);
    };
    let input = model.outlet_fact(node.inputs[0])?;
    let Some(axes) = ImageAxes::of(&pool.pool_spec, input) else {
        return Ok(None);
    };
    let Ok(windows) = ImageWindows::over(&pool.pool_spec, axes.size(input)) else {
        return Ok(None);
    };
    let (window, channels) = (windows.window, pool.pool_spec.input_channels);
    let run = move |placed: &WindowPositions, from: &[&[f32]], to: &mut [f32], split| {
        largest_of_windows(cpu, (&window, placed), channels, from[0], to, split)
    };
    let values = (&*node.inputs, node.id.into());
    let operator = |images: &TypedFact| over_images("LargestOfWindows", windows, images, 0, run);
    axes.patch(model, &node.name, values, operator).map(Some)
}
