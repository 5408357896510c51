//! Operators with windows over images (convolution, pooling) that run our kernels at
//! positions computed by the library.

use tract_onnx::tract_core::internal::{
    Datum, DatumType, TDim, TVec, TractResult, TypedFact, tvec,
};
use tract_onnx::tract_core::ops::cnn::{PaddingSpec, PoolSpec};
use tract_onnx::tract_core::ops::nn::DataFormat;

use super::kernel::Kernel;
use super::pool::{computed, computed_bytes};
use super::watch::WRONG_RESULT;
use pkgtool_kernels::Split;
use pkgtool_kernels::window::{Window, WindowPositions};

/// Creates an operator on images `[n, h, w, c]` or `[n, w, c]` with this output fact. `run`
/// computes the elements of the output from the positions of the windows and the elements of the
/// inputs. The operator keeps `bytes` of weights.
pub(crate) fn over_images<T: Datum + Copy>(
    name: &'static str,
    windows: ImageWindows,
    images: &TypedFact,
    bytes: usize,
    run: impl Fn(&WindowPositions, &[&[T]], &mut [T], Split) -> Result<(), String>
    + Send
    + Sync
    + 'static,
) -> TractResult<Kernel> {
    let facts = windows.spec.output_facts(&[images])?;
    let kernel = Kernel::new(name, facts, move |inputs| {
        let (shape, placed) = windows.placed(inputs[0].shape())?;
        let work = |from: &[&[T]], to: &mut [T], split| run(&placed, from, to, split);
        Ok(tvec!(computed(&shape, inputs, work)?))
    });
    Ok(kernel.with_weight_bytes(bytes))
}

/// Like [`over_images`], for bytes, signed or not, with an output of `dtype`.
pub(crate) fn over_images_of_bytes(
    name: &'static str,
    windows: ImageWindows,
    images: &TypedFact,
    dtype: DatumType,
    bytes: usize,
    run: impl Fn(&WindowPositions, &[&[u8]], &mut [u8], Split) -> Result<(), String>
    + Send
    + Sync
    + 'static,
) -> TractResult<Kernel> {
    let mut facts = windows.spec.output_facts(&[images])?;
    facts[0].datum_type = dtype;
    let kernel = Kernel::new(name, facts, move |inputs| {
        let (shape, placed) = windows.placed(inputs[0].shape())?;
        let work = |from: &[&[u8]], to: &mut [u8], split| run(&placed, from, to, split);
        Ok(tvec!(computed_bytes(dtype, &shape, inputs, work)?))
    });
    Ok(kernel.with_weight_bytes(bytes))
}

/// Windows over images with one or two spatial dimensions; one dimension is an image of one row.
#[derive(Debug, Clone)]
pub(crate) struct ImageWindows {
    spec: PoolSpec,
    /// Images of one column are turned into images of one row, whose pixels the kernels read together.
    turned: bool,
    /// The window of the kernels.
    pub(crate) window: Window,
}

impl ImageWindows {
    /// Returns the windows over images whose channels are last.
    pub(crate) fn new(spec: &PoolSpec) -> Result<Self, String> {
        let plane = |list: &[usize]| match *list {
            [width] => Ok([1, width]),
            [height, width] => Ok([height, width]),
            _ => Err(format!(
                "expected a window of one or two dimensions, got {}",
                list.len()
            )),
        };
        Ok(Self {
            window: Window {
                kernel: plane(&spec.kernel_shape)?,
                stride: plane(&spec.strides())?,
                dilation: plane(&spec.dilations())?,
            },
            spec: PoolSpec {
                data_format: DataFormat::NHWC,
                ..spec.clone()
            },
            turned: false,
        })
    }

    /// Returns the windows over images of this size, which decides how the kernels read them.
    pub(crate) fn over(spec: &PoolSpec, size: &[TDim]) -> Result<Self, String> {
        let mut windows = Self::new(spec)?;
        windows.turned = is_column(spec, size);
        if windows.turned {
            windows.window = windows.window.turned();
        }
        Ok(windows)
    }

    /// Returns the output's shape for images of this shape, and the positions of the windows.
    fn placed(&self, shape: &[usize]) -> TractResult<(TVec<usize>, WindowPositions)> {
        let output_shape = self.spec.output_shape(shape)?.shape;
        let sizes = self.spec.computed_padding(&shape[1..shape.len() - 1]);
        let mut placed = WindowPositions {
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
        if self.turned {
            placed = placed.turned();
        }
        Ok((output_shape, placed))
    }
}

/// Returns whether images of a size have one column, and windows stay on it.
pub(crate) fn is_column(spec: &PoolSpec, size: &[TDim]) -> bool {
    let (&[_, TDim::Val(1)], &[_, 1]) = (size, &*spec.kernel_shape) else {
        return false;
    };
    match &spec.padding {
        PaddingSpec::Explicit(before, after) => before[1] + after[1] == 0,
        PaddingSpec::Valid => true,
        _ => false,
    }
}

/// Returns an error text if a window is larger than the padded image along an axis. The library
/// would compute one position or none then.
pub(crate) fn too_large(spec: &PoolSpec, axis: usize, size: usize) -> Option<String> {
    let (before, after, is_up) = match &spec.padding {
        PaddingSpec::Explicit(before, after) => (before[axis], after[axis], false),
        PaddingSpec::ExplicitOnnxPool(before, after, up) => (before[axis], after[axis], *up),
        PaddingSpec::Valid => (0, 0, false),
        // These paddings have as many positions as strides.
        PaddingSpec::SameUpper | PaddingSpec::SameLower => return None,
    };
    let padded = size.saturating_add(before).saturating_add(after);
    let steps = spec.kernel_shape[axis].saturating_sub(1);
    let window = steps.saturating_mul(spec.dilation(axis)).saturating_add(1);
    let missing = window.saturating_sub(padded);
    let reaches = is_up && missing < spec.stride(axis);
    (missing > 0 && !reaches).then(|| {
        format!(
            "a window of {window} elements on {padded} (dimension {axis} of space, padding included) {WRONG_RESULT}"
        )
    })
}
