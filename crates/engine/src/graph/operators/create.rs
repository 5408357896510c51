//! Lowers operators that create tensors from numbers, and copies.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::super::datum_type;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{tensor_of_floats, tensor_of_ints};
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::full.out", "aten::full.names_out"], |call| {
        let shape = call.dims(0)?;
        filled(call, 1, &shape)
    }),
    (
        &[
            "aten::full_like.out",
            "aten::fill.Scalar_out",
            "aten::fill.Tensor_out",
        ],
        |call| {
            let like = call.tensor(0)?;
            let shape = call.shape(like)?;
            filled(call, 1, &shape)
        },
    ),
    (
        &[
            "aten::zeros.out",
            "aten::empty.out",
            "dim_order_ops::_empty_dim_order.out",
        ],
        |call| filled_with(call, 0.0),
    ),
    (&["aten::ones.out"], |call| filled_with(call, 1.0)),
    (&["aten::scalar_tensor.out"], |call| filled(call, 0, &[])),
    (&["aten::arange.out"], |call| range(call, None)),
    (&["aten::arange.start_out"], |call| range(call, Some(2))),
    (
        &[
            "aten::clone.out",
            "aten::alias_copy.out",
            "aten::detach_copy.out",
            "aten::lift_fresh_copy.out",
            "aten::_to_copy.out",
            "aten::_conj_physical.out",
            "dim_order_ops::_to_dim_order_copy.out",
            "dim_order_ops::_clone_dim_order.out",
            "et_copy::_d2h_copy.out",
            "et_copy::_h2d_copy.out",
        ],
        |call| {
            let input = call.tensor(0)?;
            call.set_result(input)
        },
    ),
    (&["aten::copy.out"], |call| {
        let copy = copied(call)?;
        call.set_result(copy)
    }),
    (&["aten::copy_"], |call| {
        let copy = copied(call)?;
        call.set_output(0, copy)?;
        call.set_result(copy)
    }),
];

/// Returns the second argument, broadcast to the shape of the first one.
fn copied(call: &mut OperatorCall<'_, '_>) -> TractResult<Wire> {
    let value = call.arg(0)?;
    let shape = match call.frame.method.values[value].tensor() {
        // The first tensor is not read, since the copy replaces all of it.
        Some(tensor) if tensor.dynamism == pkgtool_model::Dynamism::Static => {
            tensor.sizes.iter().map(|size| (*size).to_dim()).collect()
        }
        _ => {
            let to = call.tensor(0)?;
            call.shape(to)?
        }
    };
    let from = call.tensor(1)?;
    let outlet = call.frame.builder.expand(from.outlet, &shape)?;
    Ok(Wire::new(outlet, from.dtype))
}

fn filled(call: &mut OperatorCall<'_, '_>, value: usize, shape: &[TDim]) -> TractResult<()> {
    let out = call.out();
    let dtype = call.out_dtype(out)?;
    let value = if call.body(value)?.tensor().is_some() {
        call.tensor_as(value, dtype)?
    } else {
        call.scalar(value, dtype, 0)?
    };
    call.check_room(out, shape)?;
    let outlet = call.frame.builder.expand(value, shape)?;
    call.set_output(out, Wire { outlet, dtype })
}

fn filled_with(call: &mut OperatorCall<'_, '_>, value: f64) -> TractResult<()> {
    let out = call.out();
    let dtype = call.out_dtype(out)?;
    let shape = call.dims(0)?;
    call.check_room(out, &shape)?;
    let value = call.frame.builder.scalar(value, dtype, 0)?;
    let outlet = call.frame.builder.expand(value.outlet, &shape)?;
    call.set_output(out, Wire { outlet, dtype })
}

/// Lowers a range from a start to an end. Without a step argument the start is 0.
fn range(call: &mut OperatorCall<'_, '_>, step: Option<usize>) -> TractResult<()> {
    let out = call.out();
    let dtype = call.out_dtype(out)?;
    let to = datum_type(dtype);
    let (first, end) = if step.is_some() {
        (Some(0), 1)
    } else {
        (None, 0)
    };
    let start = first.map_or(Ok(0.0), |at| call.double(at))?;
    let step = step.map_or(Ok(1.0), |at| call.double(at))?;
    ensure!(step != 0.0, "the step of a range is 0");
    let length = match call.double(end) {
        Ok(end) => {
            let length = ((end - start) / step).ceil().max(0.0);
            #[expect(clippy::cast_possible_truncation, reason = "checked against a limit")]
            let length = if length < 1e9 {
                length as i64
            } else {
                bail!("range too long: {length} elements")
            };
            length.to_dim()
        }
        // The end is known only at run time: only ranges from 0 with step 1 are supported.
        Err(error) => {
            ensure!(start == 0.0 && step == 1.0, "{error}");
            call.dim(end)?
        }
    };
    call.check_room(out, std::slice::from_ref(&length))?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "values of a range"
    )]
    let make = move |count: usize| {
        if to.is_float() {
            let values: Vec<f64> = (0..count).map(|at| start + at as f64 * step).collect();
            return tensor_of_floats(&[count], &values, to);
        }
        let values: Vec<i64> = (0..count)
            .map(|at| start as i64 + at as i64 * step as i64)
            .collect();
        tensor_of_ints(&[count], &values, to)
    };
    if let Ok(count) = length.to_usize() {
        let wire = call.frame.builder.constant(Arc::new(make(count)?), dtype)?;
        return call.set_output(out, wire);
    }
    let count = call.frame.builder.size(&length, DType::Int64)?;
    let wire = call.kernel("Range", dtype, &[length], &[count], move |inputs| {
        let count = inputs[0].cast_to_scalar::<i64>()?;
        make(usize::try_from(count)?)
    })?;
    call.set_output(out, wire)
}
