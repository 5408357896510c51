//! The same elements in other shapes, and new ones of a shape.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::super::calling::{Arg, Out};
use super::{Field, Instruction, Lowering, Slot, Table, joint};

/// The instructions of this theme.
pub(super) const TABLE: Table = &[
    (&["Reshape"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![x.into(), Arg::Ints(lowering.dims(node, "shape")?)];
        let wire = lowering.aten("aten::view_copy.out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["Transpose"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![x.into(), Arg::Ints(lowering.dims(node, "perm")?)];
        let wire = lowering.aten("aten::permute_copy.out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["ExpandDims"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let rank = lowering.shape(x)?.len() + 1;
        let axis = axis_of(lowering.int(node, "axis")?, rank)?;
        let outlet = lowering
            .frame
            .builder
            .wire(AxisOp::Add(axis), &[x.outlet])?;
        lowering.give(node, Wire { outlet, ..x })
    }),
    (&["Squeeze"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let shape = lowering.shape(x)?;
        let axes = lowering.ints(node, "dims")?;
        let axes = axes.into_iter().map(|axis| axis_of(axis, shape.len()));
        let mut axes: Vec<usize> = axes.collect::<TractResult<_>>()?;
        if axes.is_empty() {
            axes = (0..shape.len())
                .filter(|&axis| shape[axis].is_one())
                .collect();
        }
        let outlet = lowering.frame.builder.remove(x.outlet, &axes)?;
        lowering.give(node, Wire { outlet, ..x })
    }),
    (&["Split"], split),
    (&["Concatenate"], |lowering, node| {
        joined(lowering, node, "aten::cat.out")
    }),
    (&["Stack"], |lowering, node| {
        joined(lowering, node, "aten::stack.out")
    }),
    (&["BroadcastTo"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![
            x.into(),
            Arg::Ints(lowering.dims(node, "shape")?),
            false.into(),
        ];
        let wire = lowering.aten("aten::expand_copy.out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["Tile"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![x.into(), Arg::Ints(lowering.dims(node, "reps")?)];
        let wire = lowering.aten("aten::repeat.out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["Repeat"], repeat),
    (&["Pad"], |lowering, node| {
        let mode = super::text(node, "mode")?;
        ensure!(mode == "constant", "padding by {mode} is not supported");
        let x = lowering.tensor(node, "x")?;
        let value = lowering.float(node, "constant_value")?;
        let pads = lowering.ints(node, "pad_width")?;
        let (pairs, _) = pads.as_chunks::<2>();
        let inner: Vec<i64> = pairs.iter().rev().flatten().copied().collect();
        let args = vec![x.into(), Arg::from(inner.as_slice()), value.into()];
        let wire = lowering.aten("aten::constant_pad_nd.out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["Flip"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![x.into(), Arg::Ints(lowering.dims(node, "axes")?)];
        let wire = lowering.aten("aten::flip.out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["Slice"], slice),
    (&["AsStrided"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = vec![
            x.into(),
            Arg::Ints(lowering.dims(node, "shape")?),
            Arg::Ints(lowering.dims(node, "strides")?),
            lowering.int(node, "offset")?.into(),
        ];
        let wire = lowering.aten("aten::as_strided_copy.out", args, x.dtype)?;
        lowering.give(node, wire)
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
    (&["ARange"], |lowering, node| {
        let args = ["start", "stop", "step"].map(|name| lowering.dim(node, name).map(Arg::Int));
        let args = args.into_iter().collect::<TractResult<_>>()?;
        let dtype = lowering.code(node, "scalar_type")?;
        let dtype = dtype.unwrap_or(crate::tensor::DType::Int32);
        let wire = lowering.aten("aten::arange.start_out", args, dtype)?;
        lowering.give(node, wire)
    }),
];

/// A dimension of `rank` many, which may be counted from the end.
pub(super) fn axis_of(axis: i64, rank: usize) -> TractResult<usize> {
    let count = i64::try_from(rank)?;
    ensure!(
        -count <= axis && axis < count,
        "{axis} is none of {rank} dimensions"
    );
    Ok(usize::try_from(if axis < 0 { axis + count } else { axis })?)
}

fn filled(
    lowering: &mut Lowering<'_, '_, '_>,
    node: &Instruction,
    shape: &[TDim],
) -> TractResult<()> {
    let value = lowering.float(node, "v")?;
    let dtype = match (
        lowering.code(node, "scalar_type")?,
        lowering.optional(node, "x")?,
    ) {
        (Some(dtype), _) => dtype,
        (None, Some(x)) => x.dtype,
        (None, None) => bail!("no dtype"),
    };
    let builder = &mut lowering.frame.builder;
    let value = builder.scalar(value, dtype, shape.len())?;
    let outlet = builder.expand(value.outlet, shape)?;
    lowering.give(node, Wire { outlet, dtype })
}

fn joined(lowering: &mut Lowering<'_, '_, '_>, node: &Instruction, name: &str) -> TractResult<()> {
    let wires = lowering.tensors(node, "tensors")?;
    let Some((first, rest)) = wires.split_first() else {
        bail!("nothing to join");
    };
    let dtype = rest.iter().fold(*first, |joined, wire| Wire {
        dtype: joint(joined, *wire),
        ..joined
    });
    let dtype = dtype.dtype;
    let args = vec![Arg::Tensors(wires), lowering.int(node, "axis")?.into()];
    let wire = lowering.aten(name, args, dtype)?;
    lowering.give(node, wire)
}

fn split(lowering: &mut Lowering<'_, '_, '_>, node: &Instruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let mut sizes = lowering.dims(node, "sizes")?;
    let Some(Field::Tensors(slots)) = node.fields.get("outs") else {
        bail!("no `outs`");
    };
    // One size is that of all parts but perhaps the last.
    if let ([size], true) = (sizes.as_slice(), slots.len() > 1) {
        let rank = lowering.shape(x)?;
        let axis = axis_of(lowering.int(node, "axis")?, rank.len())?;
        let mut parts = vec![size.clone(); slots.len() - 1];
        let before: TDim = parts.iter().cloned().sum();
        parts.push((rank[axis].clone() - before).reduce());
        sizes = parts;
    }
    ensure!(
        slots.len() == sizes.len(),
        "{} parts for {}",
        sizes.len(),
        slots.len()
    );
    let outs = [Out::Tensors(vec![x.dtype; sizes.len()])];
    let args = vec![
        x.into(),
        Arg::Ints(sizes),
        lowering.int(node, "axis")?.into(),
    ];
    let given = lowering
        .caller()
        .call("aten::split_with_sizes_copy.out", args, &outs)?;
    for (slot, given) in slots.iter().zip(given) {
        if let Slot::Tensor(wire) = given {
            lowering.tensors.insert(*slot, wire);
        }
    }
    Ok(())
}

/// Each element so often, along a dimension.
fn repeat(lowering: &mut Lowering<'_, '_, '_>, node: &Instruction) -> TractResult<()> {
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
    lowering.give(node, Wire { outlet, ..x })
}

/// A part of a dimension, perhaps backwards.
fn slice(lowering: &mut Lowering<'_, '_, '_>, node: &Instruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let shape = lowering.shape(x)?;
    let axis = axis_of(lowering.int(node, "axis")?, shape.len())?;
    let (mut start, mut stop) = (lowering.dim(node, "start")?, lowering.dim(node, "stop")?);
    let step = lowering.int(node, "step")?;
    let at = i64::try_from(axis)?;
    if step == -1 {
        // From the place of `start` down to what is right behind `stop`.
        let size = shape[axis].to_i64()?;
        let [first, last] = [start.to_i64()?, stop.to_i64()?]
            .map(|place| if place < 0 { place + size } else { place });
        start = (last.max(-1) + 1).to_dim();
        stop = (first.min(size - 1) + 1).to_dim();
    }
    let args = vec![
        x.into(),
        at.into(),
        Arg::Int(start),
        Arg::Int(stop),
        step.abs().into(),
    ];
    ensure!(step >= -1, "a step of {step} is not supported");
    let mut wire = lowering.aten("aten::slice_copy.Tensor_out", args, x.dtype)?;
    if step == -1 {
        let args = vec![wire.into(), Arg::from([at].as_slice())];
        wire = lowering.aten("aten::flip.out", args, x.dtype)?;
    }
    lowering.give(node, wire)
}
