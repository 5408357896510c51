//! Pooling on bytes: the maximum and the mean of windows, and means along axes.

use std::fmt;

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::cnn::{PaddingSpec, PoolSpec};
use tract_onnx::tract_hir::internal::*;

use super::axes::within;
use super::convolution::{channels_last, image_ranks, over_images, padding, spec};
use super::node;
use crate::frontends::onnx::graph::integer;
use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::images::{ImageWindows, over_images_of_bytes, too_large};
use crate::graph::kernel::Kernel;
use crate::graph::pool::computed_bytes;
use crate::graph::watch::WRONG_RESULT;
use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::bytes::pool::{CountedTaps, Mean, MeanRounding, max_pool};
use pkgtool_kernels::window::{Window, WindowPositions};
use pkgtool_kernels::{Cpu, Split};

/// Builds a maximum pool.
pub(super) fn build_largest(_: &ParsingContext, node: &NodeProto) -> Built {
    let (cpu, sign) = (Cpu::chosen(), node::sign(node, "x"));
    let pool = ImagePool {
        kernel: "LargestBytes",
        spec: windows(node)?,
        signs: [sign; 2],
        work: move |windows: Placed<'_>, channels, from: &[u8], to: &mut [u8], split| {
            max_pool(cpu, sign, windows, channels, from, to, split)
        },
    };
    operator(node::LARGEST, 1, pool)
}

/// Builds an average pool.
pub(super) fn build_average(_: &ParsingContext, node: &NodeProto) -> Built {
    let spec = windows(node)?;
    let (cpu, mean, counted) = (Cpu::chosen(), mean(node)?, counted(node, &spec)?);
    let pool = ImagePool {
        kernel: "AverageBytes",
        spec,
        signs: [mean.from.sign, mean.to.sign],
        work: move |windows: Placed<'_>, channels, from: &[u8], to: &mut [u8], split| {
            mean.of_windows(cpu, windows, (channels, counted), from, to, split)
        },
    };
    operator(node::AVERAGE, 1, pool)
}

/// Returns the divisor of a window's sum.
fn counted(node: &NodeProto, spec: &PoolSpec) -> TractResult<CountedTaps> {
    let is = |name| integer(node, name, 0) != 0;
    if !is("count_include_pad") {
        return Ok(CountedTaps::Pixels);
    }
    let window = ImageWindows::new(spec).map_err(TractError::msg)?.window;
    Ok(CountedTaps::Padded(match &spec.padding {
        PaddingSpec::ExplicitOnnxPool(_, after, _) if !is(node::COUNTS_WHOLE_WINDOWS) => {
            match **after {
                [height, width] => [height, width],
                [width] => [0, width],
                _ => bail!(
                    "expected a window of one or two dimensions, got {}",
                    after.len()
                ),
            }
        }
        // Counts the whole extent of windows.
        _ => [0, 1].map(|axis| window.kernel[axis] * window.dilation[axis]),
    }))
}

fn windows(node: &NodeProto) -> TractResult<PoolSpec> {
    let window: Vec<usize> =
        node::integers(node, "kernel_shape")?.context("the window is missing")?;
    let padding = padding(node, window.len(), true)?;
    spec(node, &window, padding)
}

fn mean(node: &NodeProto) -> TractResult<Mean> {
    Ok(Mean {
        from: node::grid(node, "x")?,
        to: node::grid(node, "y")?,
        range: node::range(node)?,
        rounding: MeanRounding::Real,
    })
}

/// Builds a mean along axes.
pub(super) fn build_mean(_: &ParsingContext, node: &NodeProto) -> Built {
    let averaged = Averaged {
        mean: mean(node)?,
        axes: node::integers(node, "axes")?.unwrap_or_default(),
        keeps: integer(node, "keepdims", 1) != 0,
    };
    operator(node::MEAN, 1, averaged)
}

/// Windows, and their positions over an image.
type Placed<'a> = (&'a Window, &'a WindowPositions);

/// A function of the windows over images.
#[derive(Clone)]
struct ImagePool<F> {
    /// The name of its kernel.
    kernel: &'static str,
    spec: PoolSpec,
    /// The signedness of inputs and outputs.
    signs: [Sign; 2],
    work: F,
}

impl<F> fmt::Debug for ImagePool<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kernel)
    }
}

impl<F> NodeOperator for ImagePool<F>
where
    F: Fn(Placed<'_>, usize, &[u8], &mut [u8], Split) -> Result<(), String>,
    F: Clone + Send + Sync + 'static,
{
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        node::byte_dtypes(s, self.signs, [inputs, outputs])?;
        image_ranks(s, &self.spec, [inputs, outputs])?;
        s.given(&inputs[0].shape, move |s, shape| {
            let spec = of_channels(&self.spec, shape[1].to_usize()?);
            s.equals(&outputs[0].shape, spec.output_shape(&shape)?.shape)
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let channels = model.outlet_fact(inputs[0])?.shape[1].to_usize()?;
        let spec = channels_last(&of_channels(&self.spec, channels));
        let windows = ImageWindows::new(&spec).map_err(TractError::msg)?;
        let window = windows.window;
        let (of_run, work) = (spec.clone(), self.work.clone());
        let run = move |placed: &WindowPositions, from: &[&[u8]], to: &mut [u8], split| {
            let sizes = &placed.input[2 - of_run.rank()..];
            check_reach(&of_run, sizes.iter().copied().map(Some))?;
            work((&window, placed), channels, from[0], to, split)
        };
        over_images(prefix, model, inputs[0], |fact| {
            // An empty output needs no run.
            let sizes = fact.shape[1..=spec.rank()].iter();
            let sizes = sizes.map(|size| size.to_usize().ok());
            check_reach(&spec, sizes).map_err(TractError::msg)?;
            let dtype = node::datum_type(self.signs[1]);
            over_images_of_bytes(self.kernel, windows, fact, dtype, 0, run)
        })
    }
}

/// Returns the windows over images with this many channels.
fn of_channels(spec: &PoolSpec, channels: usize) -> PoolSpec {
    PoolSpec {
        input_channels: channels,
        output_channels: channels,
        ..spec.clone()
    }
}

/// Fails if windows are larger than images of these sizes, as far as known, or would cover only
/// padding.
fn check_reach(spec: &PoolSpec, sizes: impl Iterator<Item = Option<usize>>) -> Result<(), String> {
    for (axis, size) in sizes.enumerate() {
        if size == Some(0) {
            return Err(format!(
                "windows over padding only (dimension {axis} of space) {WRONG_RESULT}"
            ));
        }
        if let Some(reason) = size.and_then(|size| too_large(spec, axis, size)) {
            return Err(reason);
        }
    }
    Ok(())
}

#[derive(Debug, Clone)]
struct Averaged {
    mean: Mean,
    axes: Vec<i64>,
    keeps: bool,
}

impl NodeOperator for Averaged {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        node::byte_dtypes(
            s,
            [self.mean.from.sign, self.mean.to.sign],
            [inputs, outputs],
        )?;
        s.given(&inputs[0].shape, move |s, mut shape| {
            let axes = within(&self.axes, shape.len()).map_err(TractError::msg)?;
            for axis in axes.rev() {
                if self.keeps {
                    shape[axis] = 1.to_dim();
                } else {
                    shape.remove(axis);
                }
            }
            s.equals(&outputs[0].shape, shape)
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let rank = model.outlet_fact(inputs[0])?.rank();
        let axes = within(&self.axes, rank).map_err(TractError::msg)?;
        // Images have their channels last and are summed row by row.
        let is_of_images = axes.start > 0 && axes.end == rank;
        let mut wire: TVec<OutletId> = inputs.into();
        let mut axes = axes;
        let channels = axes.start.saturating_sub(1);
        if is_of_images {
            let name = format!("{prefix}.channels_last");
            wire = model.wire_node(name, AxisOp::Move(channels, rank - 1), &wire)?;
            axes = channels..rank - 1;
        }
        let mut shape = model.outlet_fact(wire[0])?.shape.to_tvec();
        shape[axes.clone()].fill(1.to_dim());
        let (mean, cpu) = (self.mean, Cpu::chosen());
        let dtype = node::datum_type(mean.to.sign);
        let of = axes.clone();
        let kernel = Kernel::new("MeanBytes", tvec!(dtype.fact(&shape)), move |inputs| {
            let mut shape: TVec<usize> = inputs[0].shape().into();
            let sizes = [&shape[..of.start], &shape[of.clone()], &shape[of.end..]];
            let sizes = sizes.map(|part| part.iter().product());
            shape[of.clone()].fill(1);
            let work = |from: &[&[u8]], to: &mut [u8], split| {
                mean.of_images(cpu, sizes, from[0], to, split)
            };
            Ok(tvec!(computed_bytes(dtype, &shape, inputs, work)?))
        });
        wire = model.wire_node(prefix, kernel, &wire)?;
        if is_of_images {
            let name = format!("{prefix}.channels");
            wire = model.wire_node(name, AxisOp::Move(rank - 1, channels), &wire)?;
            axes = channels + 1..rank;
        }
        if !self.keeps {
            for axis in axes.rev() {
                let name = format!("{prefix}.without.{axis}");
                wire = model.wire_node(name, AxisOp::Rm(axis), &wire)?;
            }
        }
        Ok(wire)
    }
}
