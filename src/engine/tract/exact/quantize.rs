//! Quantization of numbers far beyond the steps: the library's sum with the zero point goes round, and
//! what is too large becomes the least step. Between two quantizations it makes a table of what happens
//! to a byte, even where a byte's neighbours matter.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::quant::{DequantizeLinearF32, QuantizeLinearI8, QuantizeLinearU8};

use super::mended::{Mend, mended};
use super::slice::hold;

/// Beyond this every number is the last step, whatever the zero point; float32 still has fractions.
const FAR: f32 = 65536.0;
/// Adding this and taking it off rounds to whole numbers, half to even.
const ROUNDER: f32 = 12_582_912.0;

/// Keeps the library from making a table of what lies between two quantizations: a softmax has the axes
/// of a function of one number, but is none, and a byte with a sign is read as one without.
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
        hold(model, node, from)?;
    }
    Ok(())
}

/// Whether a quantization gives bytes with a sign, if it is one.
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

/// What stands in the place of this operator of a plan, if anything does.
pub(super) fn settled(operator: &dyn TypedOp) -> Option<Box<dyn TypedOp>> {
    let element_wise = operator.as_op().downcast_ref::<ElementWiseOp>()?;
    let mend: Mend = if element_wise.0.is::<QuantizeLinearU8>() {
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
    mini.context("only quantizations are mended here")
}

fn step(value: f32, scale: f32) -> f32 {
    let scaled = (value * scale).clamp(-FAR, FAR);
    (scaled + ROUNDER) - ROUNDER
}

/// The number between two others; no number is the least, as ONNX Runtime has it.
fn within(value: f32, least: f32, most: f32) -> f32 {
    let value = if value > least { value } else { least };
    if value < most { value } else { most }
}

/// The steps of numbers: `cast` makes a whole number between the two ends one of the dtype.
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
