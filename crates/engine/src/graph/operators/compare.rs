//! Lowers comparisons, logic and selection.

use tract_linalg::multithread::par_chunks_mut;
use tract_onnx::tract_core::broadcast::multi_broadcast;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::BinMiniOp;
use tract_onnx::tract_core::ops::logic::{
    And, Or, Xor, comp_eq, comp_gt, comp_gte, comp_lt, comp_lte, comp_ne, not,
};

use super::super::builder::Wire;
use super::super::datum_type;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{broadcast_strides, floats, places, strides};
use super::promotion::{promoted, promoted_with_scalar, widened};
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
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
    (&["aten::isnan.out"], |call| {
        test_elements(call, f64::is_nan)
    }),
    (&["aten::isinf.out"], |call| {
        test_elements(call, f64::is_infinite)
    }),
    (&["aten::where.self_out"], select),
    (&["aten::masked_fill.Scalar_out"], masked_fill),
];

fn boolean(outlet: OutletId) -> Wire {
    Wire::new(outlet, DType::Bool)
}

fn compared(call: &mut OperatorCall<'_, '_>, op: Box<dyn BinMiniOp>) -> TractResult<()> {
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
    let outlet = call.binary(op, a, b)?;
    call.set_output(2, boolean(outlet))
}

fn negated(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Bool)?;
    let outlet = call.frame.builder.unary(not(), input)?;
    call.set_output(1, boolean(outlet))
}

fn joined(call: &mut OperatorCall<'_, '_>, op: Box<dyn BinMiniOp>) -> TractResult<()> {
    let a = call.tensor_as(0, DType::Bool)?;
    let b = call.tensor_as(1, DType::Bool)?;
    let outlet = call.binary(op, a, b)?;
    call.set_output(2, boolean(outlet))
}

fn test_elements(call: &mut OperatorCall<'_, '_>, test: fn(f64) -> bool) -> TractResult<()> {
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let wire = call.kernel(
        "Test",
        DType::Bool,
        &shape,
        &[input.outlet],
        move |inputs| {
            let values: Vec<bool> = floats(&inputs[0])?.into_iter().map(test).collect();
            Tensor::from_shape(inputs[0].shape(), &values)
        },
    )?;
    call.set_output(1, wire)
}

fn select(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let condition = call.tensor_as(0, DType::Bool)?;
    let (a, b) = (call.tensor(1)?, call.tensor(2)?);
    let dtype = widened(promoted(a.dtype, b.dtype));
    let (a, b) = (call.tensor_as(1, dtype)?, call.tensor_as(2, dtype)?);
    let wire = select_broadcast(call, dtype, [condition, a, b])?;
    call.set_output(3, wire)
}

/// Selects elements of the second or third tensor by the first one; all three are broadcast.
fn select_broadcast(
    call: &mut OperatorCall<'_, '_>,
    dtype: DType,
    inputs: [OutletId; 3],
) -> TractResult<Wire> {
    let shape = call.frame.builder.broadcast_shape(&inputs)?;
    let size = datum_type(dtype).size_of();
    call.kernel("Choose", dtype, &shape, &inputs, move |inputs| match size {
        1 => choose::<1>(inputs),
        2 => choose::<2>(inputs),
        4 => choose::<4>(inputs),
        _ => choose::<8>(inputs),
    })
}

/// Selects elements of `N` bytes of one tensor or the other. tract's own operator computes an index
/// for each element.
fn choose<const N: usize>(inputs: &[TValue]) -> TractResult<Tensor> {
    let shapes = [inputs[0].shape(), inputs[1].shape(), inputs[2].shape()];
    let shape = multi_broadcast(&shapes)?;
    let mut chosen = Tensor::zero_dt(inputs[1].datum_type(), &shape)?;
    let (to, _) = chosen.as_bytes_mut().as_chunks_mut::<N>();
    let (conditions, _) = inputs[0].as_bytes().as_chunks::<1>();
    let (yes, _) = inputs[1].as_bytes().as_chunks::<N>();
    let (no, _) = inputs[2].as_bytes().as_chunks::<N>();
    let rows = BroadcastRows::of(&shape, shapes);
    let count = to.len();
    par_chunks_mut(to, rows.row, count, |first, to| {
        for (row, to) in (first..).zip(to.chunks_exact_mut(rows.row)) {
            let conditions = rows.slice_of(0, row, conditions);
            let (yes, no) = (rows.slice_of(1, row, yes), rows.slice_of(2, row, no));
            select_row(conditions, yes, no, to);
        }
        Ok(())
    })?;
    Ok(chosen)
}

/// Selects a row. Each slice has the row's length, or a single element that stands for all.
fn select_row<T: Copy>(conditions: &[[u8; 1]], yes: &[T], no: &[T], to: &mut [T]) {
    match (conditions, yes, no) {
        ([condition], _, _) if to.len() > 1 => match if *condition == [0] { no } else { yes } {
            [one] => to.fill(*one),
            all => to.copy_from_slice(all),
        },
        (_, [yes], [no]) => {
            for (to, condition) in to.iter_mut().zip(conditions) {
                *to = if *condition == [0] { *no } else { *yes };
            }
        }
        (_, [yes], _) => {
            for ((to, condition), no) in to.iter_mut().zip(conditions).zip(no) {
                *to = if *condition == [0] { *no } else { *yes };
            }
        }
        (_, _, [no]) => {
            for ((to, condition), yes) in to.iter_mut().zip(conditions).zip(yes) {
                *to = if *condition == [0] { *no } else { *yes };
            }
        }
        _ => {
            for ((to, condition), (yes, no)) in
                to.iter_mut().zip(conditions).zip(yes.iter().zip(no))
            {
                *to = if *condition == [0] { *no } else { *yes };
            }
        }
    }
}

/// Positions of rows in inputs that are broadcast to a shape. In each input a row is a slice or a
/// single element.
struct BroadcastRows<const N: usize> {
    /// Elements in a row, at least 1.
    row: usize,
    /// For each input, the start of each row.
    starts: [Vec<usize>; N],
    /// For each input, whether a single element stands for a row.
    ones: [bool; N],
}

impl<const N: usize> BroadcastRows<N> {
    fn of(shape: &[usize], inputs: [&[usize]; N]) -> Self {
        let own = strides(shape);
        let of_inputs = inputs.map(|input| broadcast_strides(input, shape));
        let all = |strides: &[usize], inner: usize, like: &[usize]| {
            (inner..shape.len()).all(|at| shape[at] == 1 || strides[at] == like[at])
        };
        let zeros = vec![0; shape.len()];
        let is_row = |inner: &usize| {
            let mut inputs = of_inputs.iter();
            inputs.all(|strides| all(strides, *inner, &own) || all(strides, *inner, &zeros))
        };
        let inner = (0..shape.len()).find(is_row).unwrap_or(shape.len());
        let row = shape[inner..].iter().product::<usize>().max(1);
        Self {
            row,
            ones: std::array::from_fn(|at| row > 1 && all(&of_inputs[at], inner, &zeros)),
            starts: of_inputs.map(|strides| places(&shape[..inner], &strides[..inner])),
        }
    }

    /// Returns the slice of an input for a row.
    fn slice_of<'a, T>(&self, input: usize, row: usize, values: &'a [T]) -> &'a [T] {
        let length = if self.ones[input] { 1 } else { self.row };
        &values[self.starts[input][row]..][..length]
    }
}

fn masked_fill(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let dtype = widened(input.dtype);
    let input = call.tensor_as(0, dtype)?;
    let mask = call.tensor_as(1, DType::Bool)?;
    let value = call.scalar(2, dtype, 0)?;
    let wire = select_broadcast(call, dtype, [mask, value, input])?;
    call.set_output(3, wire)
}
