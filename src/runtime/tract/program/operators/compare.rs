//! Comparisons, logic, choices.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::BinMiniOp;
use tract_onnx::tract_core::ops::logic::{
    And, Iff, Or, Xor, comp_eq, comp_gt, comp_gte, comp_lt, comp_lte, comp_ne, not,
};

use super::super::builder::Wire;
use super::elements::floats;
use super::{Call, Lower, promoted, promoted_with_scalar, widened};
use crate::runtime::DType;

pub(super) fn find(name: &str) -> Option<Lower> {
    Some(match name {
        "aten::eq.Tensor_out" | "aten::eq.Scalar_out" => |call| compared(call, comp_eq()),
        "aten::ne.Tensor_out" | "aten::ne.Scalar_out" => |call| compared(call, comp_ne()),
        "aten::lt.Tensor_out" | "aten::lt.Scalar_out" => |call| compared(call, comp_lt()),
        "aten::le.Tensor_out" | "aten::le.Scalar_out" => |call| compared(call, comp_lte()),
        "aten::gt.Tensor_out" | "aten::gt.Scalar_out" => |call| compared(call, comp_gt()),
        "aten::ge.Tensor_out" | "aten::ge.Scalar_out" => |call| compared(call, comp_gte()),
        "aten::logical_not.out" => negated,
        "aten::logical_and.out" => |call| joined(call, Box::new(And)),
        "aten::logical_or.out" => |call| joined(call, Box::new(Or)),
        "aten::logical_xor.out" => |call| joined(call, Box::new(Xor)),
        "aten::isnan.out" => |call| told(call, f64::is_nan),
        "aten::isinf.out" => |call| told(call, f64::is_infinite),
        "aten::where.self_out" => chosen,
        "aten::masked_fill.Scalar_out" => masked_fill,
        _ => return None,
    })
}

fn boolean(outlet: OutletId) -> Wire {
    Wire {
        outlet,
        dtype: DType::Bool,
    }
}

fn compared(call: &mut Call<'_, '_>, op: Box<dyn BinMiniOp>) -> TractResult<()> {
    let a = call.tensor(0)?;
    let is_tensor = call.body(1)?.tensor().is_some();
    let dtype = if is_tensor {
        promoted(a.dtype, call.tensor(1)?.dtype)
    } else {
        promoted_with_scalar(a.dtype, call.scalar_kind(1)?)
    };
    let mut dtype = widened(dtype);
    if dtype == DType::Bool {
        dtype = DType::Int64;
    }
    let a = call.tensor_as(0, dtype)?;
    let b = if is_tensor {
        call.tensor_as(1, dtype)?
    } else {
        let rank = call.frame.builder.rank(a)?;
        call.scalar(1, dtype, rank)?
    };
    let outlet = call.frame.builder.binary(op, a, b)?;
    call.give(2, boolean(outlet))
}

fn negated(call: &mut Call<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Bool)?;
    let outlet = call.frame.builder.unary(not(), input)?;
    call.give(1, boolean(outlet))
}

fn joined(call: &mut Call<'_, '_>, op: Box<dyn BinMiniOp>) -> TractResult<()> {
    let a = call.tensor_as(0, DType::Bool)?;
    let b = call.tensor_as(1, DType::Bool)?;
    let outlet = call.frame.builder.binary(op, a, b)?;
    call.give(2, boolean(outlet))
}

fn told(call: &mut Call<'_, '_>, test: fn(f64) -> bool) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let wire = call.frame.builder.kernel(
        "Test",
        DType::Bool,
        &shape,
        &[input.outlet],
        move |inputs| {
            let values: Vec<bool> = floats(&inputs[0])?.into_iter().map(test).collect();
            Tensor::from_shape(inputs[0].shape(), &values)
        },
    )?;
    call.give(1, wire)
}

fn chosen(call: &mut Call<'_, '_>) -> TractResult<()> {
    let condition = call.tensor_as(0, DType::Bool)?;
    let (a, b) = (call.tensor(1)?, call.tensor(2)?);
    let dtype = widened(promoted(a.dtype, b.dtype));
    let (a, b) = (call.tensor_as(1, dtype)?, call.tensor_as(2, dtype)?);
    let [condition, a, b] = call.frame.builder.same_rank([condition, a, b])?;
    let outlet = call.frame.builder.wire(Iff, &[condition, a, b])?;
    call.give(3, Wire { outlet, dtype })
}

fn masked_fill(call: &mut Call<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let dtype = widened(input.dtype);
    let input = call.tensor_as(0, dtype)?;
    let mask = call.tensor_as(1, DType::Bool)?;
    let value = call.scalar(2, dtype, 0)?;
    let [mask, value, input] = call.frame.builder.same_rank([mask, value, input])?;
    let outlet = call.frame.builder.wire(Iff, &[mask, value, input])?;
    call.give(3, Wire { outlet, dtype })
}
