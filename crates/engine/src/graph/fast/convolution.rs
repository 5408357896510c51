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
    /// Pixels to add to the sizes of the output, if the convolution is transposed.
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
        let kernel = |window, channels, weights: &[f32], bias: &[f32], slopes: Option<&[f32]>| {
            let activation = chain.activation;
            FloatConvolution::new(cpu, window, channels, weights, Some(bias), activation)?
                .with_slopes(slopes)
        };
        let slopes = chain.slopes.as_deref();
        let spec = replaced.spec;
        let Some(adjustments) = replaced.adjustments else {
            let channels = Channels {
                input: spec.input_channels,
                output: spec.output_channels,
                groups: replaced.groups,
            };
            let windows = ImageWindows::over(spec, size)?;
            let kernel = kernel(windows.window, channels, &self.kernel, &self.bias, slopes)?;
            return Ok(Packed::Plain(windows, kernel));
        };
        let transposed = TransposedImages::new(spec, (size, adjustments), replaced.groups)?;
        let kernels = transposed.kernels(|plan, part| {
            let weights = plan.weights(part, &self.kernel)?;
            let bias = plan.of_channels(part, &self.bias);
            let slopes = slopes.map(|slopes| plan.of_channels(part, slopes));
            kernel(
                part.window,
                part.channels,
                &weights,
                &bias,
                slopes.as_deref(),
            )
        })?;
        Ok(Packed::Transposed(transposed, kernels))
    }
}

#[cfg(test)]
mod tests {
    use tract_onnx::tract_core::internal::*;
    use tract_onnx::tract_core::ops::binary::{BinMiniOp, TypedBinOp};
    use tract_onnx::tract_core::ops::cnn::deconv::Deconv;
    use tract_onnx::tract_core::ops::cnn::{Conv, KernelFormat, PaddingSpec, PoolSpec};
    use tract_onnx::tract_core::ops::logic::{Iff, comp_gt};
    use tract_onnx::tract_core::ops::math::{Add, Max, Min, Mul};
    use tract_onnx::tract_core::ops::nn::{DataFormat, leaky_relu};

    use super::replaced;
    use crate::graph::fast::replace;
    use pkgtool_kernels::Cpu;

    const CHANNELS: [usize; 2] = [3, 5];

    fn numbers(shape: &[usize]) -> TractResult<Tensor> {
        let count = shape.iter().product();
        let number = |at: usize| f32::from(u8::try_from(at * 37 % 251).unwrap_or(0)) / 64.0 - 2.0;
        Tensor::from_shape(shape, &(0..count).map(number).collect::<Vec<f32>>())
    }

    /// The operators after the convolution.
    #[derive(Debug, Clone, Copy)]
    enum Follows {
        Leaky,
        Slopes,
        /// The library's `PReLU`.
        Selected,
        /// Slopes, with a reader of the negative part.
        SlopesAndReader,
    }

    fn model(size: [usize; 2], transposed: bool, follows: Follows) -> TractResult<TypedModel> {
        let mut model = TypedModel::default();
        let [inputs, outputs] = CHANNELS;
        let input = model.add_source("x", f32::fact([2, inputs, size[0], size[1]]))?;
        let narrow = size[1] == 1;
        let kernel_shape = if narrow { [3, 1] } else { [3, 2] };
        let kernel = numbers(&[outputs, inputs, kernel_shape[0], kernel_shape[1]])?;
        let kernel = model.add_const("kernel", kernel)?;
        let bias = model.add_const("bias", numbers(&[outputs])?)?;
        let strides = if narrow { tvec![2, 1] } else { tvec![2, 2] };
        let pool_spec = PoolSpec {
            data_format: DataFormat::NCHW,
            kernel_shape: kernel_shape.as_slice().into(),
            padding: PaddingSpec::Explicit(tvec![1, 0], tvec![1, 0]),
            dilations: None,
            strides: Some(strides),
            input_channels: inputs,
            output_channels: outputs,
        };
        let wires = [input, kernel, bias];
        let kernel_format = KernelFormat::OIHW;
        let x = if transposed {
            let adjustments = tvec![1, 0];
            let op = Deconv {
                pool_spec,
                kernel_format,
                adjustments,
                group: 1,
            };
            model.wire_node("convolution", op, &wires)?[0]
        } else {
            let op = Conv {
                pool_spec,
                kernel_fmt: kernel_format,
                group: 1,
                q_params: None,
            };
            model.wire_node("convolution", op, &wires)?[0]
        };
        if let Follows::Leaky = follows {
            let output = model.wire_node("leaky", leaky_relu(0.25), &[x])?;
            model.select_output_outlets(&output)?;
            return Ok(model);
        }
        let binary = |op: Box<dyn BinMiniOp>| TypedBinOp(op, None);
        let zero = model.add_const("zero", Tensor::from_shape(&[1, 1, 1, 1], &[0.0_f32])?)?;
        let slopes = model.add_const("slopes", numbers(&[1, outputs, 1, 1])?)?;
        if let Follows::Selected = follows {
            let product = model.wire_node("product", binary(Box::new(Mul)), &[x, slopes])?[0];
            let test = model.wire_node("test", binary(comp_gt()), &[zero, x])?[0];
            let output = model.wire_node("choice", Iff, &[test, product, x])?;
            model.select_output_outlets(&output)?;
            return Ok(model);
        }
        let positive = model.wire_node("positive", binary(Box::new(Max)), &[x, zero])?[0];
        let negative = model.wire_node("negative", binary(Box::new(Min)), &[zero, x])?[0];
        let scaled = model.wire_node("scaled", binary(Box::new(Mul)), &[negative, slopes])?[0];
        let sum = model.wire_node("sum", binary(Box::new(Add)), &[positive, scaled])?[0];
        match follows {
            Follows::SlopesAndReader => model.select_output_outlets(&[sum, negative])?,
            _ => model.select_output_outlets(&[sum])?,
        }
        Ok(model)
    }

    #[test]
    fn negative_results_are_multiplied_in_the_convolution() -> TractResult<()> {
        for size in [[7, 6], [9, 1]] {
            for transposed in [false, true] {
                for follows in [
                    Follows::Leaky,
                    Follows::Slopes,
                    Follows::Selected,
                    Follows::SlopesAndReader,
                ] {
                    let mut model = model(size, transposed, follows)?;
                    let input = numbers(&[2, CHANNELS[0], size[0], size[1]])?.into_tvalue();
                    let wanted = model.clone().into_runnable()?.run(tvec![input.clone()])?;
                    replace(&mut model, Cpu::chosen(), &[replaced])?;
                    let left = model
                        .nodes()
                        .iter()
                        .filter(|node| node.op_is::<TypedBinOp>());
                    let expected = if let Follows::SlopesAndReader = follows {
                        4
                    } else {
                        0
                    };
                    assert_eq!(left.count(), expected, "{size:?} {transposed} {follows:?}");
                    let found = model.into_runnable()?.run(tvec![input])?;
                    for (found, wanted) in found.iter().zip(&wanted) {
                        found.close_enough(wanted, Approximation::Close)?;
                    }
                }
            }
        }
        Ok(())
    }
}
