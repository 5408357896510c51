//! Quantization of numbers far beyond the steps: the library's sum with the zero point goes round, and
//! what is too large becomes the least step.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::quant::{QuantizeLinearI8, QuantizeLinearU8};

use super::mended::{Mend, mended};

/// Beyond this every number is the last step, whatever the zero point; float32 still has fractions.
const FAR: f32 = 65536.0;
/// Adding this and taking it off rounds to whole numbers, half to even.
const ROUNDER: f32 = 12_582_912.0;

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

fn unsigned(
    inner: &dyn TypedOp,
    context: &EvalContext,
    inputs: TVec<TValue>,
) -> TractResult<TVec<TValue>> {
    if inputs[0].datum_type() != DatumType::F32 {
        return inner.eval(context, inputs);
    }
    let op = mini::<QuantizeLinearU8>(inner)?;
    let zero = f32::from(op.zero_point);
    let mut result = Tensor::zero::<u8>(inputs[0].shape())?;
    {
        let from = inputs[0].try_as_plain_ram()?;
        let mut to = result.try_as_plain_ram_mut()?;
        let pairs = to
            .as_slice_mut::<u8>()?
            .iter_mut()
            .zip(from.as_slice::<f32>()?);
        for (to, from) in pairs {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "clamped"
            )]
            let value = (step(*from, op.scale) + zero).clamp(0.0, 255.0) as i32 as u8;
            *to = value;
        }
    }
    Ok(tvec!(result.into_tvalue()))
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
    let zero = f32::from(op.zero_point);
    let mut result = Tensor::zero::<i8>(inputs[0].shape())?;
    {
        let from = inputs[0].try_as_plain_ram()?;
        let mut to = result.try_as_plain_ram_mut()?;
        let pairs = to
            .as_slice_mut::<i8>()?
            .iter_mut()
            .zip(from.as_slice::<f32>()?);
        for (to, from) in pairs {
            #[expect(clippy::cast_possible_truncation, reason = "clamped")]
            let value = (step(*from, op.scale) + zero).clamp(-128.0, 127.0) as i32 as i8;
            *to = value;
        }
    }
    Ok(tvec!(result.into_tvalue()))
}
