//! Values that are quantised and back while a program runs.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::{Lowering, Operation, Table, one};
use crate::tensor::DType;

/// The operations of this theme.
pub(super) const TABLE: Table = &[
    // `clip(round(input / scale) + zero point)`
    (&["quantize"], |lowering, operation| {
        let (least, most) = match lowering.dtype(operation)? {
            DType::Int8 => (-128.0, 127.0),
            DType::Uint8 => (0.0, 255.0),
            other => bail!("values that are quantised to {other}"),
        };
        let x = lowering.tensor(operation, "input")?;
        let x = lowering.frame.builder.cast(x, DType::Float32)?;
        let scale = spread(lowering, operation, "scale", x)?.context("no scale")?;
        let mut wire = lowering.two("div", x, scale)?;
        wire = lowering.function("round", wire)?;
        if let Some(zero) = spread(lowering, operation, "zero_point", x)? {
            wire = lowering.two("add", wire, zero)?;
        }
        lowering.clamped(wire, Some(least), Some(most)).map(one)
    }),
    // `scale · (input − zero point)`
    (&["dequantize"], |lowering, operation| {
        let x = lowering.tensor(operation, "input")?;
        let mut wire = lowering.frame.builder.cast(x, DType::Float32)?;
        if let Some(zero) = spread(lowering, operation, "zero_point", x)? {
            wire = lowering.two("sub", wire, zero)?;
        }
        let scale = spread(lowering, operation, "scale", x)?.context("no scale")?;
        lowering.two("mul", wire, scale).map(one)
    }),
];

/// Scales or zero points as float32: one, or those of places along a dimension.
fn spread(
    lowering: &mut Lowering<'_, '_, '_>,
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
