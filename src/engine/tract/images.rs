//! Windows over images as the library says where they are, for kernels of ours.

use tract_onnx::tract_core::internal::{TVec, TractResult};
use tract_onnx::tract_core::ops::cnn::PoolSpec;

use crate::kernels::window::{Placed, Window};

/// Windows of one or two dimensions; one dimension is an image of one row.
pub(super) fn window(spec: &PoolSpec) -> Result<Window, String> {
    let plane = |list: &[usize]| match *list {
        [width] => Ok([1, width]),
        [height, width] => Ok([height, width]),
        _ => Err(format!("a window of {} dimensions", list.len())),
    };
    Ok(Window {
        kernel: plane(&spec.kernel_shape)?,
        stride: plane(&spec.strides())?,
        dilation: plane(&spec.dilations())?,
    })
}

/// The shape that images `[n, h, w, c]`, or `[n, w, c]`, of this shape become, and where the windows lie.
pub(super) fn placed(spec: &PoolSpec, shape: &[usize]) -> TractResult<(TVec<usize>, Placed)> {
    let output_shape = spec.output_shape(shape)?.shape;
    let sizes = spec.computed_padding(&shape[1..shape.len() - 1]);
    let mut placed = Placed {
        batch: shape[0],
        input: [1, 1],
        output: [1, 1],
        before: [0, 0],
    };
    let first = 2 - sizes.len();
    for (at, size) in sizes.iter().enumerate() {
        placed.input[first + at] = shape[1 + at];
        placed.output[first + at] = size.convoluted;
        placed.before[first + at] = size.pad_before;
    }
    Ok((output_shape, placed))
}
