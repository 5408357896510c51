//! Core ML operations over dimensions: reductions, softmax, sorting, cumulative sums.

use tract_onnx::tract_core::internal::*;

use super::held::CoremlOperand;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::Wire;
use crate::graph::calling::CallArg;
use crate::graph::table::{look_up, names_of};
use crate::tensor::DType;

/// Reductions: the portable operator, and whether it takes a dtype.
const REDUCTIONS: [(&str, (&str, bool)); 4] = [
    ("reduce_sum", ("aten::sum.IntList_out", true)),
    ("reduce_mean", ("aten::mean.out", true)),
    ("reduce_max", ("aten::amax.out", false)),
    ("reduce_min", ("aten::amin.out", false)),
];
const REDUCTION_KINDS: &[&str] = &names_of(&REDUCTIONS);

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (REDUCTION_KINDS, |lowering, operation| {
        let reduction = look_up(&REDUCTIONS, &operation.kind);
        let (name, with_dtype) = reduction.context("unsupported operation")?;
        let x = lowering.tensor(operation, "x")?;
        let args = reduction_args(lowering, operation, x, with_dtype)?;
        lowering.result(operation, name, args)
    }),
    (&["reduce_l1_norm"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let dtype = lowering.dtype(operation)?;
        let size = lowering.aten("aten::abs.out", vec![x.into()], dtype)?;
        sum_over_axes(lowering, operation, size).map(one)
    }),
    (&["reduce_l2_norm"], |lowering, operation| {
        let sum = square_sum(lowering, operation, DType::Float32)?;
        lowering.function("sqrt", sum).map(one)
    }),
    (&["reduce_log_sum"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let x = lowering.frame.builder.cast(x, DType::Float32)?;
        let args = reduction_args(lowering, operation, x, true)?;
        let sum = lowering.aten("aten::sum.IntList_out", args, DType::Float32)?;
        lowering.function("log", sum).map(one)
    }),
    (&["reduce_prod"], |lowering, operation| {
        let mut x = lowering.tensor(operation, "x")?;
        let dtype = lowering.dtype(operation)?;
        let rank = lowering.shape(x)?.len();
        let axes = lowering.axes(operation, rank)?;
        let mut axes = axes.unwrap_or_else(|| (0..rank).collect());
        axes.sort_unstable();
        axes.dedup();
        let keep = lowering.bool(operation, "keep_dims", false)?;
        for axis in axes.into_iter().rev() {
            let args = vec![
                x.into(),
                i64::try_from(axis)?.into(),
                keep.into(),
                CallArg::None,
            ];
            x = lowering.aten("aten::prod.int_out", args, dtype)?;
        }
        Ok(one(x))
    }),
    (&["reduce_sum_square"], |lowering, operation| {
        let dtype = lowering.dtype(operation)?;
        square_sum(lowering, operation, dtype).map(one)
    }),
    (&["reduce_log_sum_exp"], log_sum_exp),
    (&["reduce_argmax"], |lowering, operation| {
        extreme(lowering, operation, "aten::argmax.out")
    }),
    (&["reduce_argmin"], |lowering, operation| {
        extreme(lowering, operation, "aten::argmin.out")
    }),
    (&["softmax"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let axis = lowering.int(operation, "axis", -1)?;
        let args = vec![x.into(), axis.into(), false.into()];
        lowering.result(operation, "aten::_softmax.out", args)
    }),
    (&["argsort"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let axis = lowering.int(operation, "axis", -1)?;
        let ascending = lowering.bool(operation, "ascending", false)?;
        let args = vec![x.into(), axis.into(), (!ascending).into()];
        let outs = [x.dtype, DType::Int64].map(super::CallResult::Tensor);
        let given = lowering.caller().call("aten::sort.values", args, &outs)?;
        match given.get(1) {
            Some(super::FrameSlot::Tensor(wire)) => Ok(one(*wire)),
            _ => bail!("sorting returned no positions"),
        }
    }),
    (&["cumsum"], cumulative_sum),
    (&["topk"], top_k),
];

/// Returns arguments for a reduction: tensor, dimensions, whether they are kept, and no dtype.
fn reduction_args(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    x: Wire,
    with_dtype: bool,
) -> TractResult<Vec<CallArg>> {
    let axes = lowering.ints(operation, "axes")?.unwrap_or_default();
    let keep = lowering.bool(operation, "keep_dims", false)?;
    let mut args = vec![x.into(), CallArg::from(axes.as_slice()), keep.into()];
    if with_dtype {
        args.push(CallArg::None);
    }
    Ok(args)
}

/// Sums over an operation's dimensions, in its dtype.
fn sum_over_axes(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    x: Wire,
) -> TractResult<Wire> {
    let args = reduction_args(lowering, operation, x, true)?;
    let dtype = lowering.dtype(operation)?;
    lowering.aten("aten::sum.IntList_out", args, dtype)
}

fn square_sum(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    dtype: DType,
) -> TractResult<Wire> {
    let x = lowering.tensor(operation, "x")?;
    let square = lowering.aten("aten::mul.out", vec![x.into(), x.into()], dtype)?;
    let args = reduction_args(lowering, operation, square, true)?;
    lowering.aten("aten::sum.IntList_out", args, dtype)
}

/// Lowers a cumulative sum, possibly exclusive or in reverse.
fn cumulative_sum(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let mut x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    let axis = lowering.axis(operation, "axis", shape.len())?;
    let reverse = lowering.bool(operation, "reverse", false)?;
    let dtype = lowering.dtype(operation)?;
    let flip = |x: Wire| vec![x.into(), CallArg::Ints(vec![axis.to_dim()])];
    if reverse {
        x = lowering.aten("aten::flip.out", flip(x), dtype)?;
    }
    if lowering.bool(operation, "exclusive", false)? {
        let builder = &mut lowering.frame.builder;
        let end = (shape[axis].clone() - 1).reduce();
        let rest = builder.slice(x.outlet, axis, 0, end)?;
        let mut first = shape.clone();
        first[axis] = 1.to_dim();
        let zero = builder.scalar(0.0, x.dtype, 0)?.outlet;
        let zero = builder.expand(zero, &first)?;
        x.outlet = builder.concat(&[zero, rest], axis)?;
    }
    let args = vec![x.into(), i64::try_from(axis)?.into(), CallArg::None];
    let mut sum = lowering.aten("aten::cumsum.out", args, dtype)?;
    if reverse {
        sum = lowering.aten("aten::flip.out", flip(sum), dtype)?;
    }
    Ok(one(sum))
}

/// Computes the logarithm of a sum of exponentials. The maximum is subtracted first.
fn log_sum_exp(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let float = DType::Float32;
    let x = lowering.tensor(operation, "x")?;
    let axes = lowering.ints(operation, "axes")?.unwrap_or_default();
    let sum = lowering.caller().log_sum_exp(x, &axes, float)?;
    if lowering.bool(operation, "keep_dims", false)? {
        return Ok(one(sum));
    }
    let rank = lowering.shape(sum)?.len();
    let axes = lowering.axes(operation, rank)?;
    let axes = axes.unwrap_or_else(|| (0..rank).collect());
    let outlet = lowering.frame.builder.remove(sum.outlet, &axes)?;
    Ok(one(Wire::new(outlet, float)))
}

fn extreme(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation, name: &str) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let axis = lowering.int(operation, "axis", -1)?;
    let keep = lowering.bool(operation, "keep_dims", false)?;
    let args = vec![x.into(), axis.into(), keep.into()];
    lowering.aten_result(name, args, DType::Int64)
}

fn top_k(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let axis = lowering.int(operation, "axis", -1)?;
    let count = lowering.int(operation, "k", 1)?;
    let ascending = lowering.bool(operation, "ascending", false)?;
    let args = vec![
        x.into(),
        count.into(),
        axis.into(),
        (!ascending).into(),
        true.into(),
    ];
    let outs = [x.dtype, DType::Int64].map(super::CallResult::Tensor);
    let given = lowering.caller().call("aten::topk.values", args, &outs)?;
    let given = given.into_iter().map(|slot| match slot {
        super::FrameSlot::Tensor(wire) => Ok(CoremlOperand::Tensor(wire)),
        _ => bail!("an output is not a tensor"),
    });
    let given: Vec<CoremlOperand> = given.collect::<TractResult<_>>()?;
    Ok(given.into_iter().take(operation.outputs.len()).collect())
}
