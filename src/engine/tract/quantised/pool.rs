//! The largest of windows over bytes, and means.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::cnn::PoolSpec;
use tract_onnx::tract_hir::internal::*;

use super::axes::within;
use super::convolution::{channels_last, over_images, padding, spec};
use super::node;
use crate::engine::tract::graph::integer;
use crate::engine::tract::images::{over_images_of_bytes, window};
use crate::engine::tract::kernel::Kernel;
use crate::engine::tract::operators::Built;
use crate::engine::tract::pool::computed_bytes;
use crate::kernels::Cpu;
use crate::kernels::bytes::Sign;
use crate::kernels::bytes::pool::{Mean, Rounding, largest};
use crate::kernels::window::Placed;

/// Reads what takes the largest of each window.
pub(super) fn build_largest(_: &ParsingContext, node: &NodeProto) -> Built {
    let window: Vec<usize> = node::integers(node, "kernel_shape")?.context("no window")?;
    let padding = padding(node, window.len(), true)?;
    let operator = Largest {
        spec: spec(node, &window, padding)?,
        sign: node::sign(node, "x"),
    };
    Ok((expand(operator), vec![]))
}

/// Reads a mean.
pub(super) fn build_mean(_: &ParsingContext, node: &NodeProto) -> Built {
    let operator = Averaged {
        mean: Mean {
            from: node::grid(node, "x")?,
            to: node::grid(node, "y")?,
            range: node::range(node)?,
            rounding: Rounding::Real,
        },
        axes: node::integers(node, "axes")?.unwrap_or_default(),
        keeps: integer(node, "keepdims", 1) != 0,
    };
    Ok((expand(operator), vec![]))
}

#[derive(Debug, Clone)]
struct Largest {
    spec: PoolSpec,
    sign: Sign,
}

impl Largest {
    /// The windows over images of so many channels.
    fn of_channels(&self, channels: usize) -> PoolSpec {
        PoolSpec {
            input_channels: channels,
            output_channels: channels,
            ..self.spec.clone()
        }
    }
}

impl Expansion for Largest {
    fn name(&self) -> StaticName {
        node::LARGEST.into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        s: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> TractResult<()> {
        check_input_arity(inputs, 1)?;
        check_output_arity(outputs, 1)?;
        let dtype = node::datum_type(self.sign);
        s.equals(&inputs[0].datum_type, dtype)?;
        s.equals(&outputs[0].datum_type, dtype)?;
        let rank = i64::try_from(self.spec.rank() + 2)?;
        s.equals(&inputs[0].rank, rank)?;
        s.equals(&outputs[0].rank, rank)?;
        s.given(&inputs[0].shape, move |s, shape| {
            let spec = self.of_channels(shape[1].to_usize()?);
            s.equals(&outputs[0].shape, spec.output_shape(&shape)?.shape)
        })
    }

    fn wire(
        &self,
        prefix: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let channels = model.outlet_fact(inputs[0])?.shape[1].to_usize()?;
        let (cpu, sign) = (Cpu::chosen(), self.sign);
        let window = window(&self.spec).map_err(TractError::msg)?;
        let run = move |placed: &Placed, from: &[&[u8]], to: &mut [u8], split| {
            largest(cpu, sign, (&window, placed), channels, from[0], to, split)
        };
        let spec = channels_last(&self.of_channels(channels));
        over_images(prefix, model, inputs[0], |fact| {
            over_images_of_bytes("LargestBytes", spec, fact, node::datum_type(sign), 0, run)
        })
    }
}

#[derive(Debug, Clone)]
struct Averaged {
    mean: Mean,
    axes: Vec<i64>,
    keeps: bool,
}

impl Expansion for Averaged {
    fn name(&self) -> StaticName {
        node::MEAN.into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        s: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> TractResult<()> {
        check_input_arity(inputs, 1)?;
        check_output_arity(outputs, 1)?;
        let Mean { from, to, .. } = self.mean;
        s.equals(&inputs[0].datum_type, node::datum_type(from.sign))?;
        s.equals(&outputs[0].datum_type, node::datum_type(to.sign))?;
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

    fn wire(
        &self,
        prefix: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let rank = model.outlet_fact(inputs[0])?.rank();
        let axes = within(&self.axes, rank).map_err(TractError::msg)?;
        // Images have their channels last, and are added up row by row.
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
