//! Lowers functions of single elements.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::math;
use tract_onnx::tract_core::ops::nn::gelu_exact::gelu_exact;
use tract_onnx::tract_core::ops::nn::{leaky_relu, sigmoid};

use super::super::builder::Wire;
use super::super::datum_type;
use super::super::pointwise::Pointwise;
use super::arithmetic::extreme_of;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{floats, ints, tensor_of_floats, tensor_of_ints};
use super::promotion::{promoted, widened};
use crate::graph::error_function::erf;
use crate::graph::table::{look_up, names_of};
use crate::tensor::DType;

/// A function of floats: tract's operator for float32, if it is exact, and the function.
type FloatFunction = (Option<fn() -> ElementWiseOp>, fn(f64) -> f64);

/// Functions whose results are floats.
const FUNCTIONS: [(&str, FloatFunction); 23] = [
    ("aten::exp.out", (Some(math::exp), f64::exp)),
    ("aten::log.out", (Some(math::ln), f64::ln)),
    ("aten::sqrt.out", (Some(math::sqrt), f64::sqrt)),
    ("aten::rsqrt.out", (Some(math::rsqrt), |x| 1.0 / x.sqrt())),
    ("aten::reciprocal.out", (None, |x| 1.0 / x)),
    ("aten::sin.out", (Some(math::sin), f64::sin)),
    ("aten::cos.out", (Some(math::cos), f64::cos)),
    ("aten::tan.out", (Some(math::tan), f64::tan)),
    ("aten::asin.out", (Some(math::asin), f64::asin)),
    ("aten::acos.out", (Some(math::acos), f64::acos)),
    ("aten::atan.out", (Some(math::atan), f64::atan)),
    ("aten::sinh.out", (None, f64::sinh)),
    ("aten::cosh.out", (None, f64::cosh)),
    ("aten::tanh.out", (Some(|| Pointwise::Tanh.op()), f64::tanh)),
    ("aten::asinh.out", (None, f64::asinh)),
    ("aten::acosh.out", (None, f64::acosh)),
    ("aten::atanh.out", (None, f64::atanh)),
    ("aten::expm1.out", (None, f64::exp_m1)),
    ("aten::log1p.out", (None, f64::ln_1p)),
    ("aten::log2.out", (None, f64::log2)),
    ("aten::log10.out", (None, f64::log10)),
    ("aten::erf.out", (Some(math::erf), erf)),
    (
        "aten::sigmoid.out",
        (Some(sigmoid), |x| 1.0 / (1.0 + (-x).exp())),
    ),
];
const FUNCTION_NAMES: &[&str] = &names_of(&FUNCTIONS);

/// A function that keeps the dtype: tract's operator for float32, and the function of floats and of
/// integers.
type KeepingFunction = (fn() -> ElementWiseOp, fn(f64) -> f64, fn(i64) -> i64);

/// Functions that keep the dtype.
const KEEPING_FUNCTIONS: [(&str, KeepingFunction); 5] = [
    ("aten::abs.out", (math::abs, f64::abs, i64::wrapping_abs)),
    ("aten::neg.out", (math::neg, |x| -x, i64::wrapping_neg)),
    ("aten::floor.out", (math::floor, f64::floor, |x| x)),
    ("aten::ceil.out", (math::ceil, f64::ceil, |x| x)),
    (
        "aten::round.out",
        (math::round_half_to_even, f64::round_ties_even, |x| x),
    ),
];
const KEEPING_NAMES: &[&str] = &names_of(&KEEPING_FUNCTIONS);

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (KEEPING_NAMES, |call| {
        let function = look_up(&KEEPING_FUNCTIONS, call.name).context("unsupported operator")?;
        same(call, function)
    }),
    (FUNCTION_NAMES, |call| {
        let function = look_up(&FUNCTIONS, call.name).context("unsupported operator")?;
        apply(call, function)
    }),
    (&["aten::bitwise_not.out"], bitwise_not),
    (&["aten::sign.out"], |call| {
        keep_dtype_kernel(call, sign, i64::signum)
    }),
    (&["aten::trunc.out"], |call| {
        keep_dtype_kernel(call, f64::trunc, |x| x)
    }),
    (&["aten::round.decimals_out"], |call| {
        let decimals = i32::try_from(call.int(1)?)?;
        let scale = 10_f64.powi(decimals.abs());
        let up = decimals >= 0;
        map(call, 2, move |x| {
            if up {
                (x * scale).round_ties_even() / scale
            } else {
                (x / scale).round_ties_even() * scale
            }
        })
    }),
    (&["aten::logit.out"], logit),
    (&["aten::relu.out"], |call| {
        clamped(call, Some(0.0), None, 1)
    }),
    (&["aten::clamp.out"], |call| {
        let (least, most) = (call.optional_double(1)?, call.optional_double(2)?);
        clamped(call, least, most, 3)
    }),
    (&["aten::hardtanh.out"], |call| {
        let (least, most) = (call.double(1)?, call.double(2)?);
        clamped(call, Some(least), Some(most), 3)
    }),
    (&["aten::clamp.Tensor_out"], clamped_by_tensors),
    (&["aten::leaky_relu.out"], leaky),
    (&["aten::elu.out"], elu),
    (&["aten::gelu.out"], gelu),
    (&["aten::hardswish.out"], |call| {
        map(call, 1, |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0)
    }),
    (&["aten::hardsigmoid.out"], |call| {
        map(call, 1, |x| (x + 3.0).clamp(0.0, 6.0) / 6.0)
    }),
    (&["aten::silu.out"], |call| {
        map(call, 1, |x| x / (1.0 + (-x).exp()))
    }),
];

fn bitwise_not(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let bool = input.dtype == DType::Bool;
    mapped(
        call,
        input,
        1,
        |x| x,
        move |x| if bool { i64::from(x == 0) } else { !x },
    )
}

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() {
        x
    } else {
        x.signum()
    }
}

/// Applies a function that keeps the dtype.
fn same(call: &mut OperatorCall<'_, '_>, (op, float, int): KeepingFunction) -> TractResult<()> {
    let input = call.tensor(0)?;
    if widened(input.dtype) == DType::Float32 {
        let outlet = call.frame.builder.unary(op(), input.outlet)?;
        return call.set_output(1, Wire::float(outlet));
    }
    mapped(call, input, 1, float, int)
}

fn keep_dtype_kernel(
    call: &mut OperatorCall<'_, '_>,
    float: fn(f64) -> f64,
    int: fn(i64) -> i64,
) -> TractResult<()> {
    let input = call.tensor(0)?;
    mapped(call, input, 1, float, int)
}

/// Applies a function whose result is a float.
fn apply(call: &mut OperatorCall<'_, '_>, (op, float): FloatFunction) -> TractResult<()> {
    let Wire { outlet, dtype } = float_input(call)?;
    match op {
        Some(op) if dtype == DType::Float32 => {
            let outlet = call.frame.builder.unary(op(), outlet)?;
            call.set_output(1, Wire { outlet, dtype })
        }
        _ => mapped(call, Wire { outlet, dtype }, 1, float, |x| x),
    }
}

/// Returns the first argument as floats: float64 or float32.
fn float_input(call: &mut OperatorCall<'_, '_>) -> TractResult<Wire> {
    let dtype = match call.tensor(0)?.dtype {
        DType::Float64 => DType::Float64,
        _ => DType::Float32,
    };
    Ok(Wire::new(call.tensor_as(0, dtype)?, dtype))
}

/// Applies a function of floats to each element; `out` is the position of the output.
fn map(
    call: &mut OperatorCall<'_, '_>,
    out: usize,
    float: impl Fn(f64) -> f64 + Send + Sync + 'static,
) -> TractResult<()> {
    let input = float_input(call)?;
    mapped(call, input, out, float, |x| x)
}

fn mapped(
    call: &mut OperatorCall<'_, '_>,
    input: Wire,
    out: usize,
    float: impl Fn(f64) -> f64 + Send + Sync + 'static,
    int: impl Fn(i64) -> i64 + Send + Sync + 'static,
) -> TractResult<()> {
    let dtype = widened(input.dtype);
    let to = datum_type(dtype);
    let shape = call.shape(input)?;
    let wire = call.kernel("Map", dtype, &shape, &[input.outlet], move |inputs| {
        let input = &inputs[0];
        if to.is_float() {
            let values: Vec<f64> = floats(input)?.into_iter().map(&float).collect();
            return tensor_of_floats(input.shape(), &values, to);
        }
        let values: Vec<i64> = ints(input)?.into_iter().map(&int).collect();
        tensor_of_ints(input.shape(), &values, to)
    })?;
    call.set_output(out, wire)
}

fn logit(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let eps = call.optional_double(1)?;
    map(call, 2, move |x| {
        let x = eps.map_or(x, |eps| x.clamp(eps, 1.0 - eps));
        (x / (1.0 - x)).ln()
    })
}

fn clamped(
    call: &mut OperatorCall<'_, '_>,
    least: Option<f64>,
    most: Option<f64>,
    out: usize,
) -> TractResult<()> {
    let input = call.tensor(0)?;
    let to = call.out_dtype(out)?;
    let dtype = widened(promoted(input.dtype, to));
    let mut outlet = call.tensor_as(0, dtype)?;
    let rank = call.rank(input)?;
    if dtype == DType::Float32 {
        #[expect(clippy::cast_possible_truncation, reason = "bounds of float32")]
        let bound = |bound: Option<f64>, absent: f32| bound.map_or(absent, |bound| bound as f32);
        let clamp = Pointwise::Clamp {
            least: bound(least, f32::NEG_INFINITY),
            most: bound(most, f32::INFINITY),
        };
        let outlet = call.frame.builder.unary(clamp.op(), outlet)?;
        return call.set_output(out, Wire { outlet, dtype });
    }
    for (bound, largest) in [(least, true), (most, false)] {
        let Some(bound) = bound else { continue };
        let bound = call.frame.builder.scalar(bound, dtype, rank)?.outlet;
        let op = extreme_of(largest);
        outlet = call.binary(op, outlet, bound)?;
    }
    call.set_output(out, Wire { outlet, dtype })
}

fn clamped_by_tensors(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let dtype = widened(call.out_dtype(3)?);
    let mut outlet = call.tensor_as(0, dtype)?;
    for (at, largest) in [(1, true), (2, false)] {
        if call.is_none(at)? {
            continue;
        }
        let bound = call.tensor_as(at, dtype)?;
        let op = extreme_of(largest);
        outlet = call.binary(op, outlet, bound)?;
    }
    call.set_output(3, Wire { outlet, dtype })
}

#[expect(clippy::cast_possible_truncation, reason = "a slope is a float32")]
fn leaky(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let slope = call.double(1)?;
    let input = call.tensor_as(0, DType::Float32)?;
    let op = leaky_relu(slope as f32);
    let outlet = call.frame.builder.unary(op, input)?;
    call.set_output(2, Wire::float(outlet))
}

fn elu(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let (alpha, scale, input_scale) = (call.double(1)?, call.double(2)?, call.double(3)?);
    map(call, 4, move |x| {
        if x > 0.0 {
            scale * x
        } else {
            scale * alpha * (x * input_scale).exp_m1()
        }
    })
}

fn gelu(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    if call.text(1)?.as_deref() == Some("tanh") {
        let factor = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
        return map(call, 2, move |x| {
            0.5 * x * (1.0 + (factor * (x + 0.044_715 * x * x * x)).tanh())
        });
    }
    let input = call.tensor_as(0, DType::Float32)?;
    let outlet = call.frame.builder.unary(gelu_exact(), input)?;
    call.set_output(2, Wire::float(outlet))
}
