//! Functions of one number. The library's fast kernels for the logistic function and what is made of it
//! have a floor of 4.5e-7, those for the error function do not come to an end at 1, and NaN is lost in
//! them: what is out of the range in which they are good is computed again.

use half::f16;
use tract_linalg::multithread::par_chunks_mut;
use tract_linalg::routines::Func;
use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_hir::internal::*;

use super::mended::mended;
use crate::engine::tract::kernel::Kernel;
use crate::kernels::float::InPlace;

type Built = TractResult<(Box<dyn InferenceOp>, Vec<String>)>;

/// Elements that are looked at together: they stay in the nearest cache.
const CHUNK: usize = 1024;
/// Below this the fast logistic function is off by more than a thousandth of its value.
const LOW: f32 = -8.0;
/// Below this the fast error function is off by more than a thousandth of its value.
const TINY: f32 = 1.0 / 128.0;
/// Below this the fast approximation of the Gaussian unit loses what is left.
const NEAR: f32 = -2.0;
/// Beyond this a square, or a sixth more, may overflow.
const LARGE: f32 = 1e9;
/// From here on the error function is 1 in single precision.
const SATURATED: f32 = 4.0;

/// What stands in the place of this operator of a plan, if anything does.
pub(super) fn settled(operator: &dyn TypedOp) -> Option<Box<dyn TypedOp>> {
    let element_wise = operator.as_op().downcast_ref::<ElementWiseOp>()?;
    let name = element_wise.0.name();
    if let Some(function) = known(&name) {
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

/// What computes a function of this name in place, [`CHUNK`] numbers of float32 at most, as a plan does. A reciprocal
/// is looked at by itself ([`super::product`]).
pub(super) fn function_of(name: &str) -> Option<InPlace> {
    known(name).or(match name {
        "Neg" => Some(|values| each(values, |value| -value)),
        "Abs" => Some(|values| each(values, f32::abs)),
        "Square" => Some(|values| each(values, |value| value * value)),
        "Sqrt" => Some(|values| each(values, f32::sqrt)),
        "Rsqrt" => Some(|values| each(values, |value| value.sqrt().recip())),
        _ => None,
    })
}

/// The functions of float32 that the library's kernels are not good at everywhere.
fn known(name: &str) -> Option<InPlace> {
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

#[expect(clippy::unnecessary_wraps, reason = "as of the others")]
fn each(values: &mut [f32], function: impl Fn(f32) -> f32) -> Result<(), String> {
    for value in values {
        *value = function(*value);
    }
    Ok(())
}

/// Applies a function to a tensor of floats chunk by chunk; other tensors are the library's matter.
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

/// Applies a function of ours to numbers in double precision, where the library's overflows.
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

/// Runs `fast`, then computes again what lies where `is_good` does not hold, which is asked of every
/// element: conditions without branches are tried on several at once.
fn patched(
    values: &mut [f32],
    fast: Func,
    is_good: impl Fn(f32) -> bool,
    exact: impl Fn(f32) -> f32,
) -> Result<(), String> {
    let told = |error: TractError| format!("{error:#}");
    let fast = fast.ew_f32().map_err(told)?;
    // No early end: the whole chunk in a few instructions.
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

/// Without a branch.
#[expect(clippy::needless_bitwise_bool, reason = "`&&` has one")]
fn within(value: f32, least: f32, most: f32) -> bool {
    (value >= least) & (value <= most)
}

fn logistic(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

fn sigmoid(values: &mut [f32]) -> Result<(), String> {
    patched(values, Func::Sigmoid, |value| value >= LOW, logistic)
}

fn silu(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Silu,
        |value| within(value, LOW, f32::MAX),
        |value| value * logistic(value),
    )
}

fn tanh(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Tanh,
        |value| value.abs() <= LOW.abs(),
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

/// From here on one more or less is not seen, and twice as much may overflow.
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

#[expect(clippy::unnecessary_wraps, reason = "as of the others")]
fn asinh(values: &mut [f32]) -> Result<(), String> {
    in_double(values, asinh_of_double);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "as of the others")]
fn acosh(values: &mut [f32]) -> Result<(), String> {
    in_double(values, acosh_of_double);
    Ok(())
}

/// What overflows on the way in single precision does not in double.
#[expect(clippy::cast_possible_truncation, reason = "it is of that precision")]
fn in_double(values: &mut [f32], function: fn(f64) -> f64) {
    for value in values {
        *value = function(f64::from(*value)) as f32;
    }
}

fn erf(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Erf,
        |value| within(value.abs(), TINY, SATURATED),
        |value| {
            if value.abs() < TINY {
                // The next term is less than a unit in the last place.
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

/// The error function to be added to one: small numbers need not be right by themselves.
fn erf_beside_one(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Erf,
        |value| value.abs() <= SATURATED,
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

/// The approximation of [`gelu`] by a hyperbolic tangent; where that comes near -1 little is left of it.
fn gelu_by_tanh(values: &mut [f32]) -> Result<(), String> {
    patched(
        values,
        Func::Gelu,
        |value| within(value, NEAR, LOW.abs()),
        |value| {
            if value > 0.0 {
                return value;
            }
            let root = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
            let inner = root * (value + 0.044_715 * value * value * value);
            // An infinity times nothing is nothing here.
            if inner == f32::NEG_INFINITY {
                return -0.0;
            }
            value * logistic(2.0 * inner)
        },
    )
}

/// Builds `Shrink`, whose bias the library rounds to the input's dtype.
pub(super) fn shrink(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let bias = node.get_attr_opt("bias")?.unwrap_or(0.0);
    let lambda = node.get_attr_opt("lambd")?.unwrap_or(0.5);
    Ok(built("Shrink", [bias, lambda], |value, [bias, lambda]| {
        if value < -lambda {
            value + bias
        } else if value > lambda {
            value - bias
        } else {
            0.0
        }
    }))
}

/// Builds `Celu`, which the library does not multiply by `alpha` and which loses NaN there.
pub(super) fn celu(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let alpha = node.get_attr_opt("alpha")?.unwrap_or(1.0);
    Ok(built("Celu", [alpha, 0.0], |value, [alpha, _]| {
        if value > 0.0 || value.is_nan() {
            value
        } else {
            alpha * (value / alpha).exp_m1()
        }
    }))
}

/// Builds `Mish`, whose logarithm of one and a little loses the little. The hyperbolic tangent of the
/// logarithm of `1 + e` is `e (e + 2) / (e (e + 2) + 2)`.
#[expect(clippy::unnecessary_wraps, reason = "what a builder is")]
pub(super) fn mish(_: &ParsingContext<'_>, _: &NodeProto) -> Built {
    Ok(built("Mish", [0.0; 2], |value, _| {
        let exponent = value.min(40.0).exp();
        let product = exponent * (exponent + 2.0);
        value * (product / (product + 2.0))
    }))
}

/// Builds `Softsign`, which the library computes by a reciprocal: of the largest numbers there is none.
#[expect(clippy::unnecessary_wraps, reason = "what a builder is")]
pub(super) fn softsign(_: &ParsingContext<'_>, _: &NodeProto) -> Built {
    Ok(built("Softsign", [0.0; 2], |value, _| {
        value / (1.0 + value.abs())
    }))
}

/// Builds `Selu`, whose exponential less one loses what is small.
pub(super) fn selu(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let alpha = node.get_attr_opt("alpha")?.unwrap_or(1.673_263_2);
    let gamma = node.get_attr_opt("gamma")?.unwrap_or(1.050_701);
    Ok(built("Selu", [alpha, gamma], |value, [alpha, gamma]| {
        if value > 0.0 || value.is_nan() {
            gamma * value
        } else {
            gamma * alpha * value.exp_m1()
        }
    }))
}

type Function = fn(f64, [f64; 2]) -> f64;

fn built(
    name: &'static str,
    parameters: [f32; 2],
    function: Function,
) -> (Box<dyn InferenceOp>, Vec<String>) {
    let mapped = Mapped {
        name,
        parameters: parameters.map(f64::from),
        function,
    };
    (expand(mapped), vec![])
}

/// A function of each element, in double precision.
#[derive(Debug, Clone)]
struct Mapped {
    name: &'static str,
    parameters: [f64; 2],
    function: Function,
}

impl Expansion for Mapped {
    fn name(&self) -> StaticName {
        self.name.into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        solver: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        check_input_arity(inputs, 1)?;
        check_output_arity(outputs, 1)?;
        solver.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        solver.equals(&inputs[0].shape, &outputs[0].shape)
    }

    fn wire(
        &self,
        prefix: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let Self {
            parameters,
            function,
            ..
        } = *self;
        let dtype = fact.datum_type;
        let kernel = Kernel::new(self.name, tvec!(fact), move |inputs| {
            let mut values = inputs[0].cast_to::<f64>()?.into_owned();
            values
                .try_as_plain_ram_mut()?
                .as_slice_mut::<f64>()?
                .iter_mut()
                .for_each(|value| *value = function(*value, parameters));
            Ok(tvec!(values.cast_to_dt(dtype)?.into_owned()))
        });
        model.wire_node(prefix, kernel, inputs)
    }
}
