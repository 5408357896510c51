//! Replaces float32 convolutions with constant weights by kernels of this crate.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cnn::{Conv, KernelFormat, PoolSpec};
use tract_onnx::tract_core::ops::nn::DataFormat;

use super::chain::Chain;
use crate::graph::images::{over_images, window};
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
    let Some(conv) = node.op_as::<Conv>() else {
        return Ok(None);
    };
    let Some(weights) = ConvolutionWeights::of(model, node, conv)? else {
        return Ok(None);
    };
    let input = model.outlet_fact(node.inputs[0])?;
    let (rank, spatial) = (input.rank(), conv.pool_spec.rank());
    let format = conv.pool_spec.data_format;
    let has_images = format.has_n();
    let is_ours = input.datum_type == DatumType::F32
        && (1..=2).contains(&spatial)
        && rank == spatial + 1 + usize::from(has_images);
    if !is_ours {
        return Ok(None);
    }
    let (last, first) = (rank - 1, usize::from(has_images));
    let axis = if format.c_is_last() { last } else { first };
    let chain = Chain::after(
        model,
        node.id.into(),
        &weights.kernel,
        conv.output_channels(),
        axis,
    )?;
    // The library handles convolutions that the kernel rejects, and reports their errors.
    let Ok(kernel) = weights.kernel(conv, &chain, cpu) else {
        return Ok(None);
    };
    let spec = PoolSpec {
        data_format: DataFormat::NHWC,
        ..conv.pool_spec.clone()
    };
    let mut patch = TypedModelPatch::new("convolution on this crate's kernels");
    let name = &node.name;
    let mut inputs = tvec!(node.inputs[0]);
    inputs.extend(chain.added);
    let mut images = patch.taps(model, &inputs)?;
    for image in &mut images {
        if axis != last {
            let inward = AxisOp::Move(axis, last);
            *image = patch.wire_node(format!("{name}.channels_last"), inward, &[*image])?[0];
        }
        if !has_images {
            *image = patch.wire_node(format!("{name}.one"), AxisOp::Add(0), &[*image])?[0];
        }
    }
    let (fact, bytes) = (patch.outlet_fact(images[0])?, kernel.bytes());
    let run = move |placed: &WindowPositions, from: &[&[f32]], to: &mut [f32], split| {
        kernel.run(placed, from[0], from.get(1).copied(), to, split)
    };
    let operator = over_images("Convolve", spec, fact, bytes, run)?;
    let mut output = patch.wire_node(name, operator, &images)?[0];
    if !has_images {
        output = patch.wire_node(format!("{name}.alone"), AxisOp::Rm(0), &[output])?[0];
    }
    if axis != last {
        let outward = AxisOp::Move(last, axis);
        output = patch.wire_node(format!("{name}.channels"), outward, &[output])?[0];
    }
    patch.shunt_outside(model, chain.end, output)?;
    Ok(Some(patch))
}

/// Weights `[o, h, w, i]`, and the bias of each channel.
struct ConvolutionWeights {
    kernel: Vec<f32>,
    bias: Vec<f32>,
}

impl ConvolutionWeights {
    /// Returns the weights of a convolution, if they are float32 constants.
    fn of(model: &TypedModel, node: &TypedNode, conv: &Conv) -> TractResult<Option<Self>> {
        if conv.q_params.is_some() || node.inputs.len() != 3 {
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
        let channels = conv.output_channels();
        if conv.group > 1 && conv.kernel_fmt != KernelFormat::OIHW || channels == 0 {
            return Ok(None);
        }
        let spatial = kernel.rank() - 2;
        let mut order: Vec<usize> = Vec::from([conv.kernel_fmt.o_axis(kernel.shape())]);
        order.extend((0..spatial).map(|at| conv.kernel_fmt.h_axis() + at));
        order.push(conv.kernel_fmt.i_axis(kernel.shape()));
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
    fn kernel(mut self, conv: &Conv, chain: &Chain, cpu: Cpu) -> Result<FloatConvolution, String> {
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
        let spec = &conv.pool_spec;
        let window = window(spec)?;
        let channels = Channels {
            input: spec.input_channels,
            output: spec.output_channels,
            groups: conv.group,
        };
        let bias = Some(&*self.bias);
        FloatConvolution::new(cpu, window, channels, &self.kernel, bias, chain.activation)
    }
}
