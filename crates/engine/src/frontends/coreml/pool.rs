//! Core ML pooling over one to three dimensions.
//!
//! Pooling over one dimension is pooling over two, one of which has size 1. Pooling over three
//! dimensions is pooling over two, then over the third.

use tract_onnx::tract_core::internal::*;

use super::shape::padded;
use super::window::CoremlWindow;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::Wire;
use crate::graph::calling::CallArg;
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["avg_pool"], |lowering, operation| {
        let without = lowering.bool(operation, "exclude_padding_from_average", false)?;
        pool(lowering, operation, PoolFunction::Mean { without })
    }),
    (&["max_pool"], |lowering, operation| {
        pool(lowering, operation, PoolFunction::Largest)
    }),
];

/// The value computed from a window.
#[derive(Debug, Clone, Copy)]
enum PoolFunction {
    Largest,
    Mean {
        /// Whether padding is left out of the mean.
        without: bool,
    },
}

/// Pooling over the last two of four dimensions.
struct PlanePool {
    kernel: [i64; 2],
    strides: [i64; 2],
    /// Padding before and after, for each dimension.
    pads: [i64; 4],
    ceil: bool,
}

impl PlanePool {
    /// Creates pooling over these axes of a window; a missing axis has size 1.
    fn new(kernel: &[i64], window: &CoremlWindow, axes: [Option<usize>; 2], ceil: bool) -> Self {
        let of = |numbers: &[i64]| axes.map(|axis| axis.map_or(1, |axis| numbers[axis]));
        let pad = |at: usize| axes[at / 2].map_or(0, |axis| window.pads[2 * axis + at % 2]);
        Self {
            kernel: of(kernel),
            strides: of(&window.strides),
            pads: [0, 1, 2, 3].map(pad),
            ceil,
        }
    }

    fn is_even(&self) -> bool {
        self.pads[0] == self.pads[1] && self.pads[2] == self.pads[3]
    }

    fn apply(
        &self,
        lowering: &mut CoremlLowering<'_, '_>,
        x: Wire,
        kind: PoolFunction,
    ) -> TractResult<Wire> {
        if self.is_even() {
            return self.call(lowering, x, kind, [self.pads[0], self.pads[2]]);
        }
        let border = match kind {
            PoolFunction::Largest => f64::NEG_INFINITY,
            PoolFunction::Mean { .. } => 0.0,
        };
        let wide = padded(lowering, x, &self.pads, border)?;
        let given = self.call(lowering, wide, kind, [0, 0])?;
        if !matches!(kind, PoolFunction::Mean { without: true }) {
            return Ok(given);
        }
        // The mean over ones is the share of a window outside of the padding.
        let mut shape = lowering.shape(x)?;
        shape[0] = 1.to_dim();
        shape[1] = 1.to_dim();
        let mut ones = lowering.frame.builder.scalar(1.0, DType::Float32, 4)?;
        ones.outlet = lowering.frame.builder.expand(ones.outlet, &shape)?;
        let ones = padded(lowering, ones, &self.pads, 0.0)?;
        let share = self.call(lowering, ones, kind, [0, 0])?;
        lowering.binary("div", given, share)
    }

    fn call(
        &self,
        lowering: &mut CoremlLowering<'_, '_>,
        x: Wire,
        kind: PoolFunction,
        pads: [i64; 2],
    ) -> TractResult<Wire> {
        let mut args = vec![
            x.into(),
            self.kernel.as_slice().into(),
            self.strides.as_slice().into(),
            pads.as_slice().into(),
        ];
        match kind {
            PoolFunction::Largest => {
                args.extend([[1, 1].as_slice().into(), self.ceil.into()]);
                let outs = [x.dtype, DType::Int64];
                lowering.first("aten::max_pool2d_with_indices.out", args, &outs)
            }
            PoolFunction::Mean { without } => {
                args.extend([self.ceil.into(), (!without).into(), CallArg::None]);
                lowering.aten("aten::avg_pool2d.out", args, x.dtype)
            }
        }
    }
}

fn pool(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    kind: PoolFunction,
) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let kernel = lowering.required_ints(operation, "kernel_sizes")?;
    let sizes = lowering.shape(x)?;
    ensure!(
        (1..=3).contains(&kernel.len()) && sizes.len() == kernel.len() + 2,
        "invalid pooling: window of {} dimensions over a tensor of {}",
        kernel.len(),
        sizes.len()
    );
    let window = CoremlWindow::read(lowering, operation, &kernel, &sizes[2..])?;
    let ceil = lowering.bool(operation, "ceil_mode", false)?;
    let plane = |axes| PlanePool::new(&kernel, &window, axes, ceil);
    let dims = |dims: &[&TDim]| dims.iter().map(|dim| (*dim).clone()).collect::<Vec<_>>();
    let wire = match sizes.as_slice() {
        [batch, channels, length] => {
            let line = dims(&[batch, channels, &TDim::Val(1), length]);
            let line = lowering.reshaped(x, &line)?;
            let wire = plane([None, Some(0)]).apply(lowering, line, kind)?;
            let shape = lowering.shape(wire)?;
            lowering.reshaped(wire, &dims(&[batch, channels, &shape[3]]))?
        }
        [_, _, _, _] => plane([Some(0), Some(1)]).apply(lowering, x, kind)?,
        [batch, channels, depth, height, width] => {
            let joint = channels.clone() * depth;
            let pictures = lowering.reshaped(x, &dims(&[batch, &joint, height, width]))?;
            let wire = plane([Some(1), Some(2)]).apply(lowering, pictures, kind)?;
            let shape = lowering.shape(wire)?;
            let (height, width) = (&shape[2], &shape[3]);
            let area = height.clone() * width;
            let wire = lowering.reshaped(wire, &dims(&[batch, channels, depth, &area]))?;
            let wire = plane([Some(0), None]).apply(lowering, wire, kind)?;
            let depth = &lowering.shape(wire)?[2];
            lowering.reshaped(wire, &dims(&[batch, channels, depth, height, width]))?
        }
        _ => bail!("invalid rank of pooling: {}", sizes.len()),
    };
    Ok(one(wire))
}
