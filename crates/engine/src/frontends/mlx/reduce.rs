//! MLX instructions over dimensions: reductions, softmax, sorting, cumulative sums.

use tract_onnx::tract_core::internal::*;

use super::{FrameSlot, InstructionTable, MlxInstruction, MlxLowering, float_dtype};
use crate::graph::builder::{Wire, axes_of, axis_of};
use crate::graph::calling::{CallArg, CallResult};
use crate::graph::table::{look_up, names_of};
use crate::tensor::DType;

/// A reduction: the portable operator, whether it takes a dtype, and the dtype of its result for
/// that of the argument.
type ReductionOperator = (&'static str, bool, fn(DType) -> DType);

/// Reductions over the dimensions of a field.
const REDUCTIONS: [(&str, ReductionOperator); 6] = [
    ("Sum", ("aten::sum.IntList_out", true, sum_dtype)),
    ("Mean", ("aten::mean.out", true, float_dtype)),
    ("Max", ("aten::amax.out", false, |dtype| dtype)),
    ("Min", ("aten::amin.out", false, |dtype| dtype)),
    ("Any", ("aten::any.dims_out", false, |_| DType::Bool)),
    ("All", ("aten::all.dims_out", false, |_| DType::Bool)),
];
const REDUCTION_KINDS: &[&str] = &names_of(&REDUCTIONS);

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (REDUCTION_KINDS, |lowering, node| {
        let reduction = look_up(&REDUCTIONS, node.kind).context("unsupported instruction")?;
        let (name, with_dtype, dtype) = reduction;
        let x = lowering.tensor(node, "x")?;
        let args = reduction_args(lowering, node, x, with_dtype)?;
        lowering.call(node, name, args, dtype(x.dtype))
    }),
    (&["Var"], |lowering, node| {
        let wire = variance(lowering, node)?;
        lowering.write_output(node, wire)
    }),
    (&["Std"], |lowering, node| {
        let wire = variance(lowering, node)?;
        lowering.call(node, "aten::sqrt.out", vec![wire.into()], wire.dtype)
    }),
    (&["Median"], median),
    (&["LogSumExp"], log_sum_exp),
    (&["Prod"], product),
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
        lowering.call(node, "aten::_softmax.out", args, float_dtype(x.dtype))
    }),
    (&["Cumsum"], cumulative_sum),
    // A sorted tensor is also partitioned.
    (&["Sort", "Partition"], |lowering, node| {
        sorted(lowering, node, 0)
    }),
    (&["Argsort", "ArgPartition"], |lowering, node| {
        sorted(lowering, node, 1)
    }),
];

/// Returns the dimensions to reduce; all dimensions if the field is empty.
fn all_axes(
    lowering: &MlxLowering<'_, '_>,
    node: &MlxInstruction,
    x: Wire,
) -> TractResult<Vec<usize>> {
    let rank = lowering.shape(x)?.len();
    let axes = lowering.ints(node, "axes")?;
    if axes.is_empty() {
        return Ok((0..rank).collect());
    }
    let mut axes = axes_of(&axes, rank)?;
    axes.sort_unstable();
    axes.dedup();
    Ok(axes)
}

fn axes_as_arg(axes: &[usize]) -> TractResult<CallArg> {
    let axes: Vec<i64> = axes
        .iter()
        .map(|&axis| Ok(i64::try_from(axis)?))
        .collect::<TractResult<_>>()?;
    Ok(CallArg::from(axes.as_slice()))
}

/// Returns the dtype of sums and products.
fn sum_dtype(dtype: DType) -> DType {
    match dtype {
        DType::Bool | DType::Int8 | DType::Int16 => DType::Int32,
        DType::Uint8 | DType::Uint16 => DType::Uint32,
        other => other,
    }
}

fn variance(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<Wire> {
    let x = lowering.tensor(node, "x")?;
    let axes = all_axes(lowering, node, x)?;
    let less = lowering.int(node, "ddof")?;
    let keep = lowering.flag(node, "keepdims")?;
    let args = vec![x.into(), axes_as_arg(&axes)?, less.into(), keep.into()];
    lowering.aten("aten::var.correction_out", args, float_dtype(x.dtype))
}

fn product(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let axes = all_axes(lowering, node, x)?;
    let dtype = sum_dtype(x.dtype);
    let mut wire = lowering.frame.builder.cast(x, dtype)?;
    for &axis in &axes {
        let axis = i64::try_from(axis)?;
        let args = vec![wire.into(), axis.into(), true.into(), CallArg::None];
        wire = lowering.aten("aten::prod.int_out", args, dtype)?;
    }
    if !lowering.flag(node, "keepdims")? {
        wire.outlet = lowering.frame.builder.remove(wire.outlet, &axes)?;
    }
    lowering.write_output(node, wire)
}

/// Computes the median, or the mean of the middle two elements; NaN if any element is NaN.
fn median(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let axes = all_axes(lowering, node, x)?;
    let keep = lowering.flag(node, "keepdims")?;
    let dtype = float_dtype(x.dtype);
    let float = DType::Float32;
    let builder = &mut lowering.frame.builder;
    let shape = builder.shape(x.outlet)?;
    let (reduced, kept): (Vec<usize>, Vec<usize>) =
        (0..shape.len()).partition(|axis| axes.contains(axis));
    let order: Vec<usize> = kept.iter().chain(&reduced).copied().collect();
    let mut lines: Vec<TDim> = kept.iter().map(|&axis| shape[axis].clone()).collect();
    let to = lines.clone();
    lines.push(reduced.iter().map(|&axis| shape[axis].clone()).product());
    let wide = builder.cast(x, float)?;
    let outlet = builder.transpose(wide.outlet, &order)?;
    let outlet = builder.reshape(outlet, &lines)?;
    let wire = builder.kernel("Median", float, &to, &[outlet], |inputs| {
        let (size, shape) = inputs[0]
            .shape()
            .split_last()
            .context("the input has no dimensions")?;
        ensure!(*size > 0, "cannot take the median of no elements");
        let view = inputs[0].try_as_plain_ram()?;
        let lines = view.as_slice::<f32>()?.chunks_exact(*size);
        let middles: Vec<f32> = lines.map(median_of).collect();
        Tensor::from_shape(shape, &middles)
    })?;
    let mut wire = builder.cast(wire, dtype)?;
    if keep {
        for &axis in &axes {
            wire.outlet = builder.wire(AxisOp::Add(axis), &[wire.outlet])?;
        }
    }
    lowering.write_output(node, wire)
}

fn median_of(line: &[f32]) -> f32 {
    if line.iter().any(|x| x.is_nan()) {
        return f32::NAN;
    }
    let mut sorted = line.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f32::midpoint(sorted[half - 1], sorted[half])
    } else {
        sorted[half]
    }
}

/// Lowers a cumulative sum, possibly in reverse or exclusive.
fn cumulative_sum(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let shape = lowering.shape(x)?;
    let axis = axis_of(lowering.int(node, "axis")?, shape.len())?;
    let at = i64::try_from(axis)?;
    let backwards = lowering.flag(node, "reverse")?;
    let dtype = if x.dtype == DType::Bool {
        DType::Int32
    } else {
        x.dtype
    };
    let turned = |lowering: &mut MlxLowering<'_, '_>, wire: Wire| {
        let args = vec![wire.into(), CallArg::from([at].as_slice())];
        lowering.aten("aten::flip.out", args, wire.dtype)
    };
    let mut wire = if backwards { turned(lowering, x)? } else { x };
    let args = vec![wire.into(), at.into(), CallArg::None];
    wire = lowering.aten("aten::cumsum.out", args, dtype)?;
    if !lowering.flag(node, "inclusive")? {
        let builder = &mut lowering.frame.builder;
        let last = (shape[axis].clone() - 1).reduce();
        let before = builder.slice(wire.outlet, axis, 0, last)?;
        let mut one = shape.clone();
        one[axis] = TDim::Val(1);
        let zero = builder.scalar(0.0, dtype, shape.len())?;
        let zero = builder.expand(zero.outlet, &one)?;
        wire.outlet = builder.concat(&[zero, before], axis)?;
    }
    if backwards {
        wire = turned(lowering, wire)?;
    }
    lowering.write_output(node, wire)
}

/// Returns arguments for a reduction: tensor, dimensions, whether they are kept, and no dtype.
fn reduction_args(
    lowering: &MlxLowering<'_, '_>,
    node: &MlxInstruction,
    x: Wire,
    with_dtype: bool,
) -> TractResult<Vec<CallArg>> {
    let axes = all_axes(lowering, node, x)?;
    let keep = lowering.flag(node, "keepdims")?;
    let mut args = vec![x.into(), axes_as_arg(&axes)?, keep.into()];
    if with_dtype {
        args.push(CallArg::None);
    }
    Ok(args)
}

fn extreme(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    name: &str,
) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let axis = lowering.int(node, "axis")?;
    let keep = lowering.flag(node, "keepdims")?;
    let args = vec![x.into(), axis.into(), keep.into()];
    lowering.call(node, name, args, DType::Int64)
}

/// Computes the logarithm of a sum of exponentials. The maximum is subtracted first.
fn log_sum_exp(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let float = float_dtype(x.dtype);
    let axes = lowering.ints(node, "axes")?;
    if axes.is_empty() {
        let wire = lowering.frame.builder.cast(x, float)?;
        return lowering.write_output(node, wire);
    }
    let mut wire = lowering.caller().log_sum_exp(x, &axes, float)?;
    if !lowering.flag(node, "keepdims")? {
        let rank = lowering.shape(wire)?.len();
        let axes = axes_of(&axes, rank)?;
        wire.outlet = lowering.frame.builder.remove(wire.outlet, &axes)?;
    }
    lowering.write_output(node, wire)
}

/// Sorts a tensor. Returns the sorted values, or the positions of their elements before sorting.
fn sorted(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    which: usize,
) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let axis = lowering.int(node, "axis")?;
    let args = vec![x.into(), axis.into(), false.into()];
    let outs = [x.dtype, DType::Int64].map(CallResult::Tensor);
    let given = lowering.caller().call("aten::sort.values", args, &outs)?;
    match given.get(which) {
        Some(FrameSlot::Tensor(wire)) => lowering.write_output(node, *wire),
        _ => bail!("sorting returned nothing"),
    }
}
