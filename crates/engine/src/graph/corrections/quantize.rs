//! Quantisation of numbers far outside the range. The library's addition of the zero point wraps
//! around, and too large numbers become the least step. Between two quantisations the library
//! builds a table of all bytes, even if neighbours of a byte matter.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::quant::{DequantizeLinearF32, QuantizeLinearI8, QuantizeLinearU8};

use super::mended::mended;
use super::slice::pin;

/// Beyond this every number becomes the last step, for any zero point; float32 still has fractions
/// here.
const FAR: f32 = 65536.0;
/// Adding and subtracting this rounds to integers, half to even.
const ROUNDER: f32 = 12_582_912.0;

/// Prevents the library from building a table of the operators between two quantisations. A softmax
/// keeps the shape but is not elementwise, and signed bytes would be read as unsigned.
pub(crate) fn prepare(model: &mut TypedModel) -> TractResult<()> {
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
pub(crate) fn settled(operator: &dyn TypedOp) -> Option<Box<dyn TypedOp>> {
    let element_wise = operator.as_op().downcast_ref::<ElementWiseOp>()?;
    if let Some(op) = element_wise.0.downcast_ref::<QuantizeLinearU8>() {
        let (scale, zero) = (op.scale, f32::from(op.zero_point));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped"
        )]
        let cast = |step: f32| step as u8;
        return Some(corrected(operator, scale, zero, [0.0, 255.0], cast));
    }
    let op = element_wise.0.downcast_ref::<QuantizeLinearI8>()?;
    let (scale, zero) = (op.scale, f32::from(op.zero_point));
    #[expect(clippy::cast_possible_truncation, reason = "clamped")]
    let cast = |step: f32| step as i8;
    Some(corrected(operator, scale, zero, [-128.0, 127.0], cast))
}

/// Wraps a quantisation of float32 numbers; the library computes other dtypes.
fn corrected<T: Datum>(
    operator: &dyn TypedOp,
    scale: f32,
    zero: f32,
    bounds: [f32; 2],
    cast: impl Fn(f32) -> T + Copy + Send + Sync + 'static,
) -> Box<dyn TypedOp> {
    mended(operator, move |inner, context, inputs| {
        if inputs[0].datum_type() != DatumType::F32 {
            return inner.eval(context, inputs);
        }
        quantized(&inputs[0], scale, zero, bounds, cast)
    })
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
