//! Elementwise functions, corrected where the library's fast kernels are inaccurate.
//!
//! The kernels of the logistic function and its derivatives never fall below 4.5e-7. Those of the
//! error function do not reach 1. All of them lose NaN. This module recomputes the elements outside
//! the range in which a kernel is accurate.

use half::f16;
use tract_linalg::multithread::par_chunks_mut;
use tract_linalg::routines::Func;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;

use crate::graph::corrections::mended::mended;
use pkgtool_kernels::float::InPlace;

/// Number of elements that are processed together: they stay in the nearest cache.
const CHUNK: usize = 1024;
/// Below this the fast logistic function has a relative error above a thousandth.
const MIN_FAST_LOGISTIC: f32 = -8.0;
/// Below this the fast error function has a relative error above a thousandth.
const MIN_FAST_ERF: f32 = 1.0 / 128.0;
/// Below this the fast approximation of the Gaussian unit loses the remaining digits.
const MIN_FAST_GELU: f32 = -2.0;
/// Beyond this a square, or a number a sixth larger, may overflow.
const LARGE: f32 = 1e9;
/// From here on the error function is 1 in float32.
const ERF_SATURATION: f32 = 4.0;

/// Returns the replacement of this operator of a plan, if it needs one.
pub(crate) fn settled(operator: &dyn TypedOp) -> Option<Box<dyn TypedOp>> {
    let element_wise = operator.as_op().downcast_ref::<ElementWiseOp>()?;
    let name = element_wise.0.name();
    if let Some(function) = correction_of(&name) {
        return Some(mended(operator, move |inner, context, inputs| {
            each_chunk(inner, context, inputs, function)
        }));
    }
    let (on_chunk, on_double): (InPlace, fn(f64) -> f64) = match name.as_str() {
        "Asinh" => (asinh, asinh_of_double),
        "Acosh" => (acosh, acosh_of_double),
        _ => return None,
    };
    Some(mended(operator, move |inner, context, inputs| {
        each_double(inner, context, inputs, on_chunk, on_double)
    }))
}

/// Returns the in-place implementation of a function by its name, for at most [`CHUNK`] float32
/// numbers. It computes the same as a plan. [`crate::graph::corrections::product`] handles reciprocals.
pub(crate) fn function_of(name: &str) -> Option<InPlace> {
    correction_of(name).or(match name {
        "Neg" => Some(|values| each(values, |value| -value)),
        "Abs" => Some(|values| each(values, f32::abs)),
        "Square" => Some(|values| each(values, |value| value * value)),
        "Sqrt" => Some(|values| each(values, f32::sqrt)),
        "Rsqrt" => Some(|values| each(values, |value| value.sqrt().recip())),
        _ => None,
    })
}

/// Returns the correction of a float32 function whose library kernel is inaccurate for some
/// numbers.
fn correction_of(name: &str) -> Option<InPlace> {
    Some(match name {
        "Sigmoid" => sigmoid,
        "Silu" => silu,
        "Erf" => erf,
        "HardSwish" => hard_swish,
        "GeluExact" => gelu,
        "GeluApproximate" => gelu_by_tanh,
        "Tanh" => tanh,
        _ => return None,
    })
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "all such functions have this signature"
)]
fn each(values: &mut [f32], function: impl Fn(f32) -> f32) -> Result<(), String> {
    for value in values {
        *value = function(*value);
    }
    Ok(())
}

/// Applies a function to a tensor of floats chunk by chunk. The library handles other tensors.
fn each_chunk(
    inner: &dyn TypedOp,
    context: &EvalContext,
    mut inputs: TVec<TValue>,
    function: InPlace,
) -> TractResult<TVec<TValue>> {
    let dtype = inputs[0].datum_type();
    if dtype != DatumType::F32 && dtype != DatumType::F16 {
        return inner.eval(context, inputs);
    }
    let mut tensor = inputs.remove(0).into_tensor();
    {
        let mut plain = tensor.try_as_plain_ram_mut()?;
        if dtype == DatumType::F32 {
            let values = plain.as_slice_mut::<f32>()?;
            let count = values.len();
            par_chunks_mut(values, 1, count, |_, part| {
                let mut chunks = part.chunks_mut(CHUNK);
                chunks.try_for_each(function).map_err(TractError::msg)
            })?;
        } else {
            let mut wide = [0.0; CHUNK];
            for part in plain.as_slice_mut::<f16>()?.chunks_mut(CHUNK) {
                let wide = &mut wide[..part.len()];
                for (to, from) in wide.iter_mut().zip(&*part) {
                    *to = from.to_f32();
                }
                function(wide).map_err(TractError::msg)?;
                for (to, from) in part.iter_mut().zip(wide) {
                    *to = f16::from_f32(*from);
                }
            }
        }
    }
    Ok(tvec!(tensor.into_tvalue()))
}

/// Applies a function to float64 numbers for which the library's overflows.
fn each_double(
    inner: &dyn TypedOp,
    context: &EvalContext,
    mut inputs: TVec<TValue>,
    on_chunk: InPlace,
    function: fn(f64) -> f64,
) -> TractResult<TVec<TValue>> {
    if inputs[0].datum_type() != DatumType::F64 {
        return each_chunk(inner, context, inputs, on_chunk);
    }
    let mut tensor = inputs.remove(0).into_tensor();
    let mut plain = tensor.try_as_plain_ram_mut()?;
    for value in plain.as_slice_mut::<f64>()? {
        *value = function(*value);
    }
    Ok(tvec!(tensor.into_tvalue()))
}

/// Runs `fast`, then recomputes the elements for which `is_good` is false. `is_good` runs for every
/// element; without branches it is vectorised.
fn patched(
    values: &mut [f32],
    fast: Func,
    is_good: impl Fn(f32) -> bool,
    exact: impl Fn(f32) -> f32,
) -> Result<(), String> {
    let told = |error: TractError| format!("{error:#}");
    let fast = fast.ew_f32().map_err(told)?;
    // No early exit, so that the whole chunk takes a few instructions.
    if values.iter().fold(true, |all, value| all & is_good(*value)) {
        return fast.run(values).map_err(told);
    }
    let mut before = [0.0; CHUNK];
    let before = &mut before[..values.len()];
    before.copy_from_slice(values);
    fast.run(values).map_err(told)?;
    for (value, before) in values.iter_mut().zip(before) {
        if !is_good(*before) {
            *value = exact(*before);
        }
    }
    Ok(())
}

/// Compares without a branch.
#[expect(clippy::needless_bitwise_bool, reason = "`&&` would branch")]
fn within(value: f32, least: f32, most: f32) -> bool {
    (value >= least) & (value <= most)
}

fn logistic(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

fn sigmoid(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Sigmoid,
        |value| value >= MIN_FAST_LOGISTIC,
        logistic,
    )
}

fn silu(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Silu,
        |value| within(value, MIN_FAST_LOGISTIC, f32::MAX),
        |value| value * logistic(value),
    )
}

fn tanh(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Tanh,
        |value| value.abs() <= MIN_FAST_LOGISTIC.abs(),
        f32::tanh,
    )
}

fn hard_swish(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Hardswish,
        |value| value.abs() <= LARGE,
        |value| value * (value / 6.0 + 0.5).clamp(0.0, 1.0),
    )
}

/// From here on adding 1 has no effect, and doubling may overflow.
const FAR: f64 = 1e100;

fn asinh_of_double(value: f64) -> f64 {
    if value.abs() > FAR {
        (value.abs().ln() + std::f64::consts::LN_2).copysign(value)
    } else {
        value.asinh()
    }
}

fn acosh_of_double(value: f64) -> f64 {
    if value > FAR {
        value.ln() + std::f64::consts::LN_2
    } else {
        value.acosh()
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "all such functions have this signature"
)]
fn asinh(values: &mut [f32]) -> Result<(), String> {
    in_double(values, asinh_of_double);
    Ok(())
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "all such functions have this signature"
)]
fn acosh(values: &mut [f32]) -> Result<(), String> {
    in_double(values, acosh_of_double);
    Ok(())
}

/// Computes in float64, because intermediate float32 results would overflow.
#[expect(clippy::cast_possible_truncation, reason = "the result is float32")]
fn in_double(values: &mut [f32], function: fn(f64) -> f64) {
    for value in values {
        *value = function(f64::from(*value)) as f32;
    }
}

fn erf(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Erf,
        |value| within(value.abs(), MIN_FAST_ERF, ERF_SATURATION),
        |value| {
            if value.abs() < MIN_FAST_ERF {
                // The next term is below one unit in the last place.
                let square = value * value;
                let series = 1.0 - square * (1.0 / 3.0 - square / 10.0);
                value * std::f32::consts::FRAC_2_SQRT_PI * series
            } else if value.is_nan() {
                value
            } else {
                value.signum()
            }
        },
    )
}

/// The error function as a summand of 1: small results need no relative accuracy.
fn erf_beside_one(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Erf,
        |value| value.abs() <= ERF_SATURATION,
        |value| {
            if value.is_nan() {
                value
            } else {
                value.signum()
            }
        },
    )
}

fn gelu(values: &mut [f32]) -> Result<(), String> {
    let mut scaled = [0.0; CHUNK];
    let scaled = &mut scaled[..values.len()];
    for (to, from) in scaled.iter_mut().zip(&*values) {
        *to = from * std::f32::consts::FRAC_1_SQRT_2;
    }
    erf_beside_one(scaled)?;
    for (value, erf) in values.iter_mut().zip(scaled) {
        *value = (*value * 0.5) * (*erf + 1.0);
    }
    Ok(())
}

/// The approximation of [`gelu`] by a hyperbolic tangent. Near -1 the tangent loses most digits.
fn gelu_by_tanh(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Gelu,
        |value| within(value, MIN_FAST_GELU, MIN_FAST_LOGISTIC.abs()),
        |value| {
            if value > 0.0 {
                return value;
            }
            let root = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
            let inner = root * (value + 0.044_715 * value * value * value);
            // Infinity times zero counts as zero here.
            if inner == f32::NEG_INFINITY {
                return -0.0;
            }
            value * logistic(2.0 * inner)
        },
    )
}
