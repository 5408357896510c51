//! Vulkan operators with quantised weights. Weights become real numbers; values are rounded where
//! the graph rounds.
//!
//! Layouts are those of the exporter (`vulkan/_passes` and `vulkan/patterns` of ExecuTorch 1.5).
//! Weights of convolutions are rows of kernel height, width and channels. Each row is padded to a
//! multiple of four.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::args::{at, with_bias};
use super::{VulkanLowering, VulkanValue, WrittenResult};
use crate::graph::builder::{Builder, Wire, check_rank, ranked};
use crate::graph::calling::CallArg;
use crate::graph::kernel::Kernel;
use crate::graph::operators::einsum;
use crate::tensor::DType;

/// Scale and zero point of a value rounded to 8 bits.
#[derive(Clone, Copy)]
struct QuantParams {
    scale: f64,
    zero: i64,
}

impl VulkanLowering<'_> {
    pub(super) fn double(&self, value: usize) -> TractResult<f64> {
        match self.graph.values[value] {
            VulkanValue::Double(double) => Ok(double),
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            VulkanValue::Int(int) => Ok(int as f64),
            _ => bail!("value {value} is not a number"),
        }
    }

    pub(super) fn int(&self, value: usize) -> TractResult<i64> {
        match self.graph.values[value] {
            VulkanValue::Int(int) => Ok(int),
            VulkanValue::Bool(bool) => Ok(bool.into()),
            _ => bail!("value {value} is not an integer"),
        }
    }

    fn quant_params(&self, args: &[usize], place: usize) -> TractResult<QuantParams> {
        Ok(QuantParams {
            scale: self.double(at(args, place)?)?,
            zero: self.int(at(args, place + 1)?)?,
        })
    }

    /// Returns the elements of a constant as floats, and its shape.
    pub(super) fn floats(&mut self, value: usize) -> TractResult<(Vec<f32>, Vec<usize>)> {
        let known = self.constant_elements(value)?;
        let floats = known.cast_to::<f32>()?;
        let floats = floats.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
        Ok((floats, known.shape().to_vec()))
    }

    /// Returns the first elements of a bias, if it is present.
    pub(super) fn bias(&mut self, value: usize, count: usize) -> TractResult<Option<Arc<Tensor>>> {
        if matches!(self.graph.values[value], VulkanValue::Null) {
            return Ok(None);
        }
        let (floats, _) = self.floats(value)?;
        ensure!(
            floats.len() >= count,
            "bias too short: got {}, expected {count}",
            floats.len()
        );
        Ok(Some(Arc::new(tensor1(&floats[..count]))))
    }

    /// Dequantises a tensor.
    fn real(&mut self, value: usize, steps: QuantParams) -> TractResult<Wire> {
        let wire = self.tensor(value)?;
        let args = quantization(wire, steps);
        let name = "quantized_decomposed::dequantize_per_tensor.out";
        self.aten(name, args, DType::Float32)
    }

    /// Returns a tensor's 8-bit values as real numbers. Floats are rounded to 8 bits first.
    pub(super) fn rounded_to_8_bits(&mut self, args: &[usize], place: usize) -> TractResult<Wire> {
        let value = at(args, 0)?;
        let steps = self.quant_params(args, place)?;
        let wire = self.tensor(value)?;
        if !wire.dtype.is_float() {
            return self.real(value, steps);
        }
        let name = "quantized_decomposed::quantize_per_tensor.out";
        let codes = self.aten(name, quantization(wire, steps), DType::Int8)?;
        let name = "quantized_decomposed::dequantize_per_tensor.out";
        let args = quantization(codes, steps);
        self.aten(name, args, DType::Float32)
    }

    /// Rounds a result to 8 bits and writes it.
    fn write_quantised(&mut self, out: usize, wire: Wire, steps: QuantParams) -> TractResult<()> {
        let args = quantization(wire, steps);
        let name = "quantized_decomposed::quantize_per_tensor.out";
        let wire = self.aten(name, args, DType::Int8)?;
        self.set(out, wire)
    }

    fn activated(&mut self, wire: Wire, activation: usize) -> TractResult<Wire> {
        let VulkanValue::Text(name) = &self.graph.values[activation] else {
            bail!("the name of the activation is missing");
        };
        match name.as_str() {
            "none" => Ok(wire),
            "relu" => self.aten("aten::relu.out", vec![wire.into()], DType::Float32),
            other => bail!("unsupported activation `{other}`"),
        }
    }
}

/// Returns the arguments of a conversion from or to 8 bits.
fn quantization(wire: Wire, steps: QuantParams) -> Vec<CallArg> {
    vec![
        wire.into(),
        CallArg::Double(steps.scale),
        steps.zero.into(),
        CallArg::from(-128),
        CallArg::from(127),
        CallArg::None,
    ]
}

pub(super) fn constant(
    builder: &mut Builder,
    shape: &[usize],
    values: &[f32],
) -> TractResult<OutletId> {
    let tensor = Tensor::from_shape(shape, values)?;
    Ok(builder.constant(Arc::new(tensor), DType::Float32)?.outlet)
}

/// Returns the numbers in the low and the high half of a byte. Their codes are stored plus 8.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was a byte"
)]
pub(super) fn numbers_of(byte: f32) -> [f32; 2] {
    let byte = byte as u8;
    [byte & 15, byte >> 4].map(|bits| f32::from(bits) - 8.0)
}

/// Unpacks 4-bit weights to floats.
///
/// Bytes are `[out, in / 2]`. The low half of a byte is the even column, and codes are stored plus
/// 8. The scale of an element is `scales(row, group)`.
fn unpack_4_bits(
    (bytes, shape): &(Vec<f32>, Vec<usize>),
    group: usize,
    scales: impl Fn(usize, usize) -> Option<f32>,
) -> TractResult<Vec<f32>> {
    let &[_, half] = ranked(shape, "weights")?;
    ensure!(
        group > 0 && half > 0,
        "invalid weight groups: size {group}, rows of {half} bytes"
    );
    let mut weights = Vec::with_capacity(bytes.len() * 2);
    for (row, bytes) in bytes.chunks(half).enumerate() {
        for (place, byte) in bytes.iter().enumerate() {
            for (odd, number) in numbers_of(*byte).into_iter().enumerate() {
                let scale =
                    scales(row, (2 * place + odd) / group).context("too few scales of weights")?;
                weights.push(number * scale);
            }
        }
    }
    Ok(weights)
}

/// Lowers a linear layer with 4-bit weights, which have a scale for each group of a row.
///
/// `places` are the argument positions of input, weights, scales `[groups, out]`, group size and
/// bias. `rows` are the positions of the scales and zero points by which input rows are rounded to
/// 8 bits.
pub(super) fn linear4(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
    places: [usize; 5],
    rows: Option<[usize; 2]>,
) -> TractResult<()> {
    let [input, weights, scales, group, bias] = places.map(|place| at(args, place));
    let group = usize::try_from(lowering.int(group?)?)?;
    let weights = lowering.floats(weights?)?;
    let (scales, of_scales) = lowering.floats(scales?)?;
    let &[_, count] = ranked(&of_scales, "scales")?;
    let weights_shape = [weights.1[0], weights.1.get(1).copied().unwrap_or(0) * 2];
    let weights = unpack_4_bits(&weights, group, |row, group| {
        (row < count).then(|| scales.get(group * count + row).copied())?
    })?;
    let bias = match bias {
        Ok(bias) => lowering.bias(bias, weights_shape[0])?,
        Err(_) => None,
    };
    let mut wire = lowering.tensor(input?)?;
    if let Some(rows) = rows {
        let [scale, zero] = rows.map(|place| lowering.tensor(at(args, place)?));
        wire = round_rows(lowering, wire, scale?, zero?)?;
    }
    let weights = constant(lowering.builder, &weights_shape, &weights)?;
    let outlet = linear(lowering, wire, weights)?;
    let outlet = with_bias(lowering, outlet, bias)?;
    lowering.set(out, Wire::float(outlet))
}

/// Multiplies by the rows of a matrix, without its padding columns beyond the input's size.
pub(super) fn linear(
    lowering: &mut VulkanLowering<'_>,
    wire: Wire,
    weights: OutletId,
) -> TractResult<OutletId> {
    let builder = &mut *lowering.builder;
    let input = builder.cast(wire, DType::Float32)?.outlet;
    let shape = builder.shape(input)?;
    let rank = shape.len();
    ensure!(
        (1..=6).contains(&rank),
        "invalid rank of a linear layer's input: expected 1 to 6, got {rank}"
    );
    let weights = builder.slice(weights, 1, 0, shape[rank - 1].clone())?;
    let lead = &"abcdef"[..rank - 1];
    einsum(
        builder,
        &format!("{lead}k,nk->{lead}n"),
        &[input, weights],
        DType::Float32,
    )
}

/// Rounds rows to 8 bits and returns them as real numbers.
fn round_rows(
    lowering: &mut VulkanLowering<'_>,
    wire: Wire,
    scale: Wire,
    zero: Wire,
) -> TractResult<Wire> {
    let builder = &mut *lowering.builder;
    let input = builder.cast(wire, DType::Float32)?.outlet;
    let scale = builder.cast(scale, DType::Float32)?.outlet;
    let zero = builder.cast(zero, DType::Float32)?.outlet;
    let shape = builder.shape(input)?;
    builder.kernel(
        "RoundRows",
        DType::Float32,
        &shape,
        &[input, scale, zero],
        |inputs| {
            let row = inputs[0].shape().last().copied().unwrap_or(1).max(1);
            let mut rounded = Tensor::clone(&inputs[0]);
            let (scales, zeros) = (inputs[1].try_as_plain_ram()?, inputs[2].try_as_plain_ram()?);
            let (scales, zeros) = (scales.as_slice::<f32>()?, zeros.as_slice::<f32>()?);
            let mut view = rounded.try_as_plain_ram_mut()?;
            let rows = view.as_slice_mut::<f32>()?.chunks_mut(row);
            ensure!(
                rows.len() == scales.len() && scales.len() == zeros.len(),
                "numbers of rows, scales and zero points differ: {} rows, {} scales",
                rows.len(),
                scales.len()
            );
            for ((row, scale), zero) in rows.zip(scales).zip(zeros) {
                for x in row {
                    let code = (*x * scale.recip()).round_ties_even() + zero;
                    *x = (code.clamp(-128.0, 127.0) - zero) * scale;
                }
            }
            Ok(rounded)
        },
    )
}

/// Computes scale and zero point of each row: 255 steps over a range that includes 0.
///
/// Matches `torchao.choose_qparams_affine`, asymmetric.
pub(super) fn choose(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let mapping = at(args, 1)?;
    let VulkanValue::Text(mapping) = &lowering.graph.values[mapping] else {
        bail!("the mapping is missing");
    };
    ensure!(mapping == "ASYMMETRIC", "unsupported mapping `{mapping}`");
    let limits = [lowering.int(at(args, 4)?)?, lowering.int(at(args, 5)?)?];
    ensure!(
        limits == [-128, 127],
        "unsupported range of codes: {limits:?}"
    );
    let epsilon = match lowering.graph.values[at(args, 6)?] {
        #[expect(clippy::cast_possible_truncation, reason = "computed in float32")]
        VulkanValue::Double(epsilon) => epsilon as f32,
        _ => f32::EPSILON,
    };
    let VulkanValue::Values(results) = &lowering.graph.values[out] else {
        bail!("expected two results, got one");
    };
    let &[scales, zeros] = results.as_slice() else {
        bail!(
            "wrong number of results: got {}, expected two",
            results.len()
        );
    };
    let input = lowering.tensor(at(args, 0)?)?;
    let input = lowering.builder.cast(input, DType::Float32)?.outlet;
    let shape = lowering.builder.shape(input)?;
    let Some((_, lead)) = shape.split_last() else {
        bail!("the input has no dimensions");
    };
    let facts = tvec!(f32::fact(lead), f32::fact(lead));
    let kernel = Kernel::new("ChooseRows", facts, move |inputs| {
        let shape = inputs[0].shape();
        let row = shape.last().copied().unwrap_or(1).max(1);
        let view = inputs[0].try_as_plain_ram()?;
        let rows = view.as_slice::<f32>()?.chunks(row);
        let chosen: Vec<[f32; 2]> = rows.map(|row| row_qparams(row, epsilon)).collect();
        let column = |at: usize| {
            let values: Vec<f32> = chosen.iter().map(|pair| pair[at]).collect();
            Tensor::from_shape(&shape[..shape.len() - 1], &values)
        };
        Ok(tvec!(column(0)?, column(1)?))
    });
    let outlets = lowering.builder.wire_all(kernel, &[input])?;
    let dtype = DType::Float32;
    for (value, outlet) in [scales, zeros].into_iter().zip(outlets) {
        lowering.set(value, Wire { outlet, dtype })?;
    }
    Ok(())
}

/// Computes the scale and zero point of a row.
fn row_qparams(row: &[f32], epsilon: f32) -> [f32; 2] {
    let (low, high) = row.iter().fold((0.0_f32, 0.0_f32), |(low, high), x| {
        (low.min(*x), high.max(*x))
    });
    let scale = ((high - low) / 255.0).max(epsilon);
    let zero = -128.0 - (low / scale).round_ties_even();
    [scale, zero.clamp(-128.0, 127.0)]
}

/// Dequantises 8-bit weights `[out, ..]`, with a scale for each row.
pub(super) fn dequantise_8_bits(
    (codes, shape): (Vec<f32>, Vec<usize>),
    scales: &[f32],
) -> TractResult<(Vec<f32>, Vec<usize>)> {
    let rows = shape.first().copied().unwrap_or(0);
    ensure!(
        rows > 0 && scales.len() >= rows,
        "too few scales: got {} for {rows} rows",
        scales.len()
    );
    let row = codes.len() / rows;
    let scaled = codes.chunks(row.max(1)).zip(scales);
    let values = scaled.flat_map(|(codes, scale)| codes.iter().map(move |code| code * scale));
    Ok((values.collect(), shape))
}

/// Computes a linear layer on 8-bit rows. Weights are argument 3, scales argument 5.
fn product8(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    wire: Wire,
    bias: Option<usize>,
) -> TractResult<Wire> {
    let (scales, _) = lowering.floats(at(args, 5)?)?;
    let weights = lowering.floats(at(args, 3)?)?;
    let (weights, shape) = dequantise_8_bits(weights, &scales)?;
    let rows = shape[0];
    let weights = constant(lowering.builder, &shape, &weights)?;
    let outlet = linear(lowering, wire, weights)?;
    let bias = match bias {
        Some(bias) => lowering.bias(bias, rows)?,
        None => None,
    };
    let outlet = with_bias(lowering, outlet, bias)?;
    let dtype = DType::Float32;
    Ok(Wire { outlet, dtype })
}

/// Lowers a linear layer with 8-bit input and output.
pub(super) fn linear8(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let steps = lowering.quant_params(args, 1)?;
    let wire = lowering.real(at(args, 0)?, steps)?;
    let wire = product8(lowering, args, wire, Some(at(args, 8)?))?;
    let wire = lowering.activated(wire, at(args, 9)?)?;
    let steps = lowering.quant_params(args, 6)?;
    lowering.write_quantised(out, wire, steps)
}

/// Layouts of convolution weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WeightLayout {
    /// Rows of kernel height, width, channels, padded at their ends.
    General,
    /// `[height, width, channels]`.
    Depthwise,
    /// The general layout, with a row for each output channel, of a transposed convolution.
    Transposed,
}

/// Lowers a convolution with 8-bit input and output.
pub(super) fn convolution(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
    kind: WeightLayout,
) -> TractResult<()> {
    let transposed = kind == WeightLayout::Transposed;
    // Only transposed convolutions have an extra output size, after the padding.
    let (wanted, behind) = if transposed { (16, 13) } else { (15, 12) };
    ensure!(
        args.len() == wanted,
        "wrong number of arguments: got {}, expected {wanted}",
        args.len()
    );
    let (dilation, groups_at, activation) = (args[behind], args[behind + 1], args[behind + 2]);
    let steps = lowering.quant_params(args, 1)?;
    let wire = lowering.real(args[0], steps)?;
    let (mut scales, _) = lowering.floats(args[5])?;
    let codes = lowering.floats(args[3])?;
    let VulkanValue::Ints(kernel) = &lowering.graph.values[args[9]] else {
        bail!("the kernel size is missing");
    };
    let &[height, width] = ranked(kernel, "a kernel")?;
    let (height, width) = (usize::try_from(height)?, usize::try_from(width)?);
    let groups = usize::try_from(lowering.int(groups_at)?)?.max(1);
    let codes = if kind == WeightLayout::Depthwise {
        depthwise_weights(codes)?
    } else {
        let channels = lowering.builder.shape(wire.outlet)?;
        check_rank(&channels, 4, "a convolution")?;
        general_weights(codes, [height, width, channels[1].to_usize()? / groups])?
    };
    let rows = codes.1[0];
    if transposed && groups > 1 {
        // Scales belong to the rows of one group and are the same for all groups.
        let each = rows / groups;
        ensure!(
            each > 0 && scales.len() >= each,
            "too few scales: got {} for {each} rows",
            scales.len()
        );
        scales = (0..rows).map(|row| scales[row % each]).collect();
    }
    let (weights, shape) = dequantise_8_bits(codes, &scales)?;
    let mut weights = constant(lowering.builder, &shape, &weights)?;
    if transposed {
        weights = swap_weight_channels(lowering.builder, weights, &shape, groups)?;
    }
    let dtype = DType::Float32;
    let bias = lowering.bias(args[8], rows)?;
    let bias = match bias {
        Some(bias) => Some(lowering.builder.constant(bias, dtype)?),
        None => None,
    };
    let weights = Wire {
        outlet: weights,
        dtype,
    };
    let more = if transposed {
        lowering.arg(args[12])?
    } else {
        CallArg::from([0, 0].as_slice())
    };
    let given = vec![
        wire.into(),
        weights.into(),
        bias.into(),
        lowering.arg(args[10])?,
        lowering.arg(args[11])?,
        lowering.arg(dilation)?,
        transposed.into(),
        more,
        lowering.arg(groups_at)?,
    ];
    let wire = lowering.aten("aten::convolution.out", given, dtype)?;
    let wire = lowering.activated(wire, activation)?;
    let steps = lowering.quant_params(args, 6)?;
    lowering.write_quantised(out, wire, steps)
}

/// Reorders weights `[out, in / groups, height, width]` to `[in, out / groups, height, width]`.
fn swap_weight_channels(
    builder: &mut Builder,
    weights: OutletId,
    shape: &[usize],
    groups: usize,
) -> TractResult<OutletId> {
    let &[rows, channels, height, width] = shape else {
        bail!("invalid rank of weights: expected 4, got {}", shape.len());
    };
    ensure!(
        rows.is_multiple_of(groups),
        "{rows} channels are not divisible by {groups} groups"
    );
    let dims = |sizes: &[usize]| sizes.iter().map(ToDim::to_dim).collect::<Vec<TDim>>();
    let split = [groups, rows / groups, channels, height, width];
    let weights = builder.reshape(weights, &dims(&split))?;
    let weights = builder.wire(AxisOp::Move(1, 2), &[weights])?;
    let joined = [groups * channels, rows / groups, height, width];
    builder.reshape(weights, &dims(&joined))
}

/// Reorders weights `[height, width, channels]` to `[channels, 1, height, width]`.
fn depthwise_weights(
    (codes, shape): (Vec<f32>, Vec<usize>),
) -> TractResult<(Vec<f32>, Vec<usize>)> {
    let &[height, width, channels] = ranked(&shape, "weights")?;
    let mut rows = Vec::with_capacity(codes.len());
    for channel in 0..channels {
        rows.extend(codes.iter().skip(channel).step_by(channels));
    }
    Ok((rows, vec![channels, 1, height, width]))
}

/// Reorders rows of height, width, channels to `[out, channels, height, width]`.
fn general_weights(
    (codes, shape): (Vec<f32>, Vec<usize>),
    [height, width, channels]: [usize; 3],
) -> TractResult<(Vec<f32>, Vec<usize>)> {
    let &[count, stored] = ranked(&shape, "weights")?;
    let area = height * width;
    ensure!(
        area * channels <= stored && stored > 0,
        "weight rows too short: {stored} for {height}x{width} of {channels} channels"
    );
    let mut rows = Vec::with_capacity(count * area * channels);
    for row in codes.chunks(stored) {
        for channel in 0..channels {
            rows.extend((0..area).map(|place| row[place * channels + channel]));
        }
    }
    Ok((rows, vec![count, channels, height, width]))
}

/// Adds two 8-bit tensors; the second one is multiplied by a factor.
pub(super) fn add(lowering: &mut VulkanLowering<'_>, args: &[usize], out: usize) -> WrittenResult {
    let steps = lowering.quant_params(args, 2)?;
    let a = lowering.real(at(args, 0)?, steps)?;
    let steps = lowering.quant_params(args, 4)?;
    let b = lowering.real(at(args, 1)?, steps)?;
    let alpha = lowering.double(at(args, 8)?)?;
    let builder = &mut *lowering.builder;
    let rank = builder.rank(b.outlet)?;
    let alpha = builder.scalar(alpha, DType::Float32, rank)?.outlet;
    let b = builder.binary(Box::new(math::Mul), b.outlet, alpha)?;
    let outlet = builder.binary(Box::new(math::Add), a.outlet, b)?;
    let dtype = DType::Float32;
    let steps = lowering.quant_params(args, 6)?;
    lowering.write_quantised(out, Wire { outlet, dtype }, steps)
}

/// Sets negative 8-bit values to zero.
pub(super) fn relu(lowering: &mut VulkanLowering<'_>, args: &[usize], out: usize) -> WrittenResult {
    let steps = lowering.quant_params(args, 1)?;
    let wire = lowering.real(at(args, 0)?, steps)?;
    let name = "aten::relu.out";
    let wire = lowering.aten(name, vec![wire.into()], DType::Float32)?;
    let steps = lowering.quant_params(args, 3)?;
    lowering.write_quantised(out, wire, steps)
}

/// Lowers an 8-bit pixel shuffle. The output's scale is passed as its reciprocal.
pub(super) fn pixel_shuffle(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let steps = lowering.quant_params(args, 1)?;
    let wire = lowering.real(at(args, 0)?, steps)?;
    let given = vec![wire.into(), lowering.int(at(args, 5)?)?.into()];
    let name = "aten::pixel_shuffle.out";
    let wire = lowering.aten(name, given, DType::Float32)?;
    let mut steps = lowering.quant_params(args, 3)?;
    steps.scale = steps.scale.recip();
    lowering.write_quantised(out, wire, steps)
}
