//! Products of matrices chosen by indices, as in mixture-of-experts layers.

use tract_onnx::tract_core::internal::*;

use super::quantized::real;
use super::{InstructionTable, MlxInstruction, MlxLowering, Wire, joint_dtype};
use crate::graph::product::matrix_product;
use crate::tensor::DType;

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (&["GatherMm"], |lowering, node| {
        let [a, b] = lowering.pair(node)?;
        let dtype = joint_dtype(a, b);
        let left = gather_matrices(lowering, node, a, "lhs_indices")?;
        let right = gather_matrices(lowering, node, b, "rhs_indices")?;
        product(lowering, node, left, (right, false), dtype)
    }),
    (&["GatherQmm"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let weights = real(lowering, node)?;
        let swapped = lowering.flag(node, "transpose")?;
        let left = gather_matrices(lowering, node, x, "lhs_indices")?;
        let right = gather_matrices(lowering, node, weights, "rhs_indices")?;
        product(lowering, node, left, (right, swapped), x.dtype)
    }),
];

/// Gathers matrices of a batch by row-major indices. Without indices, returns all of them.
fn gather_matrices(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    x: Wire,
    name: &str,
) -> TractResult<Wire> {
    let x = lowering.frame.builder.cast(x, DType::Float32)?;
    let Some(indices) = lowering.optional(node, name)? else {
        return Ok(x);
    };
    let builder = &mut lowering.frame.builder;
    let indices = builder.cast(indices, DType::Int64)?;
    let shape = builder.shape(x.outlet)?;
    ensure!(
        shape.len() >= 2,
        "invalid rank of matrices: expected 2 or more, got {}",
        shape.len()
    );
    let (batch, matrix) = shape.split_at(shape.len() - 2);
    let mut flat = vec![batch.iter().cloned().product::<TDim>().reduce()];
    flat.extend(matrix.iter().cloned());
    let outlet = builder.reshape(x.outlet, &flat)?;
    lowering.caller().rows(Wire { outlet, ..x }, indices, 0)
}

fn product(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    left: Wire,
    (right, swapped): (Wire, bool),
    dtype: DType,
) -> TractResult<()> {
    let builder = &mut lowering.frame.builder;
    let outlet = matrix_product(builder, (left.outlet, false), (right.outlet, swapped))?;
    let wire = builder.rounded(outlet, dtype)?;
    lowering.write_output(node, wire)
}
