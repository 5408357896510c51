//! Core ML elementwise operations.

use tract_onnx::tract_core::internal::*;

use super::held::CoremlOperand;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::calling::CallArg;
use crate::graph::table::{look_up, names_of};
use crate::tensor::DType;

/// Operations of one tensor, with the portable operator for each.
const UNARY: [(&str, &str); 22] = [
    ("abs", "aten::abs.out"),
    ("acos", "aten::acos.out"),
    ("asin", "aten::asin.out"),
    ("atan", "aten::atan.out"),
    ("atanh", "aten::atanh.out"),
    ("ceil", "aten::ceil.out"),
    ("cos", "aten::cos.out"),
    ("cosh", "aten::cosh.out"),
    ("erf", "aten::erf.out"),
    ("exp", "aten::exp.out"),
    ("floor", "aten::floor.out"),
    ("logical_not", "aten::logical_not.out"),
    ("relu", "aten::relu.out"),
    ("round", "aten::round.out"),
    ("sigmoid", "aten::sigmoid.out"),
    ("sign", "aten::sign.out"),
    ("silu", "aten::silu.out"),
    ("sin", "aten::sin.out"),
    ("sinh", "aten::sinh.out"),
    ("sqrt", "aten::sqrt.out"),
    ("tan", "aten::tan.out"),
    ("tanh", "aten::tanh.out"),
];
const UNARY_KINDS: &[&str] = &names_of(&UNARY);

/// Operations of `x` and `y`, with the portable operator for each.
const BINARY: [(&str, &str); 14] = [
    ("equal", "aten::eq.Tensor_out"),
    ("floor_div", "aten::floor_divide.out"),
    ("greater", "aten::gt.Tensor_out"),
    ("greater_equal", "aten::ge.Tensor_out"),
    ("less", "aten::lt.Tensor_out"),
    ("less_equal", "aten::le.Tensor_out"),
    ("logical_and", "aten::logical_and.out"),
    ("logical_or", "aten::logical_or.out"),
    ("logical_xor", "aten::logical_xor.out"),
    ("maximum", "aten::maximum.out"),
    ("minimum", "aten::minimum.out"),
    ("not_equal", "aten::ne.Tensor_out"),
    ("pow", "aten::pow.Tensor_Tensor_out"),
    ("real_div", "aten::div.out"),
];
const BINARY_KINDS: &[&str] = &names_of(&BINARY);

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (UNARY_KINDS, |lowering, operation| {
        let name = look_up(&UNARY, &operation.kind).context("unsupported operation")?;
        let x = lowering.tensor(operation, "x")?;
        lowering.result(operation, name, vec![x.into()])
    }),
    (BINARY_KINDS, |lowering, operation| {
        let name = look_up(&BINARY, &operation.kind).context("unsupported operation")?;
        let [x, y] = lowering.pair(operation, ["x", "y"])?;
        lowering.result(operation, name, vec![x.into(), y.into()])
    }),
    (&["add"], |lowering, operation| {
        sum(lowering, operation, "aten::add.out", |a, b| a + b)
    }),
    (&["sub"], |lowering, operation| {
        sum(lowering, operation, "aten::sub.out", |a, b| a - b)
    }),
    (&["mul"], |lowering, operation| {
        if let Some(held) = sizes(lowering, operation, |a, b| a * b)? {
            return Ok(vec![held]);
        }
        let [x, y] = lowering.pair(operation, ["x", "y"])?;
        lowering.result(operation, "aten::mul.out", vec![x.into(), y.into()])
    }),
    (&["cast"], |lowering, operation| {
        let held = lowering.held_arg(operation, "x")?;
        let dtype = lowering.dtype(operation)?;
        let is_whole = !dtype.is_float() && dtype != DType::Bool;
        if is_whole && matches!(held, CoremlOperand::Sizes { .. }) {
            return Ok(vec![held]);
        }
        lowering.tensor(operation, "x").map(one)
    }),
    (&["exp2"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let args = vec![2.0.into(), x.into()];
        lowering.result(operation, "aten::pow.Scalar_out", args)
    }),
    (&["mod"], modulo),
    (&["threshold"], |lowering, operation| {
        let low = lowering.float(operation, "alpha", f64::NEG_INFINITY)?;
        clamped(lowering, operation, low, f64::INFINITY)
    }),
    (&["square"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        lowering.result(operation, "aten::mul.out", vec![x.into(), x.into()])
    }),
    (&["rsqrt"], |lowering, operation| {
        with_epsilon(lowering, operation, "aten::rsqrt.out", 1e-12)
    }),
    (&["log"], |lowering, operation| {
        with_epsilon(lowering, operation, "aten::log.out", 1e-45)
    }),
    (&["inverse"], |lowering, operation| {
        with_epsilon(lowering, operation, "aten::reciprocal.out", 1e-4)
    }),
    (&["clip"], |lowering, operation| {
        let low = lowering.float(operation, "alpha", f64::NEG_INFINITY)?;
        let high = lowering.float(operation, "beta", f64::INFINITY)?;
        clamped(lowering, operation, low, high)
    }),
    (&["select"], |lowering, operation| {
        let condition = lowering.tensor(operation, "cond")?;
        let [a, b] = lowering.pair(operation, ["a", "b"])?;
        let args = vec![condition.into(), a.into(), b.into()];
        lowering.result(operation, "aten::where.self_out", args)
    }),
];

/// Combines two sizes or integers, if at least one is a size and the other one is a size or known.
///
/// Values with more than one dimension stay tensors, regardless of their number of elements.
fn sizes(
    lowering: &CoremlLowering<'_, '_>,
    operation: &Operation,
    compute: fn(TDim, TDim) -> TDim,
) -> TractResult<Option<CoremlOperand>> {
    let (x, y) = (
        lowering.held_arg(operation, "x")?,
        lowering.held_arg(operation, "y")?,
    );
    let is_size = |held: &CoremlOperand| matches!(held, CoremlOperand::Sizes { .. });
    if !is_size(&x) && !is_size(&y) {
        return Ok(None);
    }
    let (Some(a), Some(b)) = (lowering.as_sizes(&x)?, lowering.as_sizes(&y)?) else {
        return Ok(None);
    };
    let is_number = lowering.rank_of(&x)? == 0 && lowering.rank_of(&y)? == 0;
    let count = match (a.len(), b.len()) {
        (0, _) | (_, 0) => return Ok(None),
        (1, count) | (count, 1) => count,
        (a, b) if a == b => a,
        (a, b) => bail!("lists of {a} and {b} sizes do not broadcast together"),
    };
    let pairs = (0..count).map(|at| (a[at % a.len()].clone(), b[at % b.len()].clone()));
    let sizes = pairs.map(|(a, b)| compute(a, b).reduce()).collect();
    Ok(Some(CoremlOperand::Sizes { sizes, is_number }))
}

fn sum(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    name: &str,
    compute: fn(TDim, TDim) -> TDim,
) -> Results {
    if let Some(held) = sizes(lowering, operation, compute)? {
        return Ok(vec![held]);
    }
    let [x, y] = lowering.pair(operation, ["x", "y"])?;
    lowering.result(operation, name, vec![x.into(), y.into(), CallArg::from(1)])
}

/// Computes the remainder of a division that rounds down; it has the divisor's sign.
fn modulo(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let dtype = lowering.dtype(operation)?;
    let [x, y] = lowering.pair(operation, ["x", "y"])?;
    if dtype.is_float() {
        let args = vec![x.into(), y.into()];
        return lowering.aten_result("aten::remainder.Tensor_out", args, dtype);
    }
    // For integers that operator returns the remainder of truncated division, as ExecuTorch's does.
    let args = vec![x.into(), y.into()];
    let quotient = lowering.aten("aten::floor_divide.out", args, dtype)?;
    let args = vec![quotient.into(), y.into()];
    let product = lowering.aten("aten::mul.out", args, dtype)?;
    let args = vec![x.into(), product.into(), CallArg::from(1)];
    lowering.aten_result("aten::sub.out", args, dtype)
}

/// Applies a function to the argument plus epsilon.
fn with_epsilon(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    name: &str,
    default: f64,
) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let epsilon = lowering.float(operation, "epsilon", default)?;
    let dtype = lowering.dtype(operation)?;
    let args = vec![x.into(), epsilon.into(), CallArg::from(1)];
    let x = lowering.aten("aten::add.Scalar_out", args, dtype)?;
    lowering.aten_result(name, vec![x.into()], dtype)
}

fn clamped(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    low: f64,
    high: f64,
) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let limit = |limit: f64| Some(limit).filter(|limit| limit.is_finite());
    let args = vec![x.into(), limit(low).into(), limit(high).into()];
    lowering.result(operation, "aten::clamp.out", args)
}
