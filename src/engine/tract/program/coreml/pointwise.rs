//! Operations on each element by itself.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::super::calling::Arg;
use super::held::Held;
use super::{Lowering, Operation, Table, one};
use crate::tensor::DType;

/// Operations of one tensor and the operator that each is.
const UNARY: &[(&str, &str)] = &[
    ("abs", "aten::abs.out"),
    ("acos", "aten::acos.out"),
    ("asin", "aten::asin.out"),
    ("atan", "aten::atan.out"),
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

/// Operations of `x` and `y` and the operator that each is.
const BINARY: &[(&str, &str)] = &[
    ("equal", "aten::eq.Tensor_out"),
    ("floor_div", "aten::floor_divide.out"),
    ("greater", "aten::gt.Tensor_out"),
    ("greater_equal", "aten::ge.Tensor_out"),
    ("less", "aten::lt.Tensor_out"),
    ("less_equal", "aten::le.Tensor_out"),
    ("logical_and", "aten::logical_and.out"),
    ("logical_or", "aten::logical_or.out"),
    ("maximum", "aten::maximum.out"),
    ("minimum", "aten::minimum.out"),
    ("not_equal", "aten::ne.Tensor_out"),
    ("pow", "aten::pow.Tensor_Tensor_out"),
    ("real_div", "aten::div.out"),
];

/// The operations of this theme.
pub(super) const TABLE: Table = &[
    (
        &[
            "abs",
            "acos",
            "asin",
            "atan",
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
            let (_, name) = found.context("not supported")?;
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
            "maximum",
            "minimum",
            "not_equal",
            "pow",
            "real_div",
        ],
        |lowering, operation| {
            let found = BINARY.iter().find(|(kind, _)| *kind == operation.kind);
            let (_, name) = found.context("not supported")?;
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
        if matches!(held, Held::Sizes { .. }) {
            return Ok(vec![held]);
        }
        lowering.tensor(operation, "x").map(one)
    }),
    (&["square"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let dtype = lowering.dtype(operation)?;
        lowering
            .aten("aten::mul.out", vec![x.into(), x.into()], dtype)
            .map(one)
    }),
    (&["rsqrt"], |lowering, operation| {
        shifted(lowering, operation, "aten::rsqrt.out", 1e-12)
    }),
    (&["log"], |lowering, operation| {
        shifted(lowering, operation, "aten::log.out", 1e-45)
    }),
    (&["inverse"], |lowering, operation| {
        shifted(lowering, operation, "aten::reciprocal.out", 1e-4)
    }),
    (&["clip"], |lowering, operation| {
        let low = lowering.float(operation, "alpha", f64::NEG_INFINITY)?;
        let high = lowering.float(operation, "beta", f64::INFINITY)?;
        clamped(lowering, operation, low, high)
    }),
    (&["relu6"], |lowering, operation| {
        clamped(lowering, operation, 0.0, 6.0)
    }),
    (&["elu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let alpha = lowering.float(operation, "alpha", 1.0)?;
        let args = vec![x.into(), alpha.into(), 1.0.into(), 1.0.into()];
        let dtype = lowering.dtype(operation)?;
        lowering.aten("aten::elu.out", args, dtype).map(one)
    }),
    (&["leaky_relu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let alpha = lowering.float(operation, "alpha", 0.01)?;
        let dtype = lowering.dtype(operation)?;
        lowering
            .aten("aten::leaky_relu.out", vec![x.into(), alpha.into()], dtype)
            .map(one)
    }),
    (&["gelu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let mode = lowering.text(operation, "mode", "EXACT")?;
        let mode = match mode.as_str() {
            "EXACT" => "none",
            "TANH_APPROXIMATION" => "tanh",
            other => bail!("gelu by {other} is not supported"),
        };
        let dtype = lowering.dtype(operation)?;
        let args = vec![x.into(), Arg::Text(mode.to_owned())];
        lowering.aten("aten::gelu.out", args, dtype).map(one)
    }),
    (&["sigmoid_hard"], hard),
    (&["thresholded_relu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let alpha = lowering.float(operation, "alpha", 1.0)?;
        let kept = lowering.aten(
            "aten::ge.Scalar_out",
            vec![x.into(), alpha.into()],
            DType::Bool,
        )?;
        let zero = lowering.frame.builder.scalar(0.0, x.dtype, 0)?;
        let dtype = lowering.dtype(operation)?;
        let args = vec![kept.into(), x.into(), zero.into()];
        lowering.aten("aten::where.self_out", args, dtype).map(one)
    }),
    (&["softplus"], softplus),
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
) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let dtype = lowering.dtype(operation)?;
    lowering.aten(name, vec![x.into()], dtype).map(one)
}

/// Integers of two sizes, where both are sizes or known, and one of them is a size.
fn sizes(
    lowering: &Lowering<'_, '_, '_>,
    operation: &Operation,
    compute: fn(TDim, TDim) -> TDim,
) -> TractResult<Option<Held>> {
    let (x, y) = (
        lowering.held_arg(operation, "x")?,
        lowering.held_arg(operation, "y")?,
    );
    let is_size = |held: &Held| matches!(held, Held::Sizes { .. });
    if !is_size(&x) && !is_size(&y) {
        return Ok(None);
    }
    let (Some(a), Some(b)) = (lowering.sizes_of(&x)?, lowering.sizes_of(&y)?) else {
        return Ok(None);
    };
    let is_number = [&x, &y].into_iter().all(|held| match held {
        Held::Sizes { is_number, .. } => *is_number,
        Held::Constant(value) => value.ty.dims.is_empty(),
        Held::Tensor(_) => false,
    });
    let count = a.len().max(b.len());
    if a.is_empty() || b.is_empty() {
        return Ok(None);
    }
    let pairs = (0..count).map(|at| (a[at % a.len()].clone(), b[at % b.len()].clone()));
    let sizes = pairs.map(|(a, b)| compute(a, b).reduce()).collect();
    Ok(Some(Held::Sizes { sizes, is_number }))
}

fn sum(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    name: &str,
    compute: fn(TDim, TDim) -> TDim,
) -> TractResult<Vec<Held>> {
    if let Some(held) = sizes(lowering, operation, compute)? {
        return Ok(vec![held]);
    }
    let (x, y) = (
        lowering.tensor(operation, "x")?,
        lowering.tensor(operation, "y")?,
    );
    let dtype = lowering.dtype(operation)?;
    lowering
        .aten(name, vec![x.into(), y.into(), Arg::from(1)], dtype)
        .map(one)
}

/// A function of what is a little more than the argument.
fn shifted(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    name: &str,
    default: f64,
) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let epsilon = lowering.float(operation, "epsilon", default)?;
    let dtype = lowering.dtype(operation)?;
    let args = vec![x.into(), epsilon.into(), Arg::from(1)];
    let x = lowering.aten("aten::add.Scalar_out", args, dtype)?;
    lowering.aten(name, vec![x.into()], dtype).map(one)
}

fn clamped(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    low: f64,
    high: f64,
) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let dtype = lowering.dtype(operation)?;
    let limit = |limit: f64| Some(limit).filter(|limit| limit.is_finite());
    let args = vec![x.into(), limit(low).into(), limit(high).into()];
    lowering.aten("aten::clamp.out", args, dtype).map(one)
}

/// `alpha · x + beta`, held to 0 and 1.
fn hard(lowering: &mut Lowering<'_, '_, '_>, operation: &Operation) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let alpha = lowering.float(operation, "alpha", 0.2)?;
    let beta = lowering.float(operation, "beta", 0.5)?;
    let float = DType::Float32;
    let x = lowering.aten("aten::mul.Scalar_out", vec![x.into(), alpha.into()], float)?;
    let args = vec![x.into(), beta.into(), Arg::from(1)];
    let x = lowering.aten("aten::add.Scalar_out", args, float)?;
    let args = vec![x.into(), 0.0.into(), 1.0.into()];
    let dtype = lowering.dtype(operation)?;
    lowering.aten("aten::clamp.out", args, dtype).map(one)
}

/// `log(1 + exp(x))` without large exponentials: `max(x, 0) + log1p(exp(-|x|))`.
fn softplus(lowering: &mut Lowering<'_, '_, '_>, operation: &Operation) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let float = DType::Float32;
    let mut apply = |name: &str, x: Wire| lowering.aten(name, vec![x.into()], float);
    let small = apply("aten::abs.out", x)?;
    let small = apply("aten::neg.out", small)?;
    let small = apply("aten::exp.out", small)?;
    let small = apply("aten::log1p.out", small)?;
    let large = apply("aten::relu.out", x)?;
    let args = vec![large.into(), small.into(), Arg::from(1)];
    let dtype = lowering.dtype(operation)?;
    lowering.aten("aten::add.out", args, dtype).map(one)
}
