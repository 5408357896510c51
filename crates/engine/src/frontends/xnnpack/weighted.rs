//! Convolutions and fully connected layers on bytes, with constant 8-bit weights.

use tract_onnx::tract_core::internal::*;

use super::bytes::clamp_range;
use super::convolve::pair;
use super::{Held, XnnpackLowering, constant, grid};
use crate::graph::images::{ImageWindows, over_images};
use crate::graph::rows::{product_of_rows, turned};
use crate::graph::transposed::TransposedImages;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::bytes::elementwise::Grid;
use pkgtool_kernels::bytes::{ByteConvolution, ByteProduct, Requantize, convolution, product};
use pkgtool_kernels::transposed::{TransposedPart, TransposedPlan};
use pkgtool_kernels::window::{Channels, Window, WindowPositions};
use pkgtool_model::executorch::xnnpack::{Conv, ConvKind};

/// The parameters of a quantised product: input, grids, weights, bias and requantisation.
struct WeightedParams {
    input: OutletId,
    from: Grid,
    to: Grid,
    /// Weights in their stored order.
    weights: Vec<i8>,
    weight_zero: i32,
    bias: Option<Vec<i32>>,
    requantize: Requantize,
}

impl XnnpackLowering<'_> {
    /// Collects the parameters of a node. Returns `None` unless all values are quantised and the
    /// weights are constant.
    fn weighted(
        &self,
        [input, filter, output]: [u32; 3],
        bias: Option<u32>,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<Option<WeightedParams>> {
        let (Some((input, from)), Some(to)) = (self.bytes(input)?, grid(self.value(output))?)
        else {
            return Ok(None);
        };
        let bias = match bias {
            None => None,
            Some(id) => match constant::read_int32(self.weights, self.value(id))? {
                Some(bias) => Some(bias),
                None => return Ok(None),
            },
        };
        let Some(weights) = constant::read_bytes(self.weights, self.value(filter))? else {
            return Ok(None);
        };
        let scales = weights.scales.iter();
        let range = clamp_range(to, clamp);
        Ok(Some(WeightedParams {
            input,
            from,
            to,
            weights: weights.values,
            weight_zero: weights.zero_point,
            bias,
            requantize: Requantize {
                factors: scales.map(|scale| from.scale * scale / to.scale).collect(),
                zero_point: to.zero_point,
                least: range.least,
                most: range.most,
            },
        }))
    }

    /// Lowers a convolution on bytes. Returns whether a kernel supports it.
    pub(super) fn bytes_conv(
        &mut self,
        conv: &Conv,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let order = match conv.kind {
            ConvKind::Plain | ConvKind::Transposed => [0, 1, 2, 3],
            ConvKind::Depthwise => [3, 1, 2, 0],
        };
        let &[a, b, c, d] = self.value(conv.filter).dims.as_slice() else {
            return Ok(false);
        };
        let ids = [conv.input, conv.filter, conv.output];
        let Some(weighted) = self.weighted(ids, conv.bias, clamp)? else {
            return Ok(false);
        };
        let mut stored = [0; 4];
        for (to, size) in stored.iter_mut().zip([a, b, c, d]) {
            *to = usize::try_from(size)?;
        }
        let [outputs, height, width, inputs] = order.map(|dim| stored[dim]);
        let shape = self.convolution(conv, weighted.input)?;
        let sizes = [outputs, inputs, height, width];
        let weights = match conv.kind {
            // `[1, h, w, o]`: a column for each channel.
            ConvKind::Depthwise if inputs == 1 => &turned(&weighted.weights, outputs),
            ConvKind::Depthwise => return Ok(false),
            _ => &weighted.weights,
        };
        let parts = convolution::ConvolutionParams {
            window: Window::PIXEL,
            channels: Channels {
                input: shape.input_channels,
                output: shape.output_channels,
                groups: shape.groups,
            },
            weights,
            weight_zeros: &[weighted.weight_zero],
            bias: weighted.bias.as_deref(),
            input_zero: weighted.from.zero_point,
            sign_in: weighted.from.sign,
            sign_out: weighted.to.sign,
            requantize: &weighted.requantize,
        };
        let fact = self.builder.model.outlet_fact(weighted.input)?;
        let size = &fact.shape[1..3];
        let kernel = if conv.kind == ConvKind::Transposed {
            let spec = shape.over_transposed(self.builder, weighted.input, &sizes)?;
            let adjustment = pair(conv.adjustment)?;
            let Ok(transposed) = TransposedImages::new(&spec, (size, &adjustment), shape.groups)
            else {
                return Ok(false);
            };
            let Ok(kernels) =
                transposed.kernels(|plan, part| transposed_kernel(plan, part, &parts))
            else {
                return Ok(false);
            };
            let bytes = kernels.iter().map(ByteConvolution::bytes).sum();
            let run = |kernel: &ByteConvolution,
                       placed: &WindowPositions,
                       from: &[u8],
                       to: &mut [u8],
                       split| { kernel.run(placed, from, to, split) };
            transposed.over("ConvolveTransposedBytes", fact, (kernels, bytes), run)?
        } else {
            let spec = shape.over(self.builder, weighted.input, &sizes)?;
            let windows = ImageWindows::over(&spec, size).map_err(TractError::msg)?;
            let parts = convolution::ConvolutionParams {
                window: windows.window,
                ..parts
            };
            let Ok(kernel) = ByteConvolution::new(Cpu::chosen(), &parts) else {
                return Ok(false);
            };
            let bytes = kernel.bytes();
            let run = move |placed: &WindowPositions, from: &[&[u8]], to: &mut [u8], split| {
                kernel.run(placed, from[0], to, split)
            };
            over_images("ConvolveBytes", windows, fact, bytes, run)?
        };
        let outlet = self.builder.wire(kernel, &[weighted.input])?;
        self.held.insert(conv.output, Held::Bytes(outlet));
        Ok(true)
    }

    /// Lowers a fully connected layer on bytes. Returns whether a kernel supports it.
    pub(super) fn bytes_product(
        &mut self,
        ids: [u32; 3],
        bias: Option<u32>,
        transposed: bool,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let &[rows, columns] = self.value(ids[1]).dims.as_slice() else {
            return Ok(false);
        };
        let Some(weighted) = self.weighted(ids, bias, clamp)? else {
            return Ok(false);
        };
        let (rows, columns) = (usize::try_from(rows)?, usize::try_from(columns)?);
        let (weights, [inputs, outputs]) = if transposed {
            (turned(&weighted.weights, columns), [rows, columns])
        } else {
            (weighted.weights, [columns, rows])
        };
        let shape = self.builder.shape(weighted.input)?;
        let last = shape
            .last()
            .context("the input of a product has no dimensions")?;
        ensure!(
            *last == inputs.to_dim(),
            "rows of size {last} do not match weights for {inputs} inputs"
        );
        let parts = product::Parts {
            sizes: [inputs, outputs],
            weights: &weights,
            weight_zeros: &[weighted.weight_zero],
            bias: weighted.bias.as_deref(),
            input_zero: weighted.from.zero_point,
            sign_in: weighted.from.sign,
            sign_out: weighted.to.sign,
            requantize: &weighted.requantize,
        };
        let Ok(kernel) = ByteProduct::new(Cpu::chosen(), &parts) else {
            return Ok(false);
        };
        let bytes = kernel.bytes();
        let run = move |_, from: &[&[u8]], to: &mut [u8], split| kernel.run(from[0], to, split);
        let kernel = product_of_rows("MultiplyRows", &shape, outputs, bytes, run)?;
        let outlet = self.builder.wire(kernel, &[weighted.input])?;
        self.held.insert(ids[2], Held::Bytes(outlet));
        Ok(true)
    }
}

/// Packs a part of a transposed convolution.
fn transposed_kernel(
    plan: &TransposedPlan,
    part: &TransposedPart,
    whole: &convolution::ConvolutionParams<'_>,
) -> Result<ByteConvolution, String> {
    let bias = whole.bias.map(|bias| plan.of_channels(part, bias));
    let mut requantize = whole.requantize.clone();
    if requantize.factors.len() > 1 {
        requantize.factors = plan.of_channels(part, &requantize.factors);
    }
    let parts = convolution::ConvolutionParams {
        window: part.window,
        channels: part.channels,
        weights: &plan.weights(part, whole.weights)?,
        bias: bias.as_deref(),
        requantize: &requantize,
        ..whole.clone()
    };
    ByteConvolution::new(Cpu::chosen(), &parts)
}
