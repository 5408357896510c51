//! Instructions over dimensions.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::super::calling::{Arg, Out};
use super::shape::axis_of;
use super::{Instruction, Lowering, Slot, Table, float_of};
use crate::tensor::DType;

/// The instructions of this theme.
pub(super) const TABLE: Table = &[
    (&["Sum"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = over(lowering, node, x, true)?;
        let wire = lowering.aten("aten::sum.IntList_out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["Mean"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = over(lowering, node, x, true)?;
        let wire = lowering.aten("aten::mean.out", args, float_of(x.dtype))?;
        lowering.give(node, wire)
    }),
    (&["Max"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = over(lowering, node, x, false)?;
        let wire = lowering.aten("aten::amax.out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["Min"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = over(lowering, node, x, false)?;
        let wire = lowering.aten("aten::amin.out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["Any"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = over(lowering, node, x, false)?;
        let wire = lowering.aten("aten::any.dims_out", args, DType::Bool)?;
        lowering.give(node, wire)
    }),
    (&["All"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let args = over(lowering, node, x, false)?;
        let wire = lowering.aten("aten::all.dims_out", args, DType::Bool)?;
        lowering.give(node, wire)
    }),
    (&["Var"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let axes = lowering.dims(node, "axes")?;
        let less = lowering.int(node, "ddof")?;
        let keep = lowering.flag(node, "keepdims")?;
        let args = vec![x.into(), Arg::Ints(axes), less.into(), keep.into()];
        let wire = lowering.aten("aten::var.correction_out", args, float_of(x.dtype))?;
        lowering.give(node, wire)
    }),
    (&["LogSumExp"], log_sum_exp),
    (&["Prod"], |lowering, node| {
        let axes = lowering.ints(node, "axes")?;
        let &[axis] = axes.as_slice() else {
            bail!("a product over {} dimensions is not supported", axes.len());
        };
        let x = lowering.tensor(node, "x")?;
        let keep = lowering.flag(node, "keepdims")?;
        let args = vec![x.into(), axis.into(), keep.into(), Arg::None];
        let wire = lowering.aten("aten::prod.int_out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    (&["Argmax"], |lowering, node| {
        extreme(lowering, node, "aten::argmax.out")
    }),
    (&["Argmin"], |lowering, node| {
        extreme(lowering, node, "aten::argmin.out")
    }),
    (&["Softmax"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let axis = lowering.int(node, "axis")?;
        let args = vec![x.into(), axis.into(), false.into()];
        let wire = lowering.aten("aten::_softmax.out", args, float_of(x.dtype))?;
        lowering.give(node, wire)
    }),
    (&["Cumsum"], |lowering, node| {
        ensure!(
            !lowering.flag(node, "reverse")? && lowering.flag(node, "inclusive")?,
            "a cumulated sum that is reversed or exclusive is not supported"
        );
        let x = lowering.tensor(node, "x")?;
        let axis = lowering.int(node, "axis")?;
        let args = vec![x.into(), axis.into(), Arg::None];
        let wire = lowering.aten("aten::cumsum.out", args, x.dtype)?;
        lowering.give(node, wire)
    }),
    // What is partitioned is at least as good when it is sorted.
    (&["Sort", "Partition"], |lowering, node| {
        sorted(lowering, node, 0)
    }),
    (&["Argsort", "ArgPartition"], |lowering, node| {
        sorted(lowering, node, 1)
    }),
];

/// Tensor, dimensions, whether they stay, and a place for a dtype.
fn over(
    lowering: &Lowering<'_, '_, '_>,
    node: &Instruction,
    x: Wire,
    with_dtype: bool,
) -> TractResult<Vec<Arg>> {
    let axes = lowering.dims(node, "axes")?;
    let keep = lowering.flag(node, "keepdims")?;
    let mut args = vec![x.into(), Arg::Ints(axes), keep.into()];
    if with_dtype {
        args.push(Arg::None);
    }
    Ok(args)
}

fn extreme(lowering: &mut Lowering<'_, '_, '_>, node: &Instruction, name: &str) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let axis = lowering.int(node, "axis")?;
    let keep = lowering.flag(node, "keepdims")?;
    let args = vec![x.into(), axis.into(), keep.into()];
    let wire = lowering.aten(name, args, DType::Int64)?;
    lowering.give(node, wire)
}

/// The logarithm of a sum of exponentials, the largest taken out before.
fn log_sum_exp(lowering: &mut Lowering<'_, '_, '_>, node: &Instruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let float = float_of(x.dtype);
    let axes = lowering.ints(node, "axes")?;
    let args = vec![x.into(), Arg::from(axes.as_slice()), true.into()];
    let most = lowering.aten("aten::amax.out", args, float)?;
    let args = vec![x.into(), most.into(), Arg::from(1)];
    let x = lowering.aten("aten::sub.out", args, float)?;
    let x = lowering.aten("aten::exp.out", vec![x.into()], float)?;
    let args = vec![x.into(), Arg::from(axes.as_slice()), true.into(), Arg::None];
    let sum = lowering.aten("aten::sum.IntList_out", args, float)?;
    let log = lowering.aten("aten::log.out", vec![sum.into()], float)?;
    let args = vec![log.into(), most.into(), Arg::from(1)];
    let mut wire = lowering.aten("aten::add.out", args, float)?;
    if !lowering.flag(node, "keepdims")? {
        let rank = lowering.shape(wire)?.len();
        let axes = axes.into_iter().map(|axis| axis_of(axis, rank));
        let axes: Vec<usize> = axes.collect::<TractResult<_>>()?;
        wire.outlet = lowering.frame.builder.remove(wire.outlet, &axes)?;
    }
    lowering.give(node, wire)
}

/// A sorted tensor, or the places of its elements in the unsorted one.
fn sorted(
    lowering: &mut Lowering<'_, '_, '_>,
    node: &Instruction,
    which: usize,
) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let axis = lowering.int(node, "axis")?;
    let args = vec![x.into(), axis.into(), false.into()];
    let outs = [x.dtype, DType::Int64].map(Out::Tensor);
    let given = lowering.caller().call("aten::sort.values", args, &outs)?;
    match given.get(which) {
        Some(Slot::Tensor(wire)) => lowering.give(node, *wire),
        _ => bail!("nothing sorted"),
    }
}
