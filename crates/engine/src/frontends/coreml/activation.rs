//! Core ML activation functions.

use tract_onnx::tract_core::internal::*;

use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::Wire;
use crate::graph::calling::CallArg;
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    // `alpha · x` for negative `x`, then clamped to at most `beta`.
    (&["clamped_relu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let (alpha, beta) = factors(lowering, operation)?;
        let wire = leaky(lowering, x, alpha)?;
        lowering.clamped(wire, None, Some(beta)).map(one)
    }),
    (&["elu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let alpha = lowering.float(operation, "alpha", 1.0)?;
        let args = vec![x.into(), alpha.into(), 1.0.into(), 1.0.into()];
        lowering.result(operation, "aten::elu.out", args)
    }),
    (&["gelu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let mode = lowering.text(operation, "mode", "EXACT")?;
        let mode = match mode.as_str() {
            "EXACT" => "none",
            "TANH_APPROXIMATION" => "tanh",
            // `x · sigmoid(1.702 x)`
            "SIGMOID_APPROXIMATION" => {
                let gate = lowering.binary("mul", x, 1.702)?;
                let gate = lowering.function("sigmoid", gate)?;
                return lowering.binary("mul", x, gate).map(one);
            }
            other => bail!("unsupported gelu mode `{other}`"),
        };
        let args = vec![x.into(), CallArg::Text(mode.to_owned())];
        lowering.result(operation, "aten::gelu.out", args)
    }),
    (&["leaky_relu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let alpha = lowering.float(operation, "alpha", 0.01)?;
        lowering.result(
            operation,
            "aten::leaky_relu.out",
            vec![x.into(), alpha.into()],
        )
    }),
    (&["linear_activation"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let (alpha, beta) = factors(lowering, operation)?;
        let wire = lowering.binary("mul", x, alpha)?;
        lowering.binary("add", wire, beta).map(one)
    }),
    (&["prelu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let alpha = channel_factors(lowering, operation, "alpha", x)?;
        let scaled = lowering.binary("mul", x, alpha)?;
        let args = vec![x.into(), 0.0.into()];
        let kept = lowering.aten("aten::gt.Scalar_out", args, DType::Bool)?;
        lowering.select(kept, x, scaled).map(one)
    }),
    (&["relu6"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        lowering.clamped(x, Some(0.0), Some(6.0)).map(one)
    }),
    // `alpha · tanh(beta · x)`
    (&["scaled_tanh"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let (alpha, beta) = factors(lowering, operation)?;
        let wire = lowering.binary("mul", x, beta)?;
        let wire = lowering.function("tanh", wire)?;
        lowering.binary("mul", wire, alpha).map(one)
    }),
    (&["sigmoid_hard"], hard_sigmoid),
    (&["softplus"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        softplus(lowering, x).map(one)
    }),
    // `alpha · log(1 + exp(beta · x))` with factors for each channel.
    (&["softplus_parametric"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let alpha = channel_factors(lowering, operation, "alpha", x)?;
        let beta = channel_factors(lowering, operation, "beta", x)?;
        let wire = lowering.binary("mul", x, beta)?;
        let wire = softplus(lowering, wire)?;
        lowering.binary("mul", wire, alpha).map(one)
    }),
    // `x / (1 + |x|)`
    (&["softsign"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let size = lowering.function("abs", x)?;
        let size = lowering.binary("add", size, 1.0)?;
        lowering.binary("div", x, size).map(one)
    }),
    (&["thresholded_relu"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let alpha = lowering.float(operation, "alpha", 1.0)?;
        let kept = lowering.aten(
            "aten::ge.Scalar_out",
            vec![x.into(), alpha.into()],
            DType::Bool,
        )?;
        let zero = lowering.frame.builder.scalar(0.0, x.dtype, 0)?;
        let args = vec![kept.into(), x.into(), zero.into()];
        lowering.result(operation, "aten::where.self_out", args)
    }),
];

/// Returns the arguments `alpha` and `beta`.
fn factors(lowering: &CoremlLowering<'_, '_>, operation: &Operation) -> TractResult<(f64, f64)> {
    let factors = ["alpha", "beta"].map(|name| {
        let held = lowering.optional(operation, name)?;
        ensure!(held.is_some(), "missing argument `{name}`");
        lowering.float(operation, name, 0.0)
    });
    let [alpha, beta] = factors;
    Ok((alpha?, beta?))
}

fn leaky(lowering: &mut CoremlLowering<'_, '_>, x: Wire, alpha: f64) -> TractResult<Wire> {
    let args = vec![x.into(), alpha.into()];
    lowering.aten("aten::leaky_relu.out", args, DType::Float32)
}

/// Returns numbers for each channel, which is the second dimension.
fn channel_factors(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    name: &str,
    x: Wire,
) -> TractResult<Wire> {
    let wire = lowering.tensor(operation, name)?;
    let rank = lowering.shape(x)?.len();
    if lowering.shape(wire)?.is_empty() {
        return Ok(wire);
    }
    lowering.along(wire, 1, rank)
}

/// Computes `alpha · x + beta`, clamped to the range 0 to 1.
fn hard_sigmoid(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let alpha = lowering.float(operation, "alpha", 0.2)?;
    let beta = lowering.float(operation, "beta", 0.5)?;
    let float = DType::Float32;
    let x = lowering.aten("aten::mul.Scalar_out", vec![x.into(), alpha.into()], float)?;
    let args = vec![x.into(), beta.into(), CallArg::from(1)];
    let x = lowering.aten("aten::add.Scalar_out", args, float)?;
    let args = vec![x.into(), 0.0.into(), 1.0.into()];
    lowering.result(operation, "aten::clamp.out", args)
}

/// Computes `log(1 + exp(x))` without overflow: `max(x, 0) + log1p(exp(-|x|))`.
fn softplus(lowering: &mut CoremlLowering<'_, '_>, x: Wire) -> TractResult<Wire> {
    let float = DType::Float32;
    let mut apply = |name: &str, x: Wire| lowering.aten(name, vec![x.into()], float);
    let small = apply("aten::abs.out", x)?;
    let small = apply("aten::neg.out", small)?;
    let small = apply("aten::exp.out", small)?;
    let small = apply("aten::log1p.out", small)?;
    let large = apply("aten::relu.out", x)?;
    let args = vec![large.into(), small.into(), CallArg::from(1)];
    lowering.aten("aten::add.out", args, float)
}
