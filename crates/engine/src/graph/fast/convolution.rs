//! Replaces float32 convolutions with constant weights, transposed or not, by kernels of this crate.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cnn::deconv::Deconv;
use tract_onnx::tract_core::ops::cnn::{Conv, KernelFormat, PoolSpec};

use super::chain::Chain;
use super::channels_last::ImageAxes;
use crate::graph::images::{ImageWindows, over_images};
use crate::graph::kernel::Kernel;
use crate::graph::transposed::TransposedImages;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::{Channels, FloatConvolution};
use pkgtool_kernels::window::WindowPositions;

/// Returns the replacement of this node and of the chain after it, if it is a float32 convolution
/// with constant weights.
pub(super) fn replaced(
    model: &TypedModel,
    node: &TypedNode,
    cpu: Cpu,
) -> TractResult<Option<TypedModelPatch>> {
    let Some(replaced) = Replaced::of(node) else {
        return Ok(None);
    };
    let Some(weights) = ConvolutionWeights::of(model, node, &replaced)? else {
        return Ok(None);
    };
    let input = model.outlet_fact(node.inputs[0])?;
    let Some(axes) = ImageAxes::of(replaced.spec, input) else {
        return Ok(None);
    };
    let chain = Chain::after(
        model,
        node.id.into(),
        &weights.kernel,
        (replaced.spec.output_channels, axes.channels),
        replaced.adjustments.is_none(),
    )?;
    // The library handles convolutions that the kernel rejects, and reports their errors.
    let size = axes.size(input);
    let Ok(packed) = weights.packed(&replaced, (&chain, size), cpu) else {
        return Ok(None);
    };
    let mut inputs = tvec!(node.inputs[0]);
    inputs.extend(chain.added);
    let operator = |images: &TypedFact| packed.operator(images);
    axes.patch(model, &node.name, (&inputs, chain.end), operator)
        .map(Some)
}

/// A convolution of the library.
struct Replaced<'a> {
    spec: &'a PoolSpec,
    format: KernelFormat,
    groups: usize,
    /// What is added to the sizes of the output, if it is transposed.
    adjustments: Option<&'a [usize]>,
}

impl<'a> Replaced<'a> {
    fn of(node: &'a TypedNode) -> Option<Self> {
        if let Some(conv) = node.op_as::<Conv>() {
            return conv.q_params.is_none().then_some(Self {
                spec: &conv.pool_spec,
                format: conv.kernel_fmt,
                groups: conv.group,
                adjustments: None,
            });
        }
        let deconv = node.op_as::<Deconv>()?;
        Some(Self {
            spec: &deconv.pool_spec,
            format: deconv.kernel_format,
            groups: deconv.group,
            adjustments: Some(&deconv.adjustments),
        })
    }
}

/// The packed kernels of a convolution.
enum Packed {
    Plain(ImageWindows, FloatConvolution),
    Transposed(TransposedImages, Vec<FloatConvolution>),
}

impl Packed {
    /// Returns the operator on images `[n, h, w, c]` of this fact.
    fn operator(self, images: &TypedFact) -> TractResult<Kernel> {
        match self {
            Self::Plain(windows, kernel) => {
                let bytes = kernel.bytes();
                let run =
                    move |placed: &WindowPositions, from: &[&[f32]], to: &mut [f32], split| {
                        kernel.run(placed, from[0], from.get(1).copied(), to, split)
                    };
                over_images("Convolve", windows, images, bytes, run)
            }
            Self::Transposed(transposed, kernels) => {
                let bytes = kernels.iter().map(FloatConvolution::bytes).sum();
                let run =
                    |kernel: &FloatConvolution,
                     placed: &WindowPositions,
                     from: &[f32],
                     to: &mut [f32],
                     split| { kernel.run(placed, from, None, to, split) };
                transposed.over("ConvolveTransposed", images, (kernels, bytes), run)
            }
        }
    }
}

/// Weights `[o, h, w, i]`, and the bias of each channel.
struct ConvolutionWeights {
    kernel: Vec<f32>,
    bias: Vec<f32>,
}

impl ConvolutionWeights {
    /// Returns the weights of a convolution, if they are float32 constants.
    fn of(
        model: &TypedModel,
        node: &TypedNode,
        replaced: &Replaced<'_>,
    ) -> TractResult<Option<Self>> {
        if node.inputs.len() != 3 {
            return Ok(None);
        }
        let known = |at: usize| -> TractResult<Option<Arc<Tensor>>> {
            let known = model.outlet_fact(node.inputs[at])?.konst.clone();
            let is_float =
                |it: &Arc<Tensor>| it.datum_type() == DatumType::F32 && it.is_plain_ram();
            Ok(known.filter(is_float))
        };
        let (Some(kernel), Some(bias)) = (known(1)?, known(2)?) else {
            return Ok(None);
        };
        let (channels, format) = (replaced.spec.output_channels, replaced.format);
        if replaced.groups > 1 && format != KernelFormat::OIHW || channels == 0 {
            return Ok(None);
        }
        let spatial = kernel.rank() - 2;
        let mut order: Vec<usize> = Vec::from([format.o_axis(kernel.shape())]);
        order.extend((0..spatial).map(|at| format.h_axis() + at));
        order.push(format.i_axis(kernel.shape()));
        let kernel = Tensor::clone(&kernel).permute_axes(&order)?;
        let kernel = kernel.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
        let bias = bias.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
        let bias = match bias.len() {
            1 => vec![bias[0]; channels],
            count if count == channels => bias,
            _ => return Ok(None),
        };
        Ok(Some(Self { kernel, bias }))
    }

    /// Returns the packed convolution, with the chain applied to its channels.
    fn packed(
        mut self,
        replaced: &Replaced<'_>,
        (chain, size): (&Chain, &[TDim]),
        cpu: Cpu,
    ) -> Result<Packed, String> {
        let each = self.kernel.len() / self.bias.len();
        let channels = self.kernel.chunks_exact_mut(each.max(1));
        for (((factor, summand), bias), weights) in
            chain.scaled.iter().zip(&mut self.bias).zip(channels)
        {
            *bias = *bias * factor + summand;
            for weight in weights {
                *weight *= factor;
            }
        }
        let kernel = |window, channels, weights: &[f32], bias: &[f32]| {
            FloatConvolution::new(cpu, window, channels, weights, Some(bias), chain.activation)
        };
        let spec = replaced.spec;
        let Some(adjustments) = replaced.adjustments else {
            let channels = Channels {
                input: spec.input_channels,
                output: spec.output_channels,
                groups: replaced.groups,
            };
            let windows = ImageWindows::over(spec, size)?;
            let kernel = kernel(windows.window, channels, &self.kernel, &self.bias)?;
            return Ok(Packed::Plain(windows, kernel));
        };
        let transposed = TransposedImages::new(spec, (size, adjustments), replaced.groups)?;
        let kernels = transposed.kernels(|plan, part| {
            let weights = plan.weights(part, &self.kernel)?;
            kernel(
                part.window,
                part.channels,
                &weights,
                &plan.of_channels(part, &self.bias),
            )
        })?;
        Ok(Packed::Transposed(transposed, kernels))
    }
}
