//! Lowers integer arithmetic outside of tensors: sizes, and numbers read from tensors.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::BinMiniOp;
use tract_onnx::tract_core::ops::logic::{comp_eq, comp_gt, comp_gte, comp_lt, comp_lte};
use tract_onnx::tract_core::ops::math;

use super::super::builder::Wire;
use super::super::frame::{FrameSlot, RuntimeNumber};
use super::call::{LoweringTable, OperatorCall};
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::sym_size.int"], |call| {
        let input = call.tensor(0)?;
        let shape = call.shape(input)?;
        let axis = call.axis(1, shape.len())?;
        set(call, FrameSlot::Int(shape[axis].clone()))
    }),
    (&["aten::sym_numel"], |call| {
        let input = call.tensor(0)?;
        let count = call.shape(input)?.into_iter().product::<TDim>();
        set(call, FrameSlot::Int(count.reduce()))
    }),
    (&["aten::_local_scalar_dense"], read),
    (&["executorch_prim::add.Scalar"], |call| sum(call, false)),
    (&["executorch_prim::sub.Scalar"], |call| sum(call, true)),
    (&["executorch_prim::mul.Scalar"], |call| {
        two(
            call,
            |a, b| Some(a * b),
            |a, b| a * b,
            || Box::new(math::Mul),
        )
    }),
    (
        &[
            "executorch_prim::floordiv.Scalar",
            "executorch_prim::floordiv.int",
        ],
        |call| {
            two(
                call,
                |a, b| divided(a, &b),
                |a, b| (a / b).floor(),
                || Box::new(math::Div),
            )
        },
    ),
    (
        &["executorch_prim::mod.Scalar", "executorch_prim::mod.int"],
        |call| {
            two(
                call,
                remainder,
                |a, b| a - b * (a / b).floor(),
                || Box::new(math::Rem),
            )
        },
    ),
    (&["executorch_prim::sym_max.Scalar"], |call| {
        two(
            call,
            |a, b| fold_known(a, &b, i64::max),
            f64::max,
            || Box::new(math::Max),
        )
    }),
    (&["executorch_prim::sym_min.Scalar"], |call| {
        two(
            call,
            |a, b| fold_known(a, &b, i64::min),
            f64::min,
            || Box::new(math::Min),
        )
    }),
    (&["executorch_prim::truediv.Scalar"], |call| {
        let quotient = call.double(0)? / call.double(1)?;
        set(call, FrameSlot::Double(quotient))
    }),
    (&["executorch_prim::eq.Scalar"], |call| {
        compared(call, |a, b| a == b, comp_eq)
    }),
    (&["executorch_prim::lt.Scalar"], |call| {
        compared(call, |a, b| a < b, comp_lt)
    }),
    (&["executorch_prim::le.Scalar"], |call| {
        compared(call, |a, b| a <= b, comp_lte)
    }),
    (&["executorch_prim::gt.Scalar"], |call| {
        compared(call, |a, b| a > b, comp_gt)
    }),
    (&["executorch_prim::ge.Scalar"], |call| {
        compared(call, |a, b| a >= b, comp_gte)
    }),
    (&["executorch_prim::neg.Scalar"], |call| {
        if let FrameSlot::Int(value) = call.slot(0)? {
            return set(call, FrameSlot::Int((-value).reduce()));
        }
        let value = call.double(0)?;
        set(call, FrameSlot::Double(-value))
    }),
    (&["executorch_prim::sym_float.Scalar"], |call| {
        let value = call.double(0)?;
        set(call, FrameSlot::Double(value))
    }),
    (
        &[
            "executorch_prim::sym_int.Scalar",
            "executorch_prim::trunc.Scalar",
        ],
        |call| rounded(call, f64::trunc),
    ),
    (&["executorch_prim::ceil.Scalar"], |call| {
        rounded(call, f64::ceil)
    }),
    (&["executorch_prim::round.Scalar"], |call| {
        rounded(call, f64::round_ties_even)
    }),
    (&["executorch_prim::sym_not.Scalar"], |call| {
        let value = call.bool(0)?;
        set(call, FrameSlot::Bool(!value))
    }),
    (&["executorch_prim::sym_ite.Scalar"], |call| {
        let chosen = if call.bool(0)? { 1 } else { 2 };
        let slot = call.slot(chosen)?;
        set(call, slot)
    }),
];

fn set(call: &mut OperatorCall<'_, '_>, slot: FrameSlot) -> TractResult<()> {
    let out = call.arg(call.out())?;
    call.frame.write(out, slot);
    Ok(())
}

/// Reads the single element of a tensor.
fn read(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let dtype = match input.dtype {
        DType::Bool => DType::Bool,
        dtype if dtype.is_float() => DType::Float64,
        _ => DType::Int64,
    };
    if let Some(known) = call.frame.builder.constant_value(input.outlet)? {
        return match dtype {
            DType::Bool => {
                let value = known.cast_to_scalar::<bool>()?;
                set(call, FrameSlot::Bool(value))
            }
            DType::Float64 => {
                let value = known.cast_to_scalar::<f64>()?;
                set(call, FrameSlot::Double(value))
            }
            _ => {
                let value = known.cast_to_scalar::<i64>()?;
                set(call, FrameSlot::Int(value.to_dim()))
            }
        };
    }
    let outlet = call.tensor_as(0, dtype)?;
    let outlet = call.frame.builder.reshape(outlet, &[])?;
    let wire = Wire { outlet, dtype };
    set(
        call,
        FrameSlot::Number(RuntimeNumber {
            wire,
            offset: TDim::Val(0),
        }),
    )
}

fn sum(call: &mut OperatorCall<'_, '_>, minus: bool) -> TractResult<()> {
    let signed = |dim: TDim| if minus { -dim } else { dim };
    match (call.slot(0)?, call.slot(1)?) {
        (FrameSlot::Number(number), FrameSlot::Int(dim)) if number.wire.dtype == DType::Int64 => {
            let plus = (number.offset + signed(dim)).reduce();
            set(
                call,
                FrameSlot::Number(RuntimeNumber {
                    offset: plus,
                    ..number
                }),
            )
        }
        (FrameSlot::Int(dim), FrameSlot::Number(number))
            if !minus && number.wire.dtype == DType::Int64 =>
        {
            let plus = (number.offset + dim).reduce();
            set(
                call,
                FrameSlot::Number(RuntimeNumber {
                    offset: plus,
                    ..number
                }),
            )
        }
        (FrameSlot::Number(a), FrameSlot::Number(b)) if minus && a.wire == b.wire => {
            set(call, FrameSlot::Int((a.offset - b.offset).reduce()))
        }
        _ if minus => two(
            call,
            |a, b| Some(a - b),
            |a, b| a - b,
            || Box::new(math::Sub),
        ),
        _ => two(
            call,
            |a, b| Some(a + b),
            |a, b| a + b,
            || Box::new(math::Add),
        ),
    }
}

fn two(
    call: &mut OperatorCall<'_, '_>,
    int: fn(TDim, TDim) -> Option<TDim>,
    float: fn(f64, f64) -> f64,
    op: fn() -> Box<dyn BinMiniOp>,
) -> TractResult<()> {
    match (call.slot(0)?, call.slot(1)?) {
        (FrameSlot::Int(a), FrameSlot::Int(b)) => {
            let Some(value) = int(a.clone(), b.clone()) else {
                bail!("cannot combine {a} and {b}");
            };
            set(call, FrameSlot::Int(value.reduce()))
        }
        (FrameSlot::Number(_), _) | (_, FrameSlot::Number(_)) => {
            let a = call.scalar(0, DType::Int64, 0)?;
            let b = call.scalar(1, DType::Int64, 0)?;
            let outlet = call.binary(op(), a, b)?;
            let wire = Wire::new(outlet, DType::Int64);
            set(
                call,
                FrameSlot::Number(RuntimeNumber {
                    wire,
                    offset: TDim::Val(0),
                }),
            )
        }
        _ => {
            let value = float(call.double(0)?, call.double(1)?);
            set(call, FrameSlot::Double(value))
        }
    }
}

fn fold_known(a: TDim, b: &TDim, op: fn(i64, i64) -> i64) -> Option<TDim> {
    if a == *b {
        return Some(a);
    }
    Some(op(a.to_i64().ok()?, b.to_i64().ok()?).to_dim())
}

fn divided(a: TDim, b: &TDim) -> Option<TDim> {
    let b = b.to_i64().ok()?;
    if let Ok(a) = a.to_i64() {
        return (b != 0).then(|| {
            let quotient = a.wrapping_div(b);
            let floor = if a % b != 0 && (a < 0) != (b < 0) {
                quotient - 1
            } else {
                quotient
            };
            floor.to_dim()
        });
    }
    u64::try_from(b).ok().filter(|b| *b > 0).map(|b| a / b)
}

fn remainder(a: TDim, b: TDim) -> Option<TDim> {
    let quotient = divided(a.clone(), &b)?;
    Some(a - quotient * b)
}

fn compared(
    call: &mut OperatorCall<'_, '_>,
    test: fn(f64, f64) -> bool,
    op: fn() -> Box<dyn BinMiniOp>,
) -> TractResult<()> {
    if let (Ok(a), Ok(b)) = (call.double(0), call.double(1)) {
        return set(call, FrameSlot::Bool(test(a, b)));
    }
    let a = call.scalar(0, DType::Int64, 0)?;
    let b = call.scalar(1, DType::Int64, 0)?;
    let outlet = call.binary(op(), a, b)?;
    let wire = Wire::new(outlet, DType::Bool);
    set(
        call,
        FrameSlot::Number(RuntimeNumber {
            wire,
            offset: TDim::Val(0),
        }),
    )
}

#[expect(clippy::cast_possible_truncation, reason = "sizes fit")]
fn rounded(call: &mut OperatorCall<'_, '_>, round: fn(f64) -> f64) -> TractResult<()> {
    if let FrameSlot::Int(value) = call.slot(0)? {
        return set(call, FrameSlot::Int(value));
    }
    let value = round(call.double(0)?);
    set(call, FrameSlot::Int((value as i64).to_dim()))
}
