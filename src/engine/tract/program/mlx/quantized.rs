//! Weights in groups: words of codes, the lowest bits first, a scale and a bias for each group.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::super::builder::Wire;
use super::super::product::matrices;
use super::{Instruction, Lowering, Table};
use crate::tensor::DType;

/// The instructions of this theme.
pub(super) const TABLE: Table = &[
    (&["Dequantize"], |lowering, node| {
        ensure!(
            lowering.optional(node, "global_scale")?.is_none(),
            "a scale of all groups is not supported"
        );
        let wire = real(lowering, node)?;
        let dtype = lowering.code(node, "dtype")?;
        let scales = lowering.tensor(node, "scales")?;
        let wire = lowering
            .frame
            .builder
            .cast(wire, dtype.unwrap_or(scales.dtype))?;
        lowering.give(node, wire)
    }),
    (&["QuantizedMatmul"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let weights = real(lowering, node)?;
        let swapped = lowering.flag(node, "transpose")?;
        let builder = &mut lowering.frame.builder;
        let wide = builder.cast(x, DType::Float32)?.outlet;
        let outlet = matrices(builder, (wide, false), (weights.outlet, swapped))?;
        let wire = builder.rounded(outlet, x.dtype)?;
        lowering.give(node, wire)
    }),
];

/// The numbers that words stand for: `code · scale + bias`, in float32.
fn real(lowering: &mut Lowering<'_, '_, '_>, node: &Instruction) -> TractResult<Wire> {
    let mode = super::text(node, "mode")?;
    ensure!(mode == "affine", "quantisation by {mode} is not supported");
    let bits = usize::try_from(lowering.int(node, "bits")?)?;
    ensure!(
        matches!(bits, 2 | 4 | 8),
        "codes of {bits} bits are not supported"
    );
    let group = lowering.int(node, "group_size")?;
    ensure!(group > 0, "groups of {group}");
    let words = lowering.tensor(node, "w")?;
    let float = DType::Float32;
    let builder = &mut lowering.frame.builder;
    let words = builder.cast(words, DType::Uint32)?;
    let mut shape = builder.shape(words.outlet)?;
    let last = shape
        .len()
        .checked_sub(1)
        .context("words without a dimension")?;
    shape[last] = shape[last].clone() * (32 / bits);
    let codes = builder.kernel("Unpack", float, &shape, &[words.outlet], move |inputs| {
        let words = inputs[0].try_as_plain_ram()?;
        let mask = (1_u32 << bits) - 1;
        let each = |word: &u32| {
            let word = *word;
            (0..32 / bits).map(move |at| word >> (at * bits) & mask)
        };
        let codes = words.as_slice::<u32>()?.iter().flat_map(each);
        #[expect(clippy::cast_precision_loss, reason = "at most eight bits")]
        let codes: Vec<f32> = codes.map(|code| code as f32).collect();
        let mut shape = inputs[0].shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last *= 32 / bits;
        }
        Tensor::from_shape(&shape, &codes)
    })?;
    let mut grouped = shape.clone();
    grouped[last] = shape[last].clone() / group;
    grouped.push(group.to_dim());
    let mut outlet = builder.reshape(codes.outlet, &grouped)?;
    for name in ["scales", "biases"] {
        let Some(wire) = lowering.optional(node, name)? else {
            ensure!(name == "biases", "no scales");
            continue;
        };
        let builder = &mut lowering.frame.builder;
        let wire = builder.cast(wire, float)?.outlet;
        let wire = builder.wire(AxisOp::Add(last + 1), &[wire])?;
        outlet = match name {
            "scales" => builder.binary(Box::new(math::Mul), outlet, wire)?,
            _ => builder.binary(Box::new(math::Add), outlet, wire)?,
        };
    }
    let outlet = lowering.frame.builder.reshape(outlet, &shape)?;
    Ok(Wire {
        outlet,
        dtype: float,
    })
}
