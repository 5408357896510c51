//! Core ML operations that quantise and dequantise values at run time.

use tract_onnx::tract_core::internal::*;

use super::{CoremlLowering, Operation, OperationTable, one};
use crate::graph::builder::Wire;
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    // `clip(round(input / scale) + zero point)`
    (&["quantize"], |lowering, operation| {
        let (least, most) = match lowering.dtype(operation)? {
            DType::Int8 => (-128.0, 127.0),
            DType::Uint8 => (0.0, 255.0),
            other => bail!("invalid dtype of quantised values: {other}"),
        };
        let x = lowering.tensor(operation, "input")?;
        let x = lowering.frame.builder.cast(x, DType::Float32)?;
        let scale = broadcast_param(lowering, operation, "scale", x)?
            .context("missing argument `scale`")?;
        let mut wire = lowering.binary("div", x, scale)?;
        wire = lowering.function("round", wire)?;
        if let Some(zero) = broadcast_param(lowering, operation, "zero_point", x)? {
            wire = lowering.binary("add", wire, zero)?;
        }
        lowering.clamped(wire, Some(least), Some(most)).map(one)
    }),
    // `scale · (input − zero point)`
    (&["dequantize"], |lowering, operation| {
        let x = lowering.tensor(operation, "input")?;
        let mut wire = lowering.frame.builder.cast(x, DType::Float32)?;
        if let Some(zero) = broadcast_param(lowering, operation, "zero_point", x)? {
            wire = lowering.binary("sub", wire, zero)?;
        }
        let scale = broadcast_param(lowering, operation, "scale", x)?
            .context("missing argument `scale`")?;
        lowering.binary("mul", wire, scale).map(one)
    }),
];

/// Returns scales or zero points as float32: one, or one for each position of a dimension.
fn broadcast_param(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    name: &str,
    x: Wire,
) -> TractResult<Option<Wire>> {
    let Some(wire) = lowering.optional_tensor(operation, name)? else {
        return Ok(None);
    };
    let wire = lowering.frame.builder.cast(wire, DType::Float32)?;
    if lowering.shape(wire)?.is_empty() {
        return Ok(Some(wire));
    }
    let rank = lowering.shape(x)?.len();
    let axis = lowering.axis(operation, "axis", rank)?;
    lowering.along(wire, axis, rank).map(Some)
}
