//! Lowers sums, products, quotients, powers and bit operations.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::BinMiniOp;
use tract_onnx::tract_core::ops::math;

use super::super::builder::Wire;
use super::super::datum_type;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{broadcast_strides, floats, ints, places, tensor_of_floats, tensor_of_ints};
use super::promotion::{promoted, promoted_with_scalar, widened};
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::add.out", "aten::add.Scalar_out"], |call| {
        sum(call, SumKind::Add)
    }),
    (&["aten::sub.out", "aten::sub.Scalar_out"], |call| {
        sum(call, SumKind::Sub)
    }),
    (&["aten::rsub.Scalar_out"], |call| {
        sum(call, SumKind::Reverse)
    }),
    (&["aten::mul.out", "aten::mul.Scalar_out"], product),
    (&["aten::maximum.out"], |call| extreme(call, true)),
    (&["aten::minimum.out"], |call| extreme(call, false)),
    (&["aten::div.out", "aten::div.Scalar_out"], |call| {
        quotient(call, None)
    }),
    (
        &["aten::div.out_mode", "aten::div.Scalar_mode_out"],
        |call| {
            let mode = call.text(2)?;
            quotient(call, mode.as_deref())
        },
    ),
    (&["aten::floor_divide.out"], |call| {
        quotient(call, Some("floor"))
    }),
    (
        &["aten::remainder.Tensor_out", "aten::remainder.Scalar_out"],
        |call| {
            // For integers the runtime computes C's remainder, not PyTorch's.
            elementwise(call, |a, b| a - b * (a / b).floor(), c_remainder)
        },
    ),
    (
        &["aten::fmod.Tensor_out", "aten::fmod.Scalar_out"],
        |call| elementwise(call, |a, b| a % b, c_remainder),
    ),
    (&["aten::atan2.out"], |call| {
        float_elementwise(call, f64::atan2)
    }),
    (
        &[
            "aten::pow.Tensor_Scalar_out",
            "aten::pow.Tensor_Tensor_out",
            "aten::pow.Scalar_out",
        ],
        power,
    ),
    (
        &[
            "aten::bitwise_and.Tensor_out",
            "aten::bitwise_and.Scalar_out",
        ],
        |call| integer_elementwise(call, |a, b| a & b),
    ),
    (
        &["aten::bitwise_or.Tensor_out", "aten::bitwise_or.Scalar_out"],
        |call| integer_elementwise(call, |a, b| a | b),
    ),
    (
        &[
            "aten::bitwise_xor.Tensor_out",
            "aten::bitwise_xor.Scalar_out",
        ],
        |call| integer_elementwise(call, |a, b| a ^ b),
    ),
    (
        &[
            "aten::bitwise_left_shift.Tensor_out",
            "aten::bitwise_left_shift.Tensor_Scalar_out",
        ],
        |call| integer_elementwise(call, shift_left),
    ),
    (
        &[
            "aten::bitwise_right_shift.Tensor_out",
            "aten::bitwise_right_shift.Tensor_Scalar_out",
        ],
        |call| integer_elementwise(call, shift_right),
    ),
];

/// Returns whether an argument is a tensor.
fn takes_tensor(call: &OperatorCall<'_, '_>, at: usize) -> TractResult<bool> {
    Ok(call.body(at)?.tensor().is_some())
}

/// Returns two operands in their common dtype.
fn operands(call: &mut OperatorCall<'_, '_>) -> TractResult<(OutletId, OutletId, DType)> {
    if !takes_tensor(call, 0)? {
        let kind = call.scalar_kind(0)?;
        let b = call.tensor(1)?;
        let dtype = widened(promoted_with_scalar(b.dtype, kind));
        let rank = call.rank(b)?;
        let a = call.scalar(0, dtype, rank)?;
        return Ok((a, call.tensor_as(1, dtype)?, dtype));
    }
    let a = call.tensor(0)?;
    if takes_tensor(call, 1)? {
        let b = call.tensor(1)?;
        let dtype = widened(promoted(a.dtype, b.dtype));
        return Ok((call.tensor_as(0, dtype)?, call.tensor_as(1, dtype)?, dtype));
    }
    let kind = call.scalar_kind(1)?;
    let dtype = widened(promoted_with_scalar(a.dtype, kind));
    let rank = call.rank(a)?;
    let b = call.scalar(1, dtype, rank)?;
    Ok((call.tensor_as(0, dtype)?, b, dtype))
}

/// Converts booleans to int64, the dtype in which they are counted.
fn as_countable(
    call: &mut OperatorCall<'_, '_>,
    outlet: OutletId,
    dtype: DType,
) -> TractResult<(OutletId, DType)> {
    if dtype != DType::Bool {
        return Ok((outlet, dtype));
    }
    let wire = call.builder().cast(Wire { outlet, dtype }, DType::Int64)?;
    Ok((wire.outlet, DType::Int64))
}

fn output(call: &mut OperatorCall<'_, '_>, outlet: OutletId, dtype: DType) -> TractResult<()> {
    call.set_result(Wire { outlet, dtype })
}

#[derive(Clone, Copy)]
enum SumKind {
    Add,
    Sub,
    Reverse,
}

/// `a ± alpha · b`
fn sum(call: &mut OperatorCall<'_, '_>, kind: SumKind) -> TractResult<()> {
    let (a, b, dtype) = operands(call)?;
    let (a, _) = as_countable(call, a, dtype)?;
    let (b, dtype) = as_countable(call, b, dtype)?;
    let (a, b) = match kind {
        SumKind::Reverse => (b, a),
        _ => (a, b),
    };
    // The factor applies to the second argument, or to the first one of a reversed difference.
    let is_one = call.double(2).is_ok_and(|alpha| alpha == 1.0);
    let scaled = if is_one {
        b
    } else {
        let rank = call.frame.builder.rank(b)?;
        let alpha = call.scalar(2, dtype, rank)?;
        wrapping(
            call,
            b,
            alpha,
            dtype,
            || Box::new(math::Mul),
            i64::wrapping_mul,
        )?
    };
    let minus = !matches!(kind, SumKind::Add);
    let op: fn() -> Box<dyn BinMiniOp> = match kind {
        SumKind::Add => || Box::new(math::Add),
        _ => || Box::new(math::Sub),
    };
    let outlet = wrapping(call, a, scaled, dtype, op, move |a, b| {
        if minus {
            a.wrapping_sub(b)
        } else {
            a.wrapping_add(b)
        }
    })?;
    output(call, outlet, dtype)
}

/// Computes floats with tract, and integers with wrapping arithmetic; tract's integer operators may
/// panic on overflow.
fn wrapping(
    call: &mut OperatorCall<'_, '_>,
    a: OutletId,
    b: OutletId,
    dtype: DType,
    op: fn() -> Box<dyn BinMiniOp>,
    int: impl Fn(i64, i64) -> i64 + Send + Sync + 'static,
) -> TractResult<OutletId> {
    if dtype.is_float() {
        return call.binary(op(), a, b);
    }
    elementwise_kernel(call, a, b, dtype, |a, _| a, int)
}

fn product(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let (a, b, dtype) = operands(call)?;
    if dtype.is_float() && (is_zero(call, a)? || is_zero(call, b)?) {
        // tract replaces such a product by 0, whatever the sign or the other operand is.
        return elementwise_of(call, a, b, dtype, |a, b| a * b, |a, _| a);
    }
    let (a, _) = as_countable(call, a, dtype)?;
    let (b, dtype) = as_countable(call, b, dtype)?;
    let outlet = wrapping(call, a, b, dtype, || Box::new(math::Mul), i64::wrapping_mul)?;
    output(call, outlet, dtype)
}

fn is_zero(call: &OperatorCall<'_, '_>, outlet: OutletId) -> TractResult<bool> {
    let known = call.frame.builder.constant_value(outlet)?;
    known.map_or(Ok(false), |known| known.is_all_zero())
}

/// Computes the larger or smaller element. tract's operators lose NaN, so floats that may be NaN
/// use a separate kernel.
fn extreme(call: &mut OperatorCall<'_, '_>, largest: bool) -> TractResult<()> {
    let (a, b, dtype) = operands(call)?;
    if dtype.is_float() {
        return elementwise_of(
            call,
            a,
            b,
            dtype,
            move |a, b| {
                if a.is_nan() || b.is_nan() {
                    f64::NAN
                } else if largest {
                    a.max(b)
                } else {
                    a.min(b)
                }
            },
            |a, _| a,
        );
    }
    let (a, _) = as_countable(call, a, dtype)?;
    let (b, dtype) = as_countable(call, b, dtype)?;
    let op = extreme_of(largest);
    let outlet = call.binary(op, a, b)?;
    output(call, outlet, dtype)
}

/// Returns tract's operator for the larger or smaller of two numbers.
pub(super) fn extreme_of(largest: bool) -> Box<dyn BinMiniOp> {
    if largest {
        Box::new(math::Max)
    } else {
        Box::new(math::Min)
    }
}

fn quotient(call: &mut OperatorCall<'_, '_>, mode: Option<&str>) -> TractResult<()> {
    match mode {
        None => {
            let (a, b, dtype) = operands(call)?;
            let to = if dtype.is_float() {
                dtype
            } else {
                DType::Float32
            };
            let builder = &mut call.frame.builder;
            let a = builder.cast(Wire { outlet: a, dtype }, to)?;
            let b = builder.cast(Wire { outlet: b, dtype }, to)?;
            // For a constant divisor tract multiplies by its inverse, which loses the sign of 0.
            let known = builder.constant_value(b.outlet)?.is_some();
            if known {
                return elementwise_of(call, a.outlet, b.outlet, to, |a, b| a / b, |a, _| a);
            }
            let outlet = builder.binary(Box::new(math::Div), a.outlet, b.outlet)?;
            output(call, outlet, to)
        }
        Some("floor") => elementwise(call, floor_quotient, |a, b| {
            let (quotient, rest) = (c_quotient(a, b), c_remainder(a, b));
            if rest != 0 && (rest < 0) != (b < 0) {
                quotient - 1
            } else {
                quotient
            }
        }),
        Some("trunc") => elementwise(call, |a, b| (a / b).trunc(), c_quotient),
        Some(other) => bail!("unsupported rounding mode `{other}`"),
    }
}

/// Computes `floor(a / b)` as the runtime does: exact if the quotient is exact, infinite for
/// division by 0.
fn floor_quotient(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return f64::INFINITY.copysign(a);
    }
    let rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0.0_f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 {
        floor + 1.0
    } else {
        floor
    }
}

/// Division of integers by 0 is undefined. The runtime aborts; here the result is 0.
fn c_quotient(a: i64, b: i64) -> i64 {
    a.checked_div(b).unwrap_or(if b == 0 { 0 } else { a })
}

fn c_remainder(a: i64, b: i64) -> i64 {
    a.checked_rem(b).unwrap_or(0)
}

fn power(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let squares = !takes_tensor(call, 1)? && call.double(1).is_ok_and(|exponent| exponent == 2.0);
    if squares && takes_tensor(call, 0)? {
        let (a, _, dtype) = operands(call)?;
        let (a, dtype) = as_countable(call, a, dtype)?;
        let outlet = wrapping(call, a, a, dtype, || Box::new(math::Mul), i64::wrapping_mul)?;
        return output(call, outlet, dtype);
    }
    elementwise(call, f64::powf, |a, b| match u32::try_from(b) {
        Ok(exponent) => a.wrapping_pow(exponent),
        Err(_) => match a {
            1 => 1,
            -1 => {
                if b % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        },
    })
}

/// Computes an operator of two operands that tract lacks.
fn elementwise(
    call: &mut OperatorCall<'_, '_>,
    float: impl Fn(f64, f64) -> f64 + Send + Sync + 'static,
    int: impl Fn(i64, i64) -> i64 + Send + Sync + 'static,
) -> TractResult<()> {
    let (a, b, dtype) = operands(call)?;
    elementwise_of(call, a, b, dtype, float, int)
}

fn float_elementwise(
    call: &mut OperatorCall<'_, '_>,
    float: fn(f64, f64) -> f64,
) -> TractResult<()> {
    let (a, b, dtype) = operands(call)?;
    let to = if dtype.is_float() {
        dtype
    } else {
        DType::Float32
    };
    let a = call.frame.builder.cast(Wire { outlet: a, dtype }, to)?;
    let b = call.frame.builder.cast(Wire { outlet: b, dtype }, to)?;
    elementwise_of(call, a.outlet, b.outlet, to, float, |a, _| a)
}

fn elementwise_of(
    call: &mut OperatorCall<'_, '_>,
    a: OutletId,
    b: OutletId,
    dtype: DType,
    float: impl Fn(f64, f64) -> f64 + Send + Sync + 'static,
    int: impl Fn(i64, i64) -> i64 + Send + Sync + 'static,
) -> TractResult<()> {
    let outlet = elementwise_kernel(call, a, b, dtype, float, int)?;
    output(call, outlet, dtype)
}

fn elementwise_kernel(
    call: &mut OperatorCall<'_, '_>,
    a: OutletId,
    b: OutletId,
    dtype: DType,
    float: impl Fn(f64, f64) -> f64 + Send + Sync + 'static,
    int: impl Fn(i64, i64) -> i64 + Send + Sync + 'static,
) -> TractResult<OutletId> {
    let shape = call.frame.builder.broadcast_shape(&[a, b])?;
    let to = datum_type(dtype);
    let whole = !dtype.is_float();
    let wire = call.kernel("Pairs", dtype, &shape, &[a, b], move |inputs| {
        let (a, b) = (&inputs[0], &inputs[1]);
        let shape = tract_onnx::tract_core::broadcast::multi_broadcast(&[a.shape(), b.shape()])?;
        let left = places(&shape, &broadcast_strides(a.shape(), &shape));
        let right = places(&shape, &broadcast_strides(b.shape(), &shape));
        let places = left.into_iter().zip(right);
        if whole {
            let (a, b) = (ints(a)?, ints(b)?);
            let mut values = Vec::with_capacity(a.len());
            for (left, right) in places {
                values.push(int(a[left], b[right]));
            }
            return tensor_of_ints(&shape, &values, to);
        }
        let (a, b) = (floats(a)?, floats(b)?);
        let values: Vec<f64> = places
            .map(|(left, right)| float(a[left], b[right]))
            .collect();
        tensor_of_floats(&shape, &values, to)
    })?;
    Ok(wire.outlet)
}

fn integer_elementwise(
    call: &mut OperatorCall<'_, '_>,
    int: fn(i64, i64) -> i64,
) -> TractResult<()> {
    elementwise(call, |a, _| a, int)
}

fn shift_left(a: i64, b: i64) -> i64 {
    u32::try_from(b)
        .ok()
        .and_then(|b| a.checked_shl(b))
        .unwrap_or(0)
}

fn shift_right(a: i64, b: i64) -> i64 {
    let all = if a < 0 { -1 } else { 0 };
    u32::try_from(b)
        .ok()
        .and_then(|b| a.checked_shr(b))
        .unwrap_or(all)
}
