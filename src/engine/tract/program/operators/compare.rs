//! Comparisons, logic, choices.

use tract_onnx::tract_core::broadcast::multi_broadcast;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::BinMiniOp;
use tract_onnx::tract_core::ops::logic::{
    And, Iff, Or, Xor, comp_eq, comp_gt, comp_gte, comp_lt, comp_lte, comp_ne, not,
};

use super::super::builder::Wire;
use super::super::datum_type;
use super::call::{Call, Table};
use super::elements::{broadcast_strides, floats, places};
use super::promotion::{promoted, promoted_with_scalar, widened};
use crate::tensor::DType;

/// The operators of this theme.
pub(super) const TABLE: Table = &[
    (&["aten::eq.Tensor_out", "aten::eq.Scalar_out"], |call| {
        compared(call, comp_eq())
    }),
    (&["aten::ne.Tensor_out", "aten::ne.Scalar_out"], |call| {
        compared(call, comp_ne())
    }),
    (&["aten::lt.Tensor_out", "aten::lt.Scalar_out"], |call| {
        compared(call, comp_lt())
    }),
    (&["aten::le.Tensor_out", "aten::le.Scalar_out"], |call| {
        compared(call, comp_lte())
    }),
    (&["aten::gt.Tensor_out", "aten::gt.Scalar_out"], |call| {
        compared(call, comp_gt())
    }),
    (&["aten::ge.Tensor_out", "aten::ge.Scalar_out"], |call| {
        compared(call, comp_gte())
    }),
    (&["aten::logical_not.out"], negated),
    (&["aten::logical_and.out"], |call| {
        joined(call, Box::new(And))
    }),
    (&["aten::logical_or.out"], |call| joined(call, Box::new(Or))),
    (&["aten::logical_xor.out"], |call| {
        joined(call, Box::new(Xor))
    }),
    (&["aten::isnan.out"], |call| told(call, f64::is_nan)),
    (&["aten::isinf.out"], |call| told(call, f64::is_infinite)),
    (&["aten::where.self_out"], chosen),
    (&["aten::masked_fill.Scalar_out"], masked_fill),
];

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
    let inputs = [condition, a, b];
    let shape = call.frame.builder.broadcast_shape(&inputs)?;
    let size = datum_type(dtype).size_of();
    let wire =
        call.frame
            .builder
            .kernel("Choose", dtype, &shape, &inputs, move |inputs| match size {
                1 => choose::<1>(inputs),
                2 => choose::<2>(inputs),
                4 => choose::<4>(inputs),
                _ => choose::<8>(inputs),
            })?;
    call.give(3, wire)
}

/// Elements of `N` bytes of one tensor or the other. The library's own goes through indices one by one.
fn choose<const N: usize>(inputs: &[TValue]) -> TractResult<Tensor> {
    let shapes = [inputs[0].shape(), inputs[1].shape(), inputs[2].shape()];
    let shape = multi_broadcast(&shapes)?;
    let mut chosen = Tensor::zero_dt(inputs[1].datum_type(), &shape)?;
    let (to, _) = chosen.as_bytes_mut().as_chunks_mut::<N>();
    let conditions = inputs[0].as_bytes();
    let (yes, _) = inputs[1].as_bytes().as_chunks::<N>();
    let (no, _) = inputs[2].as_bytes().as_chunks::<N>();
    let whole = |at: usize| shapes[at] == &*shape;
    match (whole(0), yes, no) {
        (true, [yes], _) if whole(2) => {
            for ((to, condition), no) in to.iter_mut().zip(conditions).zip(no) {
                *to = if *condition == 0 { *no } else { *yes };
            }
        }
        (true, _, [no]) if whole(1) => {
            for ((to, condition), yes) in to.iter_mut().zip(conditions).zip(yes) {
                *to = if *condition == 0 { *no } else { *yes };
            }
        }
        _ if whole(0) && whole(1) && whole(2) => {
            let sources = yes.iter().zip(no);
            for ((to, condition), (yes, no)) in to.iter_mut().zip(conditions).zip(sources) {
                *to = if *condition == 0 { *no } else { *yes };
            }
        }
        _ => {
            let from = |at: usize| places(&shape, &broadcast_strides(shapes[at], &shape));
            let sources = from(0).into_iter().zip(from(1)).zip(from(2));
            for (to, ((condition, of_yes), of_no)) in to.iter_mut().zip(sources) {
                *to = if conditions[condition] == 0 {
                    no[of_no]
                } else {
                    yes[of_yes]
                };
            }
        }
    }
    Ok(chosen)
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
