//! Core ML elementwise operations.

use tract_onnx::tract_core::internal::*;

use super::super::calling::CallArg;
use super::held::Operand;
use super::{Lowering, Operation, OperationTable, one};
use crate::tensor::DType;

/// Operations of one tensor, with the portable operator for each.
const UNARY: &[(&str, &str)] = &[
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

/// Operations of `x` and `y`, with the portable operator for each.
const BINARY: &[(&str, &str)] = &[
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

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (
        &[
            "abs",
            "acos",
            "asin",
            "atan",
            "atanh",
            "ceil",
            "cos",
            "cosh",
            "erf",
            "exp",
            "floor",
            "logical_not",
            "relu",
            "round",
            "sigmoid",
            "sign",
            "silu",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
        ],
        |lowering, operation| {
            let found = UNARY.iter().find(|(kind, _)| *kind == operation.kind);
            let (_, name) = found.context("unsupported operation")?;
            unary(lowering, operation, name)
        },
    ),
    (
        &[
            "equal",
            "floor_div",
            "greater",
            "greater_equal",
            "less",
            "less_equal",
            "logical_and",
            "logical_or",
            "logical_xor",
            "maximum",
            "minimum",
            "not_equal",
            "pow",
            "real_div",
        ],
        |lowering, operation| {
            let found = BINARY.iter().find(|(kind, _)| *kind == operation.kind);
            let (_, name) = found.context("unsupported operation")?;
            let (x, y) = (
                lowering.tensor(operation, "x")?,
                lowering.tensor(operation, "y")?,
            );
            let dtype = lowering.dtype(operation)?;
            lowering
                .aten(name, vec![x.into(), y.into()], dtype)
                .map(one)
        },
    ),
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
        let (x, y) = (
            lowering.tensor(operation, "x")?,
            lowering.tensor(operation, "y")?,
        );
        let dtype = lowering.dtype(operation)?;
        lowering
            .aten("aten::mul.out", vec![x.into(), y.into()], dtype)
            .map(one)
    }),
    (&["cast"], |lowering, operation| {
        let held = lowering.held_arg(operation, "x")?;
        let dtype = lowering.dtype(operation)?;
        let is_whole = !dtype.is_float() && dtype != DType::Bool;
        if is_whole && matches!(held, Operand::Sizes { .. }) {
            return Ok(vec![held]);
        }
        lowering.tensor(operation, "x").map(one)
    }),
    (&["exp2"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let dtype = lowering.dtype(operation)?;
        let args = vec![2.0.into(), x.into()];
        lowering.aten("aten::pow.Scalar_out", args, dtype).map(one)
    }),
    (&["mod"], modulo),
    (&["threshold"], |lowering, operation| {
        let low = lowering.float(operation, "alpha", f64::NEG_INFINITY)?;
        clamped(lowering, operation, low, f64::INFINITY)
    }),
    (&["square"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let dtype = lowering.dtype(operation)?;
        lowering
            .aten("aten::mul.out", vec![x.into(), x.into()], dtype)
            .map(one)
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
        let (a, b) = (
            lowering.tensor(operation, "a")?,
            lowering.tensor(operation, "b")?,
        );
        let dtype = lowering.dtype(operation)?;
        let args = vec![condition.into(), a.into(), b.into()];
        lowering.aten("aten::where.self_out", args, dtype).map(one)
    }),
];

fn unary(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    name: &str,
) -> TractResult<Vec<Operand>> {
    let x = lowering.tensor(operation, "x")?;
    let dtype = lowering.dtype(operation)?;
    lowering.aten(name, vec![x.into()], dtype).map(one)
}

/// Combines two sizes or integers, if at least one is a size and the other one is a size or known.
///
/// Values with more than one dimension stay tensors, regardless of their number of elements.
fn sizes(
    lowering: &Lowering<'_, '_, '_>,
    operation: &Operation,
    compute: fn(TDim, TDim) -> TDim,
) -> TractResult<Option<Operand>> {
    let (x, y) = (
        lowering.held_arg(operation, "x")?,
        lowering.held_arg(operation, "y")?,
    );
    let is_size = |held: &Operand| matches!(held, Operand::Sizes { .. });
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
    Ok(Some(Operand::Sizes { sizes, is_number }))
}

fn sum(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    name: &str,
    compute: fn(TDim, TDim) -> TDim,
) -> TractResult<Vec<Operand>> {
    if let Some(held) = sizes(lowering, operation, compute)? {
        return Ok(vec![held]);
    }
    let (x, y) = (
        lowering.tensor(operation, "x")?,
        lowering.tensor(operation, "y")?,
    );
    let dtype = lowering.dtype(operation)?;
    lowering
        .aten(name, vec![x.into(), y.into(), CallArg::from(1)], dtype)
        .map(one)
}

/// Computes the remainder of a division that rounds down; it has the divisor's sign.
fn modulo(lowering: &mut Lowering<'_, '_, '_>, operation: &Operation) -> TractResult<Vec<Operand>> {
    let dtype = lowering.dtype(operation)?;
    let (x, y) = (
        lowering.tensor(operation, "x")?,
        lowering.tensor(operation, "y")?,
    );
    if dtype.is_float() {
        let args = vec![x.into(), y.into()];
        return lowering
            .aten("aten::remainder.Tensor_out", args, dtype)
            .map(one);
    }
    // For integers that operator returns the remainder of truncated division, as ExecuTorch's does.
    let args = vec![x.into(), y.into()];
    let quotient = lowering.aten("aten::floor_divide.out", args, dtype)?;
    let args = vec![quotient.into(), y.into()];
    let product = lowering.aten("aten::mul.out", args, dtype)?;
    let args = vec![x.into(), product.into(), CallArg::from(1)];
    lowering.aten("aten::sub.out", args, dtype).map(one)
}

/// Applies a function to the argument plus epsilon.
fn with_epsilon(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    name: &str,
    default: f64,
) -> TractResult<Vec<Operand>> {
    let x = lowering.tensor(operation, "x")?;
    let epsilon = lowering.float(operation, "epsilon", default)?;
    let dtype = lowering.dtype(operation)?;
    let args = vec![x.into(), epsilon.into(), CallArg::from(1)];
    let x = lowering.aten("aten::add.Scalar_out", args, dtype)?;
    lowering.aten(name, vec![x.into()], dtype).map(one)
}

fn clamped(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    low: f64,
    high: f64,
) -> TractResult<Vec<Operand>> {
    let x = lowering.tensor(operation, "x")?;
    let dtype = lowering.dtype(operation)?;
    let limit = |limit: f64| Some(limit).filter(|limit| limit.is_finite());
    let args = vec![x.into(), limit(low).into(), limit(high).into()];
    lowering.aten("aten::clamp.out", args, dtype).map(one)
}
