//! Core ML convolutions and transposed convolutions over one to three dimensions.

use tract_onnx::tract_core::internal::*;

use super::shape::padded;
use super::window::CoremlWindow;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::Wire;
use crate::graph::calling::CallArg;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["conv"], convolution),
    (&["conv_transpose"], transposed_convolution),
];

fn spatial(lowering: &CoremlLowering<'_, '_>, weight: Wire) -> TractResult<Vec<i64>> {
    let shape = lowering.shape(weight)?;
    ensure!(
        shape.len() > 2,
        "invalid rank of a kernel: expected 3 or more, got {}",
        shape.len()
    );
    shape[2..].iter().map(|size| Ok(size.to_i64()?)).collect()
}

/// The tensors of a convolution.
struct ConvolutionOperands {
    x: Wire,
    weight: Wire,
    bias: Option<Wire>,
    /// The sizes of the kernel in space.
    kernel: Vec<i64>,
    /// The sizes of `x`.
    sizes: Vec<TDim>,
}

impl ConvolutionOperands {
    fn read(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> TractResult<Self> {
        let [x, weight] = lowering.pair(operation, ["x", "weight"])?;
        let bias = lowering.optional_tensor(operation, "bias")?;
        let kernel = spatial(lowering, weight)?;
        let sizes = lowering.shape(x)?;
        ensure!(
            sizes.len() == kernel.len() + 2,
            "ranks of the input and the kernel differ: the input has {}",
            sizes.len()
        );
        Ok(Self {
            x,
            weight,
            bias,
            kernel,
            sizes,
        })
    }

    fn window(
        &self,
        lowering: &CoremlLowering<'_, '_>,
        operation: &Operation,
    ) -> TractResult<CoremlWindow> {
        CoremlWindow::read(lowering, operation, &self.kernel, &self.sizes[2..])
    }

    /// Returns the arguments of `aten::convolution`. A transposed convolution extends its result by
    /// `more`.
    fn args(
        &self,
        lowering: &CoremlLowering<'_, '_>,
        operation: &Operation,
        window: &CoremlWindow,
        (pads, more): (&[i64], Option<&[i64]>),
    ) -> TractResult<Vec<CallArg>> {
        let none = vec![0; self.kernel.len()];
        Ok(vec![
            self.x.into(),
            self.weight.into(),
            self.bias.into(),
            window.strides.as_slice().into(),
            pads.into(),
            window.dilations.as_slice().into(),
            more.is_some().into(),
            more.unwrap_or(&none).into(),
            lowering.int(operation, "groups", 1)?.into(),
        ])
    }
}

fn convolution(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let mut operands = ConvolutionOperands::read(lowering, operation)?;
    let window = operands.window(lowering, operation)?;
    let pads = if let Some(pads) = window.symmetric_padding() {
        pads
    } else {
        operands.x = padded(lowering, operands.x, &window.pads, 0.0)?;
        vec![0; operands.kernel.len()]
    };
    let args = operands.args(lowering, operation, &window, (&pads, None))?;
    lowering.result(operation, "aten::convolution.out", args)
}

/// Crop of a transposed convolution along one dimension: elements removed before, and the resulting
/// size.
struct TransposedCrop {
    before: i64,
    size: i64,
}

impl TransposedCrop {
    /// Computes the crop of a `full` size from strides and padding; `wanted` is the requested size.
    fn new(kind: &str, full: i64, even: i64, pads: [i64; 2], wanted: Option<i64>) -> Self {
        let size = wanted.unwrap_or(match kind {
            "same" | "same_lower" => even,
            _ => full - pads[0] - pads[1],
        });
        let all = (full - size).max(0);
        let before = match kind {
            "same" => all / 2,
            "same_lower" => all - all / 2,
            _ => pads[0],
        };
        Self { before, size }
    }
}

/// Lowers a transposed convolution. Padding is cropped from the full result; `output_shape` may
/// extend it at the end.
fn transposed_convolution(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let operands = ConvolutionOperands::read(lowering, operation)?;
    let ConvolutionOperands { kernel, sizes, .. } = &operands;
    let kind = lowering.text(operation, "pad_type", "valid")?;
    let window = operands.window(lowering, operation)?;
    let wanted = lowering.ints(operation, "output_shape")?;
    let wanted = wanted.map(|wanted| {
        let from = wanted.len().checked_sub(kernel.len());
        let wanted = from.map(|from| wanted[from..].to_vec());
        wanted.context("sizes of the result are missing")
    });
    let wanted = wanted.transpose()?;
    let (pads, mut more) = (vec![0; kernel.len()], vec![0; kernel.len()]);
    let mut cuts = Vec::new();
    for at in 0..kernel.len() {
        let reach = window.dilations[at] * (kernel[at] - 1) + 1;
        let pads = [window.pads[2 * at], window.pads[2 * at + 1]];
        let wanted = wanted.as_ref().map(|wanted| wanted[at]);
        let Ok(size) = sizes[at + 2].to_i64() else {
            ensure!(
                wanted.is_none() && (kind == "valid" || kind == "custom"),
                "unsupported padding `{kind}` of a size known only at run time"
            );
            let end = (sizes[at + 2].clone() - 1) * window.strides[at] + reach - pads[1];
            cuts.push((pads[0].to_dim(), end));
            continue;
        };
        let full = (size - 1) * window.strides[at] + reach;
        let cut = TransposedCrop::new(&kind, full, size * window.strides[at], pads, wanted);
        let end = cut.before + cut.size;
        ensure!(
            cut.before >= 0 && cut.size > 0 && end - full < window.strides[at].max(reach),
            "invalid output size {}: {} elements are cropped before, {full} are computed",
            cut.size,
            cut.before
        );
        more[at] = (end - full).max(0);
        cuts.push((cut.before.to_dim(), end.to_dim()));
    }
    let args = operands.args(lowering, operation, &window, (&pads, Some(&more)))?;
    let dtype = lowering.dtype(operation)?;
    let mut wire = lowering.aten("aten::convolution.out", args, dtype)?;
    for (at, (before, end)) in cuts.into_iter().enumerate() {
        let builder = &mut lowering.frame.builder;
        wire.outlet = builder.slice(wire.outlet, at + 2, before, end)?;
    }
    Ok(one(wire))
}
