//! MLX instructions that change shapes or create tensors of a shape.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::{Pad, PadMode};

use super::{FrameSlot, InstructionTable, MlxInstruction, MlxLowering, joint_dtype};
use crate::graph::builder::{Wire, axes_of, axis_of};
use crate::graph::calling::CallArg;
use crate::tensor::DType;

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (&["Reshape"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![x.into(), CallArg::Ints(lowering.dims(node, "shape")?)];
        lowering.call(node, "aten::view_copy.out", args, x.dtype)
    }),
    (&["Transpose"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let rank = lowering.shape(x)?.len();
        let axes = lowering.ints(node, "perm")?.into_iter();
        let order: Vec<usize> = axes
            .map(|axis| axis_of(axis, rank))
            .collect::<TractResult<_>>()?;
        let wire = lowering.permute(x, &order)?;
        lowering.write_output(node, wire)
    }),
    (&["ExpandDims"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let rank = lowering.shape(x)?.len() + 1;
        let axis = axis_of(lowering.int(node, "axis")?, rank)?;
        let outlet = lowering.builder().wire(AxisOp::Add(axis), &[x.outlet])?;
        lowering.write_output(node, Wire { outlet, ..x })
    }),
    (&["Squeeze"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let shape = lowering.shape(x)?;
        let axes = lowering.ints(node, "dims")?;
        let mut axes = axes_of(&axes, shape.len())?;
        if axes.is_empty() {
            axes = (0..shape.len())
                .filter(|&axis| shape[axis].is_one())
                .collect();
        }
        let outlet = lowering.frame.builder.remove(x.outlet, &axes)?;
        lowering.write_output(node, Wire { outlet, ..x })
    }),
    (&["Concatenate"], |lowering, node| {
        join_tensors(lowering, node, "aten::cat.out")
    }),
    (&["Stack"], |lowering, node| {
        join_tensors(lowering, node, "aten::stack.out")
    }),
    (&["BroadcastTo"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![
            x.into(),
            CallArg::Ints(lowering.dims(node, "shape")?),
            false.into(),
        ];
        lowering.call(node, "aten::expand_copy.out", args, x.dtype)
    }),
    (&["Tile"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![x.into(), CallArg::Ints(lowering.dims(node, "reps")?)];
        lowering.call(node, "aten::repeat.out", args, x.dtype)
    }),
    (&["Repeat"], repeat),
    (&["Pad"], pad),
    (&["Flip"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![x.into(), CallArg::Ints(lowering.dims(node, "axes")?)];
        lowering.call(node, "aten::flip.out", args, x.dtype)
    }),
    (&["AsStrided"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![
            x.into(),
            CallArg::Ints(lowering.dims(node, "shape")?),
            CallArg::Ints(lowering.dims(node, "strides")?),
            lowering.int(node, "offset")?.into(),
        ];
        lowering.call(node, "aten::as_strided_copy.out", args, x.dtype)
    }),
    (&["Full"], |lowering, node| {
        let shape = lowering.dims(node, "shape")?;
        filled(lowering, node, &shape)
    }),
    (&["FullLike"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let shape = lowering.shape(x)?;
        filled(lowering, node, &shape)
    }),
    (&["Tri"], |lowering, node| {
        let shape = [lowering.dim(node, "n")?, lowering.dim(node, "m")?];
        let dtype = lowering
            .dtype_field(node, "scalar_type")?
            .context("the dtype is missing")?;
        let builder = &mut lowering.frame.builder;
        let one = builder.scalar(1.0, dtype, 2)?;
        let outlet = builder.expand(one.outlet, &shape)?;
        triangle(lowering, node, Wire { outlet, dtype }, "aten::tril.out")
    }),
    (&["Tril"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        triangle(lowering, node, x, "aten::tril.out")
    }),
    (&["Triu"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        triangle(lowering, node, x, "aten::triu.out")
    }),
    (&["Roll"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![
            x.into(),
            CallArg::Ints(lowering.dims(node, "shift")?),
            CallArg::Ints(lowering.dims(node, "axes")?),
        ];
        lowering.call(node, "aten::roll.out", args, x.dtype)
    }),
];

/// Keeps the part of a matrix below or above a diagonal.
fn triangle(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    x: Wire,
    name: &str,
) -> TractResult<()> {
    let args = vec![x.into(), lowering.int(node, "k")?.into()];
    lowering.call(node, name, args, x.dtype)
}

/// Lowers padding by a constant number or by the border elements.
fn pad(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let pads = lowering.ints(node, "pad_width")?;
    let (pairs, _) = pads.as_chunks::<2>();
    let wire = match super::text(node, "mode")? {
        "constant" => {
            let value = lowering.float(node, "constant_value")?;
            let inner: Vec<i64> = pairs.iter().rev().flatten().copied().collect();
            let args = vec![x.into(), CallArg::from(inner.as_slice()), value.into()];
            lowering.aten("aten::constant_pad_nd.out", args, x.dtype)?
        }
        "edge" => {
            ensure!(
                pairs.len() == lowering.shape(x)?.len(),
                "invalid number of paddings: {}",
                pads.len()
            );
            let pads = pairs
                .iter()
                .map(|[before, after]| Ok((usize::try_from(*before)?, usize::try_from(*after)?)));
            let pads = pads.collect::<TractResult<_>>()?;
            let mode = PadMode::Edge;
            let op = Pad { pads, mode };
            let outlet = lowering.frame.builder.wire(op, &[x.outlet])?;
            Wire { outlet, ..x }
        }
        mode => bail!("unsupported padding mode `{mode}`"),
    };
    lowering.write_output(node, wire)
}

fn filled(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    shape: &[TDim],
) -> TractResult<()> {
    let value = lowering.given(node, "v")?;
    let dtype = match (
        lowering.dtype_field(node, "scalar_type")?,
        lowering.optional(node, "x")?,
    ) {
        (Some(dtype), _) => dtype,
        (None, Some(x)) => x.dtype,
        (None, None) => bail!("the dtype is missing"),
    };
    let value = match value {
        FrameSlot::Double(value) => lowering.frame.builder.scalar(value, dtype, 0)?,
        given => {
            let outlet = lowering.as_tensor(&given)?;
            let wide = DType::Int64;
            let whole = Wire::new(outlet, wide);
            lowering.frame.builder.cast(whole, dtype)?
        }
    };
    let outlet = lowering.frame.builder.expand(value.outlet, shape)?;
    lowering.write_output(node, Wire { outlet, dtype })
}

fn join_tensors(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    name: &str,
) -> TractResult<()> {
    let wires = lowering.tensors(node, "tensors")?;
    let Some((first, rest)) = wires.split_first() else {
        bail!("no tensors to join");
    };
    let dtype = rest.iter().fold(*first, |joined, wire| Wire {
        dtype: joint_dtype(joined, *wire),
        ..joined
    });
    let dtype = dtype.dtype;
    let args = vec![CallArg::Tensors(wires), lowering.int(node, "axis")?.into()];
    lowering.call(node, name, args, dtype)
}

/// Repeats each element along a dimension.
fn repeat(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let times = lowering.dim(node, "repeats")?;
    let mut shape = lowering.shape(x)?;
    let axis = axis_of(lowering.int(node, "axis")?, shape.len())?;
    let builder = &mut lowering.frame.builder;
    let mut wide = shape.clone();
    wide.insert(axis + 1, times.clone());
    let outlet = builder.wire(AxisOp::Add(axis + 1), &[x.outlet])?;
    let outlet = builder.expand(outlet, &wide)?;
    shape[axis] = shape[axis].clone() * times;
    let outlet = builder.reshape(outlet, &shape)?;
    lowering.write_output(node, Wire { outlet, ..x })
}
