//! Quantisation of numbers far outside the range. The library's addition of the zero point wraps
//! around, and too large numbers become the least step. Between two quantisations the library
//! builds a table of all bytes, even if neighbours of a byte matter.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::quant::{DequantizeLinearF32, QuantizeLinearI8, QuantizeLinearU8};

use super::mended::{Correction, mended};
use super::slice::pin;

/// Beyond this every number becomes the last step, for any zero point; float32 still has fractions
/// here.
const FAR: f32 = 65536.0;
/// Adding and subtracting this rounds to integers, half to even.
const ROUNDER: f32 = 12_582_912.0;

/// Prevents the library from building a table of the operators between two quantisations. A softmax
/// keeps the shape but is not elementwise, and signed bytes would be read as unsigned.
pub(super) fn prepare(model: &mut TypedModel) -> TractResult<()> {
    let mut held = Vec::new();
    for node in model.nodes() {
        let Some(signed) = is_signed(node) else {
            continue;
        };
        let mut from = node.inputs[0];
        let mut is_function = true;
        loop {
            let before = model.node(from.node);
            if before.op_is::<DequantizeLinearF32>() {
                let bytes = model.outlet_fact(before.inputs[0])?.datum_type;
                if !is_function || (bytes.unquantized() == DatumType::I8) != signed {
                    held.push((node.id, node.inputs[0]));
                }
                break;
            }
            if before.inputs.len() != 1 {
                break;
            }
            is_function &= before.op_is::<ElementWiseOp>() || before.op_is::<Cast>();
            from = before.inputs[0];
        }
    }
    for (node, from) in held {
        pin(model, node, from)?;
    }
    Ok(())
}

/// Returns `true` if a quantisation has signed results; `None` for other nodes.
fn is_signed(node: &TypedNode) -> Option<bool> {
    if is_mini::<QuantizeLinearI8>(node) {
        Some(true)
    } else {
        is_mini::<QuantizeLinearU8>(node).then_some(false)
    }
}

fn is_mini<T>(node: &TypedNode) -> bool
where
    T: tract_onnx::tract_core::ops::element_wise::ElementWiseMiniOp + 'static,
{
    let element_wise = node.op_as::<ElementWiseOp>();
    element_wise.is_some_and(|op| op.0.is::<T>())
}

/// Returns the replacement of this operator of a plan, if it needs one.
pub(super) fn settled(operator: &dyn TypedOp) -> Option<Box<dyn TypedOp>> {
    let element_wise = operator.as_op().downcast_ref::<ElementWiseOp>()?;
    let mend: Correction = if element_wise.0.is::<QuantizeLinearU8>() {
        unsigned
    } else if element_wise.0.is::<QuantizeLinearI8>() {
        signed
    } else {
        return None;
    };
    Some(mended(operator, mend))
}

fn mini<T>(inner: &dyn TypedOp) -> TractResult<&T>
where
    T: tract_onnx::tract_core::ops::element_wise::ElementWiseMiniOp + 'static,
{
    let element_wise = inner.as_op().downcast_ref::<ElementWiseOp>();
    let mini = element_wise.and_then(|op| op.0.downcast_ref::<T>());
    mini.context("expected a quantisation")
}

fn step(value: f32, scale: f32) -> f32 {
    let scaled = (value * scale).clamp(-FAR, FAR);
    (scaled + ROUNDER) - ROUNDER
}

/// Clamps a number. NaN becomes the minimum, as in ONNX Runtime.
fn within(value: f32, least: f32, most: f32) -> f32 {
    let value = if value > least { value } else { least };
    if value < most { value } else { most }
}

/// Quantises numbers; `cast` converts an integer between the two bounds to the dtype.
fn quantized<T: Datum>(
    input: &Tensor,
    scale: f32,
    zero: f32,
    [least, most]: [f32; 2],
    cast: impl Fn(f32) -> T,
) -> TractResult<TVec<TValue>> {
    let mut result = Tensor::zero_dt(T::datum_type(), input.shape())?;
    {
        let from = input.try_as_plain_ram()?;
        let mut to = result.try_as_plain_ram_mut()?;
        let pairs = to
            .as_slice_mut::<T>()?
            .iter_mut()
            .zip(from.as_slice::<f32>()?);
        for (to, from) in pairs {
            *to = cast(within(step(*from, scale) + zero, least, most));
        }
    }
    Ok(tvec!(result.into_tvalue()))
}

fn unsigned(
    inner: &dyn TypedOp,
    context: &EvalContext,
    inputs: TVec<TValue>,
) -> TractResult<TVec<TValue>> {
    if inputs[0].datum_type() != DatumType::F32 {
        return inner.eval(context, inputs);
    }
    let op = mini::<QuantizeLinearU8>(inner)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped"
    )]
    let cast = |step: f32| step as u8;
    let zero = f32::from(op.zero_point);
    quantized(&inputs[0], op.scale, zero, [0.0, 255.0], cast)
}

fn signed(
    inner: &dyn TypedOp,
    context: &EvalContext,
    inputs: TVec<TValue>,
) -> TractResult<TVec<TValue>> {
    if inputs[0].datum_type() != DatumType::F32 {
        return inner.eval(context, inputs);
    }
    let op = mini::<QuantizeLinearI8>(inner)?;
    #[expect(clippy::cast_possible_truncation, reason = "clamped")]
    let cast = |step: f32| step as i8;
    let zero = f32::from(op.zero_point);
    quantized(&inputs[0], op.scale, zero, [-128.0, 127.0], cast)
}
