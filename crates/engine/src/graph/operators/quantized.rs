//! Lowers quantisation outside of delegates: conversions, and embeddings with low-bit weights.

use tract_onnx::tract_core::internal::*;

use super::super::builder::{Wire, check_rank};
use super::super::datum_type;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{floats, ints, strides, tensor_of_floats, tensor_of_ints};
use crate::graph::kernel::Kernel;
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (
        &[
            "quantized_decomposed::quantize_per_tensor.out",
            "quantized_decomposed::quantize_per_tensor.Tensor_out",
        ],
        |call| per_tensor(call, true),
    ),
    (
        &[
            "quantized_decomposed::dequantize_per_tensor.out",
            "quantized_decomposed::dequantize_per_tensor.Tensor_out",
        ],
        |call| per_tensor(call, false),
    ),
    (
        &["quantized_decomposed::quantize_per_channel.out"],
        |call| per_channel(call, true),
    ),
    (
        &["quantized_decomposed::dequantize_per_channel.out"],
        |call| per_channel(call, false),
    ),
    (&["quantized_decomposed::quantize_per_token.out"], |call| {
        per_token(call, true)
    }),
    (
        &["quantized_decomposed::dequantize_per_token.out"],
        |call| per_token(call, false),
    ),
    (
        &["quantized_decomposed::choose_qparams_per_token_asymmetric.out"],
        choose_qparams_per_token,
    ),
    (&["quantized_decomposed::choose_qparams.Tensor_out"], choose),
    (&["quantized_decomposed::embedding_byte.out"], |call| {
        embedding(call, 8, 6)
    }),
    (
        &["quantized_decomposed::embedding_byte.dtype_out"],
        |call| embedding(call, 8, 7),
    ),
    (&["quantized_decomposed::embedding_4bit.out"], |call| {
        embedding(call, 4, 6)
    }),
    (
        &["quantized_decomposed::embedding_4bit.dtype_out"],
        |call| embedding(call, 4, 7),
    ),
    (&["quantized_decomposed::embedding_2bit.out"], |call| {
        embedding(call, 2, 6)
    }),
    (
        &["quantized_decomposed::embedding_2bit.dtype_out"],
        |call| embedding(call, 2, 7),
    ),
];

/// Quantises or dequantises elements. `group` maps the shape to the run length of one scale and
/// zero point.
fn requantised(
    call: &mut OperatorCall<'_, '_>,
    scales: OutletId,
    zero_points: Option<OutletId>,
    limits: [i64; 2],
    quantize: bool,
    group: impl Fn(&[usize]) -> (usize, usize) + Send + Sync + 'static,
) -> TractResult<()> {
    let out = call.out();
    let dtype = call.out_dtype(out)?;
    let input = call.tensor(0)?;
    let shape = call.shape(input)?;
    let to = datum_type(dtype);
    let inputs: Vec<OutletId> = [input.outlet, scales]
        .into_iter()
        .chain(zero_points)
        .collect();
    let wire = call.kernel("Requantize", dtype, &shape, &inputs, move |inputs| {
        let shape = inputs[0].shape();
        let scales = floats(&inputs[1])?;
        let zeros = inputs.get(2).map(|zeros| ints(zeros)).transpose()?;
        // Each run of elements shares a scale; consecutive runs cycle through the scales.
        let (run, _) = group(shape);
        let which = |place: usize| (place / run.max(1)) % scales.len().max(1);
        let zero = |at: usize| {
            zeros
                .as_ref()
                .map_or(0, |zeros| zeros[at % zeros.len().max(1)])
        };
        ensure!(!scales.is_empty(), "the scales are empty");
        if quantize {
            let values = floats(&inputs[0])?
                .into_iter()
                .enumerate()
                .map(|(place, x)| {
                    let at = which(place);
                    quantized(x, scales[at], zero(at), limits)
                });
            return tensor_of_ints(shape, &values.collect::<Vec<_>>(), to);
        }
        #[expect(clippy::cast_precision_loss, reason = "quantised integers are small")]
        let values = ints(&inputs[0])?.into_iter().enumerate().map(|(place, q)| {
            let at = which(place);
            (q - zero(at)) as f64 * scales[at]
        });
        tensor_of_floats(shape, &values.collect::<Vec<_>>(), to)
    })?;
    call.set_output(out, wire)
}

/// Quantises a number, computed in float32 as the runtime does.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "clamped to the limits"
)]
fn quantized(x: f64, scale: f64, zero_point: i64, [least, most]: [i64; 2]) -> i64 {
    let inverse = 1.0_f32 / scale as f32;
    let nearest = (x as f32 * inverse).round_ties_even();
    let value = zero_point as f32 + nearest;
    (value as i64).clamp(least, most)
}

fn limits(call: &mut OperatorCall<'_, '_>, first: usize) -> TractResult<[i64; 2]> {
    let limits = [call.int(first)?, call.int(first + 1)?];
    ensure!(
        limits[0] <= limits[1],
        "invalid quantisation limits {limits:?}"
    );
    Ok(limits)
}

fn per_tensor(call: &mut OperatorCall<'_, '_>, quantize: bool) -> TractResult<()> {
    let limits = limits(call, 3)?;
    let scale = if call.body(1)?.tensor().is_some() {
        call.tensor_as(1, DType::Float64)?
    } else {
        call.scalar(1, DType::Float64, 0)?
    };
    let zero = if call.body(2)?.tensor().is_some() {
        call.tensor_as(2, DType::Int64)?
    } else {
        call.scalar(2, DType::Int64, 0)?
    };
    requantised(call, scale, Some(zero), limits, quantize, |shape| {
        (shape.iter().product(), 1)
    })
}

fn per_channel(call: &mut OperatorCall<'_, '_>, quantize: bool) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let axis = call.axis(3, rank)?;
    let limits = limits(call, 4)?;
    let scales = call.tensor_as(1, DType::Float64)?;
    let zeros = if call.is_none(2)? {
        None
    } else {
        Some(call.tensor_as(2, DType::Int64)?)
    };
    requantised(call, scales, zeros, limits, quantize, move |shape| {
        (
            strides(shape).get(axis).copied().unwrap_or(1),
            shape.get(axis).copied().unwrap_or(1),
        )
    })
}

fn per_token(call: &mut OperatorCall<'_, '_>, quantize: bool) -> TractResult<()> {
    let limits = limits(call, 3)?;
    let scales = call.tensor_as(1, DType::Float64)?;
    let zeros = call.tensor_as(2, DType::Int64)?;
    requantised(call, scales, Some(zeros), limits, quantize, |shape| {
        (shape.last().copied().unwrap_or(1), 1)
    })
}

/// Returns the scale and zero point for the range of these values, which always includes 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "clamped to the limits"
)]
fn range_of(values: impl Iterator<Item = f64>, [least, most]: [i64; 2], eps: f32) -> (f32, i64) {
    let (low, high) = values.fold((0.0_f32, 0.0_f32), |(low, high), x| {
        (low.min(x as f32), high.max(x as f32))
    });
    let (qmin, qmax) = (least as f32, most as f32);
    let mut scale = (f64::from(high) - f64::from(low)) as f32 / (qmax - qmin);
    if scale == 0.0 || scale.recip().is_infinite() {
        scale = 0.1;
    }
    let scale = scale.max(eps);
    let from_low = qmin - low / scale;
    let from_high = qmax - high / scale;
    let low_error = qmin.abs() + (low / scale).abs();
    let high_error = qmax.abs() + (high / scale).abs();
    let zero = if low_error < high_error {
        from_low
    } else {
        from_high
    };
    let zero = (zero.round_ties_even() as i64).clamp(least, most);
    (scale, zero)
}

fn choose(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let limits = limits(call, 1)?;
    #[expect(clippy::cast_possible_truncation, reason = "a small number")]
    let eps = call.double(3)? as f32;
    let facts = tvec!(f64::fact([1]), i64::fact([1]));
    let kernel = Kernel::new("ChooseRange", facts, move |inputs| {
        let (scale, zero) = range_of(floats(&inputs[0])?.into_iter(), limits, eps);
        Ok(tvec!(tensor1(&[f64::from(scale)]), tensor1(&[zero])))
    });
    let outlets = call.frame.builder.wire_all(kernel, &[input.outlet])?;
    set_qparams(call, 5, &outlets)
}

fn choose_qparams_per_token(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor(0)?;
    let mut shape = call.shape(input)?;
    if let Some(last) = shape.last_mut() {
        *last = TDim::Val(1);
    }
    let facts = tvec!(f64::fact(&shape), i64::fact(&shape));
    let kernel = Kernel::new("ChooseRange", facts, move |inputs| {
        let mut shape = inputs[0].shape().to_vec();
        let row = shape.last().copied().unwrap_or(1);
        if let Some(last) = shape.last_mut() {
            *last = 1;
        }
        let values = floats(&inputs[0])?;
        let rows = values.chunks(row.max(1));
        let ranges = rows.map(|row| range_of(row.iter().copied(), [-128, 127], 0.0));
        let (scales, zeros): (Vec<f64>, Vec<i64>) =
            ranges.map(|(scale, zero)| (f64::from(scale), zero)).unzip();
        Ok(tvec!(
            Tensor::from_shape(&shape, &scales)?,
            Tensor::from_shape(&shape, &zeros)?
        ))
    });
    let outlets = call.frame.builder.wire_all(kernel, &[input.outlet])?;
    set_qparams(call, 2, &outlets)
}

fn set_qparams(
    call: &mut OperatorCall<'_, '_>,
    at: usize,
    outlets: &[OutletId],
) -> TractResult<()> {
    call.set_output(at, Wire::new(outlets[0], DType::Float64))?;
    call.set_output(at + 1, Wire::new(outlets[1], DType::Int64))
}

/// Lowers an embedding from a table of low-bit integers.
///
/// Argument 1 has a scale for each row, or for groups within a row. Argument 2 has optional zero
/// points, argument 5 the indices of the rows.
fn embedding(call: &mut OperatorCall<'_, '_>, bits: usize, out: usize) -> TractResult<()> {
    let weight = call.tensor(0)?;
    let scales = call.tensor_as(1, DType::Float32)?;
    let zeros = if call.is_none(2)? {
        None
    } else {
        Some(call.tensor_as(2, DType::Float32)?)
    };
    let indices = call.tensor_as(5, DType::Int64)?;
    let table = call.shape(weight)?;
    check_rank(&table, 2, "an embedding table")?;
    let packed = 8 / bits;
    let width = table[1].to_usize()? * packed;
    let mut shape = call.frame.builder.shape(indices)?;
    shape.push(width.to_dim());
    let indices_of = call.indices(false);
    let inputs: Vec<OutletId> = [weight.outlet, scales, indices]
        .into_iter()
        .chain(zeros)
        .collect();
    let wire = call.kernel(
        "Embedding",
        DType::Float32,
        &shape,
        &inputs,
        move |inputs| {
            let rows = inputs[0].shape()[0];
            let table = inputs[0].as_bytes();
            let signed = inputs[0].datum_type() == DatumType::I8;
            let scales_view = inputs[1].try_as_plain_ram()?;
            let scales = scales_view.as_slice::<f32>()?;
            let zeros_view = inputs.get(3).map(|zeros| zeros.try_as_plain_ram());
            let zeros_view = zeros_view.transpose()?;
            let zeros = zeros_view.as_ref().map(PlainView::as_slice::<f32>);
            let zeros = zeros.transpose()?;
            ensure!(
                rows > 0 && scales.len().is_multiple_of(rows),
                "number of scales is not a multiple of the rows: {} scales, {rows} rows",
                scales.len()
            );
            ensure!(
                zeros.is_none_or(|zeros| zeros.len() == scales.len()),
                "numbers of scales and zero points differ: {} scales",
                scales.len()
            );
            let groups = scales.len() / rows;
            ensure!(
                groups > 0 && width.is_multiple_of(groups),
                "rows of width {width} are not divisible into {groups} groups"
            );
            let group = width / groups;
            let mut values = Vec::new();
            for index in ints(&inputs[2])? {
                let row = indices_of.place(index, rows)?;
                let bytes = &table[row * width / packed..(row + 1) * width / packed];
                for at in 0..width {
                    let place = row * groups + at / group;
                    let q = f32::from(unpack_element(bytes, at, bits, signed));
                    let zero = zeros.map_or(0.0, |zeros| zeros[place]);
                    values.push((q - zero) * scales[place]);
                }
            }
            let mut shape = inputs[2].shape().to_vec();
            shape.push(width);
            Tensor::from_shape(&shape, &values)
        },
    )?;
    call.set_output(out, wire)
}

/// Returns element `at` of a row, which is stored without a sign.
///
/// Elements of 4 bits are packed from the highest bits of a byte, elements of 2 bits from the
/// lowest.
fn unpack_element(bytes: &[u8], at: usize, bits: usize, signed: bool) -> i16 {
    match bits {
        4 => {
            let byte = bytes[at / 2];
            let part = if at.is_multiple_of(2) {
                byte >> 4
            } else {
                byte & 15
            };
            i16::from(part) - 8
        }
        2 => i16::from(bytes[at / 4] >> (2 * (at % 4)) & 3) - 2,
        _ if signed => i16::from(i8::from_le_bytes([bytes[at]])),
        _ => i16::from(bytes[at]),
    }
}
