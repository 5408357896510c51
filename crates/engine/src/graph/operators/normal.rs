//! Lowers normalisation by mean and variance.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::super::builder::Wire;
use super::call::{LoweringTable, OperatorCall};
use crate::graph::kernel::Kernel;
use crate::graph::pool::computed_anew;
use crate::tensor::DType;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::{Moments, normalise_rows};

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::native_layer_norm.out"], layer_norm),
    (&["aten::native_group_norm.out"], group_norm),
    (
        &["aten::_native_batch_norm_legit_no_training.out"],
        batch_norm,
    ),
    (
        &["aten::_native_batch_norm_legit.no_stats_out"],
        batch_statistics,
    ),
];

/// Normalises each row to mean 0 and variance 1. Returns the rows and the moments of each.
fn normalise(inputs: &[TValue], row: usize, eps: f32) -> TractResult<(Tensor, Vec<Moments>)> {
    let cpu = Cpu::chosen();
    let row = row.max(1);
    let mut moments = vec![Moments::default(); inputs[0].len() / row];
    let output = computed_anew(inputs[0].shape(), inputs, |from, to, split| {
        normalise_rows(cpu, (row, eps), from[0], to, &mut moments, split)
    })?;
    Ok((output, moments))
}

/// Normalises rows of the last `inner` dimensions, then scales and shifts them by tensors of that
/// shape.
fn layer_norm(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let inner = call.dims(1)?.len();
    let eps = epsilon(call, 4)?;
    let shape = call.frame.builder.shape(input)?;
    ensure!(
        inner <= shape.len(),
        "invalid normalised shape: {inner} of {} dimensions",
        shape.len()
    );
    let lead = shape.len() - inner;
    let mut moments: Vec<TDim> = shape.clone();
    moments[lead..].fill(TDim::Val(1));
    let wires = normalised(call, input, &shape, &moments, eps, move |shape| {
        shape[lead..].iter().product()
    })?;
    let outlet = scaled(call, wires[0], [2, 3], |call, at| {
        call.tensor_as(at, DType::Float32)
    })?;
    give(call, 5, [outlet, wires[1], wires[2]])
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the runtime computes in float32"
)]
fn epsilon(call: &mut OperatorCall<'_, '_>, at: usize) -> TractResult<f32> {
    Ok(call.double(at)? as f32)
}

fn normalised(
    call: &mut OperatorCall<'_, '_>,
    input: OutletId,
    shape: &[TDim],
    moments: &[TDim],
    eps: f32,
    row: impl Fn(&[usize]) -> usize + Send + Sync + 'static,
) -> TractResult<TVec<OutletId>> {
    let fact = |shape: &[TDim]| f32::fact(shape);
    let facts = tvec!(fact(shape), fact(moments), fact(moments));
    let rank = moments.len();
    let kernel = Kernel::new("Normalise", facts, move |inputs| {
        let row = row(inputs[0].shape());
        let (rows, moments) = normalise(inputs, row, eps)?;
        let mut shape = inputs[0].shape().to_vec();
        // Outer dimensions keep their sizes; those of a row become 1.
        let mut left = row;
        for at in (0..shape.len()).rev() {
            if left <= 1 {
                break;
            }
            left /= shape[at].max(1);
            shape[at] = 1;
        }
        let shape = if shape.len() == rank {
            shape
        } else {
            vec![moments.len()]
        };
        let of_rows = |moment: fn(&Moments) -> f32| {
            let values: Vec<f32> = moments.iter().map(moment).collect();
            Tensor::from_shape(&shape, &values)
        };
        let means = of_rows(|moments| moments.mean)?;
        let scales = of_rows(|moments| moments.scale)?;
        Ok(tvec!(rows, means, scales))
    });
    call.frame.builder.wire_all(kernel, &[input])
}

/// Multiplies normalised values by the weight and adds the bias, if the call has them.
fn scaled(
    call: &mut OperatorCall<'_, '_>,
    outlet: OutletId,
    [weight, bias]: [usize; 2],
    fetch: impl Fn(&mut OperatorCall<'_, '_>, usize) -> TractResult<OutletId>,
) -> TractResult<OutletId> {
    let mut outlet = outlet;
    if !call.is_none(weight)? {
        let weight = fetch(call, weight)?;
        outlet = call.binary(Box::new(math::Mul), outlet, weight)?;
    }
    if !call.is_none(bias)? {
        let bias = fetch(call, bias)?;
        outlet = call.binary(Box::new(math::Add), outlet, bias)?;
    }
    Ok(outlet)
}

fn give(call: &mut OperatorCall<'_, '_>, first: usize, outlets: [OutletId; 3]) -> TractResult<()> {
    for (at, outlet) in outlets.into_iter().enumerate() {
        call.set_output(first + at, Wire::float(outlet))?;
    }
    Ok(())
}

/// Reshapes a vector of channels to `[c, 1, ..]`, to broadcast with an image of this rank.
fn channels(call: &mut OperatorCall<'_, '_>, at: usize, rank: usize) -> TractResult<OutletId> {
    let mut outlet = call.tensor_as(at, DType::Float32)?;
    for axis in 1..rank.saturating_sub(1) {
        outlet = call.wire(AxisOp::Add(axis), &[outlet])?;
    }
    Ok(outlet)
}

fn group_norm(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let shape = call.frame.builder.shape(input)?;
    let groups = call.int(6)?;
    let eps = epsilon(call, 7)?;
    ensure!(
        shape.len() >= 2 && groups > 0,
        "invalid group normalisation of {} dimensions",
        shape.len()
    );
    let rank = shape.len();
    let per_row = usize::try_from(groups)?;
    let moments = [(shape[0].clone() * groups).reduce()];
    let wires = normalised(call, input, &shape, &moments, eps, move |shape| {
        shape[1..].iter().product::<usize>() / per_row
    })?;
    let outlet = scaled(call, wires[0], [1, 2], |call, at| channels(call, at, rank))?;
    let moments = [shape[0].clone(), groups.to_dim()];
    let mean = call.frame.builder.reshape(wires[1], &moments)?;
    let scale = call.frame.builder.reshape(wires[2], &moments)?;
    give(call, 8, [outlet, mean, scale])
}

/// Computes `(x - mean) / √(variance + eps) · weight + bias` for each channel.
fn batch_norm(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let rank = call.frame.builder.rank(input)?;
    let mean = channels(call, 3, rank)?;
    let variance = channels(call, 4, rank)?;
    let eps = epsilon(call, 6)?;
    let builder = &mut call.frame.builder;
    let eps = builder.float(eps, 0)?;
    let variance = builder.binary(Box::new(math::Add), variance, eps)?;
    let scale = builder.unary(math::rsqrt(), variance)?;
    let centred = builder.binary(Box::new(math::Sub), input, mean)?;
    let outlet = builder.binary(Box::new(math::Mul), centred, scale)?;
    let outlet = scaled(call, outlet, [1, 2], |call, at| channels(call, at, rank))?;
    // The saved statistics are only for training and stay empty.
    let empty = Tensor::zero::<f32>(&[0])?;
    let empty = call
        .builder()
        .constant(Arc::new(empty), DType::Float32)?
        .outlet;
    give(call, 7, [outlet, empty, empty])
}

/// Batch normalisation with the mean and variance of the input itself.
fn batch_statistics(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let shape = call.frame.builder.shape(input)?;
    let eps = epsilon(call, 5)?;
    let rank = shape.len();
    ensure!(
        rank >= 2,
        "the input has no channels: expected rank 2 or more, got {rank}"
    );
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(0, 1);
    let swapped = call.frame.builder.transpose(input, &order)?;
    let swapped_shape = call.frame.builder.shape(swapped)?;
    let wires = normalised(
        call,
        swapped,
        &swapped_shape,
        &[shape[1].clone()],
        eps,
        |shape| shape[1..].iter().product(),
    )?;
    let outlet = call.frame.builder.transpose(wires[0], &order)?;
    let outlet = scaled(call, outlet, [1, 2], |call, at| channels(call, at, rank))?;
    give(call, 6, [outlet, wires[1], wires[2]])
}
