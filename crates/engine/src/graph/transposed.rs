//! Transposed convolutions of images on our kernels.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cnn::deconv::output_shape;
use tract_onnx::tract_core::ops::cnn::{PaddingSpec, PoolSpec};
use tract_onnx::tract_core::ops::nn::DataFormat;

use super::images::{ImageWindows, is_column};
use super::kernel::Kernel;
use super::pool::computed;
use pkgtool_kernels::Split;
use pkgtool_kernels::transposed::{TransposedPart, TransposedPlan};
use pkgtool_kernels::window::{Channels, Window, WindowPositions};

/// A transposed convolution of images `[n, h, w, c]` or `[n, w, c]`.
pub(crate) struct TransposedImages {
    spec: PoolSpec,
    /// The window, before images are turned.
    window: Window,
    adjustments: TVec<usize>,
    before: [usize; 2],
    after: [usize; 2],
    /// Whether images of one column are turned into images of one row.
    turned: bool,
    plan: TransposedPlan,
}

impl TransposedImages {
    /// Plans the convolution of images of a size. Fails if the kernels do not support it.
    pub(crate) fn new(
        spec: &PoolSpec,
        (size, adjustments): (&[TDim], &[usize]),
        groups: usize,
    ) -> Result<Self, String> {
        let spec = PoolSpec {
            data_format: DataFormat::NHWC,
            ..spec.clone()
        };
        let plane = |list: &[usize]| match *list {
            [width] => Ok([0, width]),
            [height, width] => Ok([height, width]),
            _ => Err("expected padding of one or two dimensions".to_owned()),
        };
        let (before, after) = match &spec.padding {
            PaddingSpec::Explicit(before, after) => (plane(before)?, plane(after)?),
            PaddingSpec::Valid => ([0; 2], [0; 2]),
            other => return Err(format!("padding {other:?}")),
        };
        let channels = Channels {
            input: spec.input_channels,
            output: spec.output_channels,
            groups,
        };
        let turned = is_column(&spec, size) && adjustments.get(1) == Some(&0);
        let window = ImageWindows::new(&spec)?.window;
        let plan = if turned {
            let [above, left] = before;
            TransposedPlan::new(window.turned(), channels, [left, above])?
        } else {
            TransposedPlan::new(window, channels, before)?
        };
        Ok(Self {
            plan,
            window,
            adjustments: adjustments.into(),
            spec,
            before,
            after,
            turned,
        })
    }

    /// Returns the kernel of each plain convolution.
    pub(crate) fn kernels<K>(
        &self,
        kernel: impl Fn(&TransposedPlan, &TransposedPart) -> Result<K, String>,
    ) -> Result<Vec<K>, String> {
        let parts = self.plan.parts();
        parts.map(|part| kernel(&self.plan, &part)).collect()
    }

    /// Creates the operator on images of this fact. `run` computes a plain convolution by its kernel. The kernels
    /// keep `bytes` of weights.
    pub(crate) fn over<T: Datum + Copy + Default, K: Send + Sync + 'static>(
        self,
        name: &'static str,
        images: &TypedFact,
        (kernels, bytes): (Vec<K>, usize),
        run: impl Fn(&K, &WindowPositions, &[T], &mut [T], Split) -> Result<(), String>
        + Send
        + Sync
        + 'static,
    ) -> TractResult<Kernel> {
        let shape = output_shape(&self.spec, &images.shape, &self.adjustments)?;
        let facts = tvec!(images.datum_type.fact(shape));
        let kernel = Kernel::new(name, facts, move |inputs| {
            let (shape, placed) = self.placed(inputs[0].shape())?;
            let work = |from: &[&[T]], to: &mut [T], split| {
                self.plan.run(&placed, to, split, |part, placed, to| {
                    run(&kernels[part], placed, from[0], to, split)
                })
            };
            Ok(tvec!(computed(&shape, inputs, work)?))
        });
        Ok(kernel.with_weight_bytes(bytes))
    }

    /// Returns the output's shape for images of this shape, and the sizes as the kernels want them.
    fn placed(&self, shape: &[usize]) -> TractResult<(TVec<usize>, WindowPositions)> {
        let rank = self.spec.rank();
        ensure!(
            shape.len() == rank + 2,
            "invalid rank of an image: {}",
            shape.len()
        );
        let mut placed = WindowPositions {
            batch: shape[0],
            input: [1, 1],
            output: [1, 1],
            before: [0, 0],
        };
        let window = self.window;
        let mut output: TVec<usize> = tvec!(shape[0]);
        let first = 2 - rank;
        for axis in first..2 {
            let size = shape[1 + axis - first];
            let steps = size
                .checked_sub(1)
                .and_then(|steps| steps.checked_mul(window.stride[axis]));
            let reach = (window.kernel[axis] - 1) * window.dilation[axis] + 1;
            let whole =
                steps.and_then(|steps| steps.checked_add(reach + self.adjustments[axis - first]));
            let cut = self.before[axis] + self.after[axis];
            placed.input[axis] = size;
            placed.output[axis] = whole
                .and_then(|whole| whole.checked_sub(cut))
                .with_context(|| {
                    format!("a transposed convolution of {size} pixels has no output")
                })?;
            output.push(placed.output[axis]);
        }
        if self.turned {
            placed = placed.turned();
        }
        output.push(self.spec.output_channels);
        Ok((output, placed))
    }
}
