//! MLX convolutions of tensors with channels last.

use tract_onnx::tract_core::internal::*;

use super::{InstructionTable, MlxInstruction, MlxLowering};
use crate::graph::builder::Builder;
use crate::graph::calling::CallArg;

/// Suffixes of the fields for each axis, by the number of spatial dimensions.
const AXIS_SUFFIXES: [&[&str]; 3] = [&[""], &["_h", "_w"], &["_d", "_h", "_w"]];

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (&["Conv1D"], |lowering, node| {
        convolution(lowering, node, AXIS_SUFFIXES[0], false)
    }),
    (&["Conv2D"], |lowering, node| {
        convolution(lowering, node, AXIS_SUFFIXES[1], false)
    }),
    (&["Conv3D"], |lowering, node| {
        convolution(lowering, node, AXIS_SUFFIXES[2], false)
    }),
    (&["ConvTranspose1D"], |lowering, node| {
        convolution(lowering, node, AXIS_SUFFIXES[0], true)
    }),
    (&["ConvTranspose2D"], |lowering, node| {
        convolution(lowering, node, AXIS_SUFFIXES[1], true)
    }),
    (&["ConvTranspose3D"], |lowering, node| {
        convolution(lowering, node, AXIS_SUFFIXES[2], true)
    }),
];

/// Lowers a convolution of `[batch, .., channels]` by `[out, .., in / groups]`.
fn convolution(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    axes: &[&str],
    transposed: bool,
) -> TractResult<()> {
    let (x, weight) = (lowering.tensor(node, "x")?, lowering.tensor(node, "w")?);
    let rank = axes.len() + 2;
    ensure!(
        lowering.shape(x)?.len() == rank && lowering.shape(weight)?.len() == rank,
        "invalid rank of a convolution over {} dimensions",
        axes.len()
    );
    let each = |name: &str| -> TractResult<CallArg> {
        let numbers = axes
            .iter()
            .map(|axis| lowering.int(node, &format!("{name}{axis}")));
        let numbers: Vec<i64> = numbers.collect::<TractResult<_>>()?;
        Ok(CallArg::from(numbers.as_slice()))
    };
    let (stride, padding, dilation) = (each("stride")?, each("padding")?, each("dilation")?);
    let more = if transposed {
        each("output_padding")?
    } else {
        CallArg::from(vec![0; axes.len()].as_slice())
    };
    let groups = lowering.int(node, "groups")?;
    let channels_first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let channels_last: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let input = lowering.permute(x, &channels_first)?;
    let mut kernel = lowering.permute_kernel(weight, &channels_first)?;
    let rest = |transposed: bool| {
        let rest = [
            stride,
            padding,
            dilation,
            transposed.into(),
            more,
            groups.into(),
        ];
        rest.to_vec()
    };
    let wire = if transposed {
        let builder = &mut lowering.frame.builder;
        kernel.outlet = swap_kernel_channels(builder, kernel.outlet, usize::try_from(groups)?)?;
        let mut args = vec![input.into(), kernel.into(), CallArg::None];
        args.extend(rest(true));
        lowering.aten("aten::convolution.out", args, x.dtype)?
    } else {
        lowering.add_convolution(input, kernel, rest(false))?
    };
    let wire = lowering.permute(wire, &channels_last)?;
    lowering.write_output(node, wire)
}

/// Reorders a kernel `[out, in / groups, ..]` to `[in, out / groups, ..]`.
fn swap_kernel_channels(
    builder: &mut Builder,
    kernel: OutletId,
    groups: usize,
) -> TractResult<OutletId> {
    let shape = builder.shape(kernel)?;
    let (out, each) = (shape[0].to_usize()?, shape[1].to_usize()?);
    ensure!(
        groups > 0 && out.is_multiple_of(groups),
        "{out} channels are not divisible by {groups} groups"
    );
    let dims = |first: &[usize]| -> Vec<TDim> {
        let first = first.iter().map(ToDim::to_dim);
        first.chain(shape[2..].iter().cloned()).collect()
    };
    let kernel = builder.reshape(kernel, &dims(&[groups, out / groups, each]))?;
    let kernel = builder.wire(AxisOp::Move(1, 2), &[kernel])?;
    builder.reshape(kernel, &dims(&[groups * each, out / groups]))
}
