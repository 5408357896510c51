//! Windows over images as the library says where they are, for kernels of ours.

use tract_onnx::tract_core::internal::{Datum, DatumType, TVec, TractResult, TypedFact, tvec};
use tract_onnx::tract_core::ops::cnn::PoolSpec;

use super::kernel::Kernel;
use super::pool::{computed, computed_bytes};
use crate::kernels::Split;
use crate::kernels::window::{Placed, Window};

/// An operator on images `[n, h, w, c]`, or `[n, w, c]`, of this fact: from where the windows lie and the elements
/// of the inputs, `run` makes those of the output. It keeps `bytes` of weights.
pub(super) fn over_images<T: Datum + Copy>(
    name: &'static str,
    spec: PoolSpec,
    images: &TypedFact,
    bytes: usize,
    run: impl Fn(&Placed, &[&[T]], &mut [T], Split) -> Result<(), String> + Send + Sync + 'static,
) -> TractResult<Kernel> {
    let facts = spec.output_facts(&[images])?;
    let kernel = Kernel::new(name, facts, move |inputs| {
        let (shape, placed) = placed(&spec, inputs[0].shape())?;
        let work = |from: &[&[T]], to: &mut [T], split| run(&placed, from, to, split);
        Ok(tvec!(computed(&shape, inputs, work)?))
    });
    Ok(kernel.holding(bytes))
}

/// The same on bytes, signed or not, which become bytes of `dtype`.
pub(super) fn over_images_of_bytes(
    name: &'static str,
    spec: PoolSpec,
    images: &TypedFact,
    dtype: DatumType,
    bytes: usize,
    run: impl Fn(&Placed, &[&[u8]], &mut [u8], Split) -> Result<(), String> + Send + Sync + 'static,
) -> TractResult<Kernel> {
    let mut facts = spec.output_facts(&[images])?;
    facts[0].datum_type = dtype;
    let kernel = Kernel::new(name, facts, move |inputs| {
        let (shape, placed) = placed(&spec, inputs[0].shape())?;
        let work = |from: &[&[u8]], to: &mut [u8], split| run(&placed, from, to, split);
        Ok(tvec!(computed_bytes(dtype, &shape, inputs, work)?))
    });
    Ok(kernel.holding(bytes))
}

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

/// The shape that images of this shape become, and where the windows lie.
fn placed(spec: &PoolSpec, shape: &[usize]) -> TractResult<(TVec<usize>, Placed)> {
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
