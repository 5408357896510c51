//! Operations over dimensions.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::super::calling::Arg;
use super::held::Held;
use super::{Lowering, Operation, Table, one};
use crate::tensor::DType;

/// The operations of this theme.
pub(super) const TABLE: Table = &[
    (&["reduce_sum"], |lowering, operation| {
        plain(lowering, operation, "aten::sum.IntList_out", true)
    }),
    (&["reduce_mean"], |lowering, operation| {
        plain(lowering, operation, "aten::mean.out", true)
    }),
    (&["reduce_max"], |lowering, operation| {
        plain(lowering, operation, "aten::amax.out", false)
    }),
    (&["reduce_min"], |lowering, operation| {
        plain(lowering, operation, "aten::amin.out", false)
    }),
    (&["reduce_l2_norm"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let args = vec![x.into(), x.into()];
        let square = lowering.aten("aten::mul.out", args, DType::Float32)?;
        let args = over(lowering, operation, square, true)?;
        let sum = lowering.aten("aten::sum.IntList_out", args, DType::Float32)?;
        let dtype = lowering.dtype(operation)?;
        lowering
            .aten("aten::sqrt.out", vec![sum.into()], dtype)
            .map(one)
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
        let dtype = lowering.dtype(operation)?;
        lowering.aten("aten::_softmax.out", args, dtype).map(one)
    }),
    (&["cumsum"], |lowering, operation| {
        for flag in ["exclusive", "reverse"] {
            ensure!(
                !lowering.bool(operation, flag, false)?,
                "a cumulated sum that is {flag} is not supported"
            );
        }
        let x = lowering.tensor(operation, "x")?;
        let axis = lowering.int(operation, "axis", 0)?;
        let dtype = lowering.dtype(operation)?;
        let args = vec![x.into(), axis.into(), Arg::None];
        lowering.aten("aten::cumsum.out", args, dtype).map(one)
    }),
    (&["topk"], largest),
];

/// Tensor, dimensions, whether they stay, and a place for a dtype.
fn over(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    x: Wire,
    with_dtype: bool,
) -> TractResult<Vec<Arg>> {
    let axes = lowering.ints(operation, "axes")?.unwrap_or_default();
    let keep = lowering.bool(operation, "keep_dims", false)?;
    let mut args = vec![x.into(), Arg::from(axes.as_slice()), keep.into()];
    if with_dtype {
        args.push(Arg::None);
    }
    Ok(args)
}

fn plain(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    name: &str,
    with_dtype: bool,
) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let args = over(lowering, operation, x, with_dtype)?;
    let dtype = lowering.dtype(operation)?;
    lowering.aten(name, args, dtype).map(one)
}

/// The logarithm of a sum of exponentials, the largest taken out before.
fn log_sum_exp(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
) -> TractResult<Vec<Held>> {
    let float = DType::Float32;
    let x = lowering.tensor(operation, "x")?;
    let axes = lowering.ints(operation, "axes")?.unwrap_or_default();
    let args = vec![x.into(), Arg::from(axes.as_slice()), true.into()];
    let most = lowering.aten("aten::amax.out", args, float)?;
    let args = vec![x.into(), most.into(), Arg::from(1)];
    let x = lowering.aten("aten::sub.out", args, float)?;
    let x = lowering.aten("aten::exp.out", vec![x.into()], float)?;
    let args = vec![x.into(), Arg::from(axes.as_slice()), true.into(), Arg::None];
    let sum = lowering.aten("aten::sum.IntList_out", args, float)?;
    let log = lowering.aten("aten::log.out", vec![sum.into()], float)?;
    let args = vec![log.into(), most.into(), Arg::from(1)];
    let sum = lowering.aten("aten::add.out", args, float)?;
    if lowering.bool(operation, "keep_dims", false)? {
        return Ok(one(sum));
    }
    let rank = lowering.shape(sum)?.len();
    let axes = lowering.axes(operation, rank)?;
    let axes = axes.unwrap_or_else(|| (0..rank).collect());
    let outlet = lowering.frame.builder.remove(sum.outlet, &axes)?;
    Ok(one(Wire {
        outlet,
        dtype: float,
    }))
}

fn extreme(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    name: &str,
) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let axis = lowering.int(operation, "axis", -1)?;
    let keep = lowering.bool(operation, "keep_dims", false)?;
    let args = vec![x.into(), axis.into(), keep.into()];
    lowering.aten(name, args, DType::Int64).map(one)
}

fn largest(lowering: &mut Lowering<'_, '_, '_>, operation: &Operation) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let count = lowering.int(operation, "k", 1)?;
    let axis = lowering.int(operation, "axis", -1)?;
    let ascending = lowering.bool(operation, "ascending", false)?;
    let args = vec![
        x.into(),
        count.into(),
        axis.into(),
        (!ascending).into(),
        true.into(),
    ];
    let outs = [x.dtype, DType::Int64].map(super::Out::Tensor);
    let given = lowering.caller().call("aten::topk.values", args, &outs)?;
    let given = given.into_iter().map(|slot| match slot {
        super::Slot::Tensor(wire) => Ok(Held::Tensor(wire)),
        _ => bail!("no tensor"),
    });
    let given: Vec<Held> = given.collect::<TractResult<_>>()?;
    Ok(given.into_iter().take(operation.outputs.len()).collect())
}
