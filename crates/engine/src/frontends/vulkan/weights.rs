//! Vulkan layers and embedding tables whose weights alone are quantised.

use tract_onnx::tract_core::internal::*;

use super::args::{at, with_bias};
use super::quantized::{constant, dequantise_8_bits, linear, numbers_of};
use super::{VulkanLowering, WrittenResult};
use crate::graph::builder::{Wire, check_rank, ranked};
use crate::tensor::DType;

/// Lowers a linear layer with 8-bit weights and a scale for each row.
pub(super) fn linear_8_bit(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let wire = lowering.tensor(at(args, 0)?)?;
    product(lowering, wire, [at(args, 1)?, at(args, 2)?], None, out)
}

/// Lowers a linear layer with 8-bit weights, on an input in 8 bits or rounded to 8 bits.
pub(super) fn linear_8_bit_quantised_input(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let wire = lowering.rounded_to_8_bits(args, 1)?;
    let bias = args.get(6).copied();
    product(lowering, wire, [at(args, 3)?, at(args, 5)?], bias, out)
}

fn product(
    lowering: &mut VulkanLowering<'_>,
    wire: Wire,
    [weights, scales]: [usize; 2],
    bias: Option<usize>,
    out: usize,
) -> TractResult<()> {
    let (scales, _) = lowering.floats(scales)?;
    let weights = lowering.floats(weights)?;
    check_rank(&weights.1, 2, "weights")?;
    let (weights, shape) = dequantise_8_bits(weights, &scales)?;
    let bias = match bias {
        Some(bias) => lowering.bias(bias, shape[0])?,
        None => None,
    };
    let weights = constant(lowering.builder, &shape, &weights)?;
    let outlet = linear(lowering, wire, weights)?;
    let outlet = with_bias(lowering, outlet, bias)?;
    lowering.set(out, Wire::float(outlet))
}

/// Unpacks 4-bit codes, stored plus 8, from rows of bytes. `high_first` is the order within a byte.
fn unpack_4_bits(
    (bytes, shape): &(Vec<f32>, Vec<usize>),
    high_first: bool,
) -> TractResult<(Vec<f32>, [usize; 2])> {
    let &[rows, half] = ranked(shape, "weights")?;
    let mut numbers = Vec::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let [low, high] = numbers_of(*byte);
        numbers.extend(if high_first { [high, low] } else { [low, high] });
    }
    Ok((numbers, [rows, half * 2]))
}

/// Lowers a linear layer with 4-bit weights and a scale for each row; the high half of a byte comes
/// first.
pub(super) fn linear_4_bit(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let bytes = lowering.floats(at(args, 1)?)?;
    let (numbers, shape) = unpack_4_bits(&bytes, true)?;
    let (scales, _) = lowering.floats(at(args, 2)?)?;
    let (weights, shape) = dequantise_8_bits((numbers, shape.to_vec()), &scales)?;
    let wire = lowering.tensor(at(args, 0)?)?;
    let weights = constant(lowering.builder, &shape, &weights)?;
    let outlet = linear(lowering, wire, weights)?;
    lowering.set(out, Wire::float(outlet))
}

/// Gathers rows of a 4-bit table, with a scale for each group of a row.
pub(super) fn embedding(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let as_layer = match args.get(4) {
        Some(flag) => lowering.int(*flag)? != 0,
        None => false,
    };
    let bytes = lowering.floats(at(args, 0)?)?;
    let (mut numbers, [rows, size]) = unpack_4_bits(&bytes, !as_layer)?;
    let group = usize::try_from(lowering.int(at(args, 2)?)?)?;
    let (scales, of_scales) = lowering.floats(at(args, 1)?)?;
    ensure!(
        group > 0 && size.is_multiple_of(group),
        "rows of size {size} are not divisible into groups of {group}"
    );
    // One scale for all, or one for each group of each row.
    let each = match of_scales.as_slice() {
        [_, groups] => *groups,
        _ => 0,
    };
    for (place, number) in numbers.iter_mut().enumerate() {
        let (row, column) = (place / size, place % size);
        let scale = scales.get(row * each + if each == 0 { 0 } else { column / group });
        *number *= scale.context("too few scales of the table")?;
    }
    let weights = constant(lowering.builder, &[rows, size], &numbers)?;
    let weights = Wire::float(weights);
    let indices = lowering.tensor(at(args, 3)?)?;
    let indices = lowering.builder.cast(indices, DType::Int64)?;
    let given = vec![
        weights.into(),
        indices.into(),
        (-1).into(),
        false.into(),
        false.into(),
    ];
    let wire = lowering.aten("aten::embedding.out", given, DType::Float32)?;
    lowering.set(out, wire)
}
