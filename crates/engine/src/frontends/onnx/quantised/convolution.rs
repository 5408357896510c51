//! Convolutions of bytes with stored weights.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::cnn::{PaddingSpec, PoolSpec};
use tract_onnx::tract_core::ops::nn::DataFormat;
use tract_onnx::tract_hir::internal::*;

use super::node;
use super::product::ProductWeights;
use crate::frontends::onnx::graph::{attribute, integer, text};
use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::images::{ImageWindows, over_images_of_bytes};
use crate::graph::kernel::Kernel;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::bytes::elementwise::Grid;
use pkgtool_kernels::bytes::{ByteConvolution, Sign, convolution};
use pkgtool_kernels::window::{Channels, Window, WindowPositions};

/// Builds a convolution.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let shape = node::shape(node)?;
    let [outputs, inputs, window @ ..] = shape.as_slice() else {
        bail!(
            "expected weights of at least three dimensions, got {}",
            shape.len()
        );
    };
    let groups = usize::try_from(integer(node, "group", 1))?;
    let padding = padding(node, window.len(), false)?;
    let spec = PoolSpec {
        input_channels: inputs * groups,
        output_channels: *outputs,
        ..spec(node, window, padding)?
    };
    let convolution = QuantisedConvolution {
        spec,
        groups,
        from: node::grid(node, "x")?,
        sign: node::grid(node, "y")?.sign,
        weights: ProductWeights::of(node)?,
    };
    operator(node::CONVOLUTION, 2, convolution)
}

/// Returns windows of this shape over images with the channels first.
pub(super) fn spec(
    node: &NodeProto,
    window: &[usize],
    padding: PaddingSpec,
) -> TractResult<PoolSpec> {
    let sizes = |name| -> TractResult<Option<TVec<usize>>> {
        let sizes: Option<Vec<usize>> = node::integers(node, name)?;
        let Some(sizes) = sizes.filter(|sizes| !sizes.is_empty()) else {
            return Ok(None);
        };
        ensure!(
            sizes.len() == window.len() && sizes.iter().all(|size| *size > 0),
            "{name} {sizes:?} does not fit a window {window:?}"
        );
        Ok(Some(sizes.into()))
    };
    let (dilations, strides) = (sizes("dilations")?, sizes("strides")?);
    let format = DataFormat::NCHW;
    let window = window.into();
    Ok(PoolSpec::new(
        format, window, padding, dilations, strides, 0, 0,
    ))
}

/// Returns the padding of images; a pool's last windows may extend beyond it.
pub(super) fn padding(node: &NodeProto, spatial: usize, pools: bool) -> TractResult<PaddingSpec> {
    match text(node, "auto_pad") {
        b"VALID" => return Ok(PaddingSpec::Valid),
        b"SAME_UPPER" => return Ok(PaddingSpec::SameUpper),
        b"SAME_LOWER" => return Ok(PaddingSpec::SameLower),
        b"" | b"NOTSET" => {}
        other => bail!("unknown padding `{}`", String::from_utf8_lossy(other)),
    }
    let pads = attribute(node, "pads").filter(|pads| !pads.ints.is_empty());
    let pads: Vec<usize> = match pads {
        Some(_) => node::integers(node, "pads")?.unwrap_or_default(),
        None => vec![0; 2 * spatial],
    };
    ensure!(
        pads.len() == 2 * spatial,
        "pads {pads:?} do not fit images of {spatial} dimensions"
    );
    let (before, after) = pads.split_at(spatial);
    let ceils = integer(node, "ceil_mode", 0) != 0;
    Ok(if pools {
        PaddingSpec::ExplicitOnnxPool(before.into(), after.into(), ceils)
    } else {
        PaddingSpec::Explicit(before.into(), after.into())
    })
}

/// Returns the same windows over images with the channels last.
pub(super) fn channels_last(spec: &PoolSpec) -> PoolSpec {
    PoolSpec {
        data_format: DataFormat::NHWC,
        ..spec.clone()
    }
}

#[derive(Debug, Clone)]
struct QuantisedConvolution {
    spec: PoolSpec,
    groups: usize,
    from: Grid,
    sign: Sign,
    weights: ProductWeights,
}

impl QuantisedConvolution {
    fn kernel(&self, window: Window, weights: &[i8]) -> TractResult<ByteConvolution> {
        let channels = Channels {
            input: self.spec.input_channels,
            output: self.spec.output_channels,
            groups: self.groups,
        };
        let taps = self.spec.kernel_shape.iter().product::<usize>();
        // Transposes `[o, i, h, w]` to `[o, h, w, i]`.
        let of_output = weights.chunks_exact(channels.input / self.groups * taps);
        let mut turned = Vec::with_capacity(weights.len());
        for weights in of_output {
            for tap in 0..taps {
                turned.extend(weights.iter().skip(tap).step_by(taps));
            }
        }
        let parts = convolution::ConvolutionParams {
            window,
            channels,
            weights: &turned,
            weight_zeros: &self.weights.bytes.zeros(),
            bias: self.weights.bias.as_deref(),
            input_zero: self.from.zero_point,
            sign_in: self.from.sign,
            sign_out: self.sign,
            requantize: &self.weights.requantize,
        };
        ByteConvolution::new(Cpu::chosen(), &parts).map_err(TractError::msg)
    }
}

impl NodeOperator for QuantisedConvolution {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        node::byte_dtypes(s, [self.from.sign, self.sign], [inputs, outputs])?;
        image_ranks(s, &self.spec, [inputs, outputs])?;
        s.equals(&inputs[0].shape[1], self.spec.input_channels.to_dim())?;
        s.equals(&outputs[0].shape[1], self.spec.output_channels.to_dim())?;
        s.given(&inputs[0].shape, move |s, shape| {
            let shape = self.spec.output_shape(&shape)?.shape;
            s.equals(&outputs[0].shape, shape)
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let size = &model.outlet_fact(inputs[0])?.shape[2..];
        let windows = ImageWindows::over(&self.spec, size).map_err(TractError::msg)?;
        let kernel = self.kernel(
            windows.window,
            &self.weights.bytes.signed(model, inputs[1])?,
        )?;
        let bytes = kernel.bytes();
        let run = move |placed: &WindowPositions, from: &[&[u8]], to: &mut [u8], split| {
            kernel.run(placed, from[0], to, split)
        };
        over_images(prefix, model, inputs[0], |fact| {
            let dtype = node::datum_type(self.sign);
            over_images_of_bytes("ConvolveBytes", windows, fact, dtype, bytes, run)
        })
    }
}

/// Adds the rules for the ranks of images and of the results of windows over them.
pub(super) fn image_ranks<'r>(
    s: &mut Solver<'r>,
    spec: &PoolSpec,
    [inputs, outputs]: Tensors<'r>,
) -> InferenceResult {
    let rank = i64::try_from(spec.rank() + 2)?;
    s.equals(&inputs[0].rank, rank)?;
    s.equals(&outputs[0].rank, rank)
}

/// Adds `kernel`, which needs the channels last, to a graph of images with the channels first.
pub(super) fn over_images(
    prefix: &str,
    model: &mut TypedModel,
    images: OutletId,
    kernel: impl FnOnce(&TypedFact) -> TractResult<Kernel>,
) -> TractResult<TVec<OutletId>> {
    let last = model.outlet_fact(images)?.rank() - 1;
    let name = format!("{prefix}.channels_last");
    let images = model.wire_node(name, AxisOp::Move(1, last), &[images])?;
    let kernel = kernel(model.outlet_fact(images[0])?)?;
    let made = model.wire_node(prefix, kernel, &images)?;
    let name = format!("{prefix}.channels");
    model.wire_node(name, AxisOp::Move(last, 1), &made)
}
