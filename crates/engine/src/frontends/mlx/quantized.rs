//! MLX weights quantised in groups.
//!
//! Codes are packed in words, lowest bits first. Each group has a scale, and possibly a bias.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::{InstructionTable, MlxInstruction, MlxLowering};
use crate::graph::builder::Wire;
use crate::graph::product::matrix_product;
use crate::tensor::DType;

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (&["Dequantize"], |lowering, node| {
        let mut wire = real(lowering, node)?;
        if let Some(factor) = lowering.optional(node, "global_scale")? {
            ensure!(
                super::text(node, "mode")? == "nvfp4",
                "the quantisation mode {} cannot have a global scale",
                super::text(node, "mode")?
            );
            let builder = &mut lowering.frame.builder;
            let factor = builder.cast(factor, DType::Float32)?.outlet;
            let most = builder.float(GLOBAL_SCALE_DIVISOR.recip(), 0)?;
            let factor = builder.binary(Box::new(math::Mul), factor, most)?;
            let factor = builder.reshape(factor, &[])?;
            wire.outlet = builder.binary(Box::new(math::Mul), wire.outlet, factor)?;
        }
        let scales = lowering.tensor(node, "scales")?;
        let dtype = match lowering.dtype_field(node, "dtype")? {
            Some(dtype) => dtype,
            None if scales.dtype.is_float() => scales.dtype,
            None => lowering.rounding.computed_dtype(DType::Bfloat16),
        };
        let wire = lowering.frame.builder.cast(wire, dtype)?;
        lowering.write_output(node, wire)
    }),
    (&["QuantizedMatmul"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let weights = real(lowering, node)?;
        let swapped = lowering.flag(node, "transpose")?;
        let builder = &mut lowering.frame.builder;
        let wide = builder.cast(x, DType::Float32)?.outlet;
        let outlet = matrix_product(builder, (wide, false), (weights.outlet, swapped))?;
        let wire = builder.rounded(outlet, x.dtype)?;
        lowering.write_output(node, wire)
    }),
];

/// Divisor of a global scale: the largest group scale times the largest code (448 · 6).
const GLOBAL_SCALE_DIVISOR: f32 = 2688.0;

/// Formats of codes and scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuantMode {
    /// Integers; scales and biases are floats.
    Affine,
    /// 4-bit floats; scales are powers of two.
    Mxfp4,
    /// 8-bit floats; scales are powers of two.
    Mxfp8,
    /// 4-bit floats; scales are 8-bit floats.
    Nvfp4,
}

impl QuantMode {
    fn read(name: &str, bits: usize) -> TractResult<Self> {
        let (mode, known) = match name {
            "affine" => (Self::Affine, matches!(bits, 1..=6 | 8)),
            "mxfp4" => (Self::Mxfp4, bits == 4),
            "mxfp8" => (Self::Mxfp8, bits == 8),
            "nvfp4" => (Self::Nvfp4, bits == 4),
            _ => bail!("unsupported quantisation mode `{name}`"),
        };
        ensure!(known, "unsupported {bits}-bit codes in mode `{name}`");
        Ok(mode)
    }

    #[expect(clippy::cast_precision_loss, reason = "at most eight bits")]
    fn code(self, code: u32) -> f32 {
        match self {
            Self::Affine => code as f32,
            Self::Mxfp4 | Self::Nvfp4 => decode_4_bit_float(code),
            Self::Mxfp8 => decode_8_bit_float(code),
        }
    }

    fn scale(self, code: u8) -> f32 {
        match self {
            Self::Nvfp4 => decode_8_bit_float(code.into()),
            _ => (f32::from(code) - 127.0).exp2(),
        }
    }
}

/// Decodes a 4-bit float: sign, two bits of exponent, one of fraction.
fn decode_4_bit_float(code: u32) -> f32 {
    const SIZES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let size = SIZES[(code & 7) as usize];
    if code & 8 == 0 { size } else { -size }
}

/// Decodes an 8-bit float: sign, four bits of exponent, three of fraction; without infinities.
#[expect(clippy::cast_precision_loss, reason = "a few bits")]
fn decode_8_bit_float(code: u32) -> f32 {
    let (exponent, fraction) = (code >> 3 & 15, (code & 7) as f32 / 8.0);
    let size = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction * (-6.0_f32).exp2(),
        _ => (1.0 + fraction) * (exponent as f32 - 7.0).exp2(),
    };
    if code & 128 == 0 { size } else { -size }
}

/// Unpacks codes from words; a code may span two words of a row.
fn unpack_codes(words: &Tensor, bits: usize, mode: QuantMode) -> TractResult<Tensor> {
    let (size, lead) = words
        .shape()
        .split_last()
        .context("the words have no dimensions")?;
    let count = size * 32 / bits;
    let mask = (1_u64 << bits) - 1;
    let view = words.try_as_plain_ram()?;
    let rows = view.as_slice::<u32>()?.chunks_exact((*size).max(1));
    let mut codes = Vec::with_capacity(rows.len() * count);
    for row in rows {
        codes.extend((0..count).map(|at| {
            let (word, shift) = (at * bits / 32, at * bits % 32);
            let next = row.get(word + 1).copied().unwrap_or(0);
            let both = u64::from(row[word]) | u64::from(next) << 32;
            #[expect(clippy::cast_possible_truncation, reason = "at most eight bits")]
            let code = (both >> shift & mask) as u32;
            mode.code(code)
        }));
    }
    let shape: Vec<usize> = lead.iter().copied().chain([count]).collect();
    Tensor::from_shape(&shape, &codes)
}

/// Dequantises words: `code · scale + bias`, in float32.
pub(super) fn real(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<Wire> {
    let bits = usize::try_from(lowering.int(node, "bits")?)?;
    let mode = QuantMode::read(super::text(node, "mode")?, bits)?;
    let group = lowering.int(node, "group_size")?;
    ensure!(group > 0, "invalid group size {group}");
    let words = lowering.tensor(node, "w")?;
    let float = DType::Float32;
    let builder = &mut lowering.frame.builder;
    let words = builder.cast(words, DType::Uint32)?;
    let mut shape = builder.shape(words.outlet)?;
    let last = shape
        .len()
        .checked_sub(1)
        .context("the words have no dimensions")?;
    let row = shape[last].to_usize()? * 32;
    ensure!(
        row.is_multiple_of(bits),
        "rows of {row} bits are not divisible into codes of {bits} bits"
    );
    shape[last] = (row / bits).to_dim();
    let codes = builder.kernel("Unpack", float, &shape, &[words.outlet], move |inputs| {
        unpack_codes(&inputs[0], bits, mode)
    })?;
    let mut grouped = shape.clone();
    grouped[last] = shape[last].clone() / group;
    grouped.push(group.to_dim());
    let mut outlet = builder.reshape(codes.outlet, &grouped)?;
    let scales = lowering.tensor(node, "scales")?;
    let scales = if mode == QuantMode::Affine {
        scales
    } else {
        decode_scales(lowering, scales, mode)?
    };
    outlet = by_groups(lowering, outlet, scales, last + 1, true)?;
    if let Some(biases) = lowering.optional(node, "biases")? {
        ensure!(
            mode == QuantMode::Affine,
            "floating-point codes cannot have biases"
        );
        outlet = by_groups(lowering, outlet, biases, last + 1, false)?;
    }
    let outlet = lowering.frame.builder.reshape(outlet, &shape)?;
    Ok(Wire::new(outlet, float))
}

/// Decodes scales stored as bytes.
fn decode_scales(
    lowering: &mut MlxLowering<'_, '_>,
    scales: Wire,
    mode: QuantMode,
) -> TractResult<Wire> {
    let builder = &mut lowering.frame.builder;
    let bytes = builder.cast(scales, DType::Uint8)?.outlet;
    let shape = builder.shape(bytes)?;
    builder.kernel("Scales", DType::Float32, &shape, &[bytes], move |inputs| {
        let view = inputs[0].try_as_plain_ram()?;
        let scales = view.as_slice::<u8>()?.iter();
        let scales: Vec<f32> = scales.map(|code| mode.scale(*code)).collect();
        Tensor::from_shape(inputs[0].shape(), &scales)
    })
}

/// Multiplies groups by a number for each, or adds it.
fn by_groups(
    lowering: &mut MlxLowering<'_, '_>,
    groups: OutletId,
    numbers: Wire,
    axis: usize,
    times: bool,
) -> TractResult<OutletId> {
    let builder = &mut lowering.frame.builder;
    let numbers = builder.cast(numbers, DType::Float32)?.outlet;
    let numbers = builder.wire(AxisOp::Add(axis), &[numbers])?;
    if times {
        return builder.binary(Box::new(math::Mul), groups, numbers);
    }
    builder.binary(Box::new(math::Add), groups, numbers)
}
