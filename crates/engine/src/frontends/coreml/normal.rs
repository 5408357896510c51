//! Core ML normalisation layers.

use tract_onnx::tract_core::internal::*;

use super::shape::padded;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::Wire;
use crate::graph::calling::CallArg;
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["batch_norm"], batch_norm),
    (&["instance_norm"], instance_norm),
    (&["l2_norm"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let epsilon = lowering.float(operation, "epsilon", 1e-6)?;
        let square = lowering.binary("mul", x, x)?;
        let sum = lowering.sum(square, &[-3, -2, -1], true)?;
        let sum = lowering.binary("add", sum, epsilon)?;
        let root = lowering.function("sqrt", sum)?;
        lowering.binary("div", x, root).map(one)
    }),
    (&["layer_norm"], layer_norm),
    (&["local_response_norm"], local),
];

/// Lowers layer normalisation over any dimensions, which are moved to the end.
fn layer_norm(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let mut x = lowering.tensor(operation, "x")?;
    let rank = lowering.shape(x)?.len();
    let mut axes = lowering
        .axes(operation, rank)?
        .unwrap_or_else(|| (0..rank).collect());
    axes.sort_unstable();
    axes.dedup();
    let others = (0..rank).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = others.chain(axes.iter().copied()).collect();
    x = lowering.permuted(x, &order)?;
    let shape = lowering.shape(x)?;
    let gamma = lowering.optional_tensor(operation, "gamma")?;
    let beta = lowering.optional_tensor(operation, "beta")?;
    let epsilon = lowering.float(operation, "epsilon", 1e-5)?;
    let args = vec![
        x.into(),
        CallArg::Ints(shape[rank - axes.len()..].to_vec()),
        gamma.into(),
        beta.into(),
        epsilon.into(),
    ];
    let dtype = lowering.dtype(operation)?;
    let wire = lowering.first("aten::native_layer_norm.out", args, &[dtype; 3])?;
    let mut back = vec![0; rank];
    for (place, axis) in order.into_iter().enumerate() {
        back[axis] = place;
    }
    lowering.permuted(wire, &back).map(one)
}

fn batch_norm(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let gamma = lowering.optional_tensor(operation, "gamma")?;
    let beta = lowering.optional_tensor(operation, "beta")?;
    let mean = lowering.tensor(operation, "mean")?;
    let variance = lowering.tensor(operation, "variance")?;
    let epsilon = lowering.float(operation, "epsilon", 1e-5)?;
    let args = vec![
        x.into(),
        gamma.into(),
        beta.into(),
        mean.into(),
        variance.into(),
        CallArg::Double(0.1),
        epsilon.into(),
    ];
    let dtype = lowering.dtype(operation)?;
    let name = "aten::_native_batch_norm_legit_no_training.out";
    lowering.first(name, args, &[dtype; 3]).map(one)
}

/// Returns the argument `x`, its shape, and the number of positions of a channel.
fn image(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
) -> TractResult<(Wire, Vec<TDim>, TDim)> {
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    ensure!(
        shape.len() > 2,
        "invalid rank of a normalisation: expected 3 or more, got {}",
        shape.len()
    );
    let area = shape[2..].iter().cloned().product();
    Ok((x, shape, area))
}

/// Lowers instance normalisation, as group normalisation with a group for each channel.
fn instance_norm(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let (x, shape, area) = image(lowering, operation)?;
    let gamma = lowering.optional_tensor(operation, "gamma")?;
    let beta = lowering.optional_tensor(operation, "beta")?;
    let epsilon = lowering.float(operation, "epsilon", 1e-5)?;
    let args = vec![
        x.into(),
        gamma.into(),
        beta.into(),
        CallArg::Int(shape[0].clone()),
        CallArg::Int(shape[1].clone()),
        CallArg::Int(area),
        CallArg::Int(shape[1].clone()),
        epsilon.into(),
    ];
    let dtype = lowering.dtype(operation)?;
    lowering
        .first("aten::native_group_norm.out", args, &[dtype; 3])
        .map(one)
}

/// Divides by a power of the scaled mean square of `size` neighbouring channels plus `k`.
fn local(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let (x, shape, area) = image(lowering, operation)?;
    let size = lowering.int(operation, "size", 1)?;
    ensure!(
        (1..=1 << 16).contains(&size),
        "invalid number of channels in a normalisation: {size}"
    );
    let [alpha, beta, k] = [("alpha", 1e-4), ("beta", 0.75), ("k", 1.0)]
        .map(|(name, default)| lowering.float(operation, name, default));
    let (alpha, beta, k) = (alpha?, beta?, k?);
    let square = lowering.binary("mul", x, x)?;
    let plane = [shape[0].clone(), 1.to_dim(), shape[1].clone(), area];
    let square = lowering.reshaped(square, &plane)?;
    let square = padded(lowering, square, &[size / 2, (size - 1) / 2, 0, 0], 0.0)?;
    let args = vec![
        square.into(),
        [size, 1].as_slice().into(),
        [1, 1].as_slice().into(),
        [0, 0].as_slice().into(),
        false.into(),
        true.into(),
        CallArg::None,
    ];
    let mean = lowering.aten("aten::avg_pool2d.out", args, DType::Float32)?;
    let mean = lowering.reshaped(mean, &shape)?;
    let sum = lowering.binary("mul", mean, alpha)?;
    let sum = lowering.binary("add", sum, k)?;
    let args = vec![sum.into(), beta.into()];
    let power = lowering.aten("aten::pow.Tensor_Scalar_out", args, DType::Float32)?;
    lowering.binary("div", x, power).map(one)
}
