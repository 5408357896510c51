//! Core ML matrix products, einsum, attention and classifiers.

use tract_onnx::tract_core::internal::*;

use super::held::CoremlOperand;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::attention::AttentionInputs;
use crate::graph::builder::Wire;
use crate::graph::operators::einsum;
use crate::graph::product::matrix_product;
use crate::tensor::DType;

/// The operation that a classifier ends with.
pub(super) const CLASSIFY: &str = "classify";

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&[CLASSIFY], classify),
    (&["einsum"], einsum_formula),
    (&["linear"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let weight = lowering.tensor(operation, "weight")?;
        let bias = lowering.optional_tensor(operation, "bias")?;
        let args = vec![x.into(), weight.into(), bias.into()];
        lowering.result(operation, "aten::linear.out", args)
    }),
    (&["matmul"], matmul),
    (&["scaled_dot_product_attention"], |lowering, operation| {
        let attention = AttentionInputs {
            queries: lowering.tensor(operation, "query")?,
            keys: lowering.tensor(operation, "key")?,
            values: lowering.tensor(operation, "value")?,
            mask: lowering.optional_tensor(operation, "attn_mask")?,
            scale: None,
        };
        let outlet = attention.wire(&mut lowering.frame.builder)?;
        let dtype = DType::Float32;
        Ok(one(Wire { outlet, dtype }))
    }),
];

/// Returns the probabilities as one row. They stand for the most likely label, too, which no engine computes.
fn classify(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let dtype = DType::Float32;
    let wire = lowering.tensor(operation, "probabilities")?;
    let builder = &mut lowering.frame.builder;
    let wire = builder.cast(wire, dtype)?;
    let count: TDim = builder.shape(wire.outlet)?.iter().product();
    let outlet = builder.reshape(wire.outlet, &[1.to_dim(), count])?;
    let row = CoremlOperand::Tensor(Wire { outlet, dtype });
    Ok(vec![row.clone(), row])
}

/// Multiplies matrices with broadcast leading dimensions; a vector on the left is a row.
fn matmul(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let dtype = DType::Float32;
    let [x, y] = ["x", "y"].map(|name| lowering.tensor(operation, name));
    let swapped = ["transpose_x", "transpose_y"].map(|name| lowering.bool(operation, name, false));
    let [swap_x, swap_y] = swapped;
    let (x, y) = (x?, y?);
    let builder = &mut lowering.frame.builder;
    let (mut x, y) = (
        builder.cast(x, dtype)?.outlet,
        builder.cast(y, dtype)?.outlet,
    );
    let is_row = builder.rank(x)? == 1;
    x = builder.with_rank(x, 2)?;
    let mut outlet = matrix_product(builder, (x, swap_x? && !is_row), (y, swap_y?))?;
    if is_row {
        let row = builder.rank(outlet)?.saturating_sub(2);
        outlet = builder.remove(outlet, &[row])?;
    }
    Ok(one(Wire { outlet, dtype }))
}

/// Lowers an einsum formula; dimensions of size 1 broadcast.
fn einsum_formula(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let dtype = DType::Float32;
    let text = lowering.text(operation, "equation", "")?;
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, _) = text
        .split_once("->")
        .context("the einsum formula has no result")?;
    let terms: Vec<Vec<char>> = left.split(',').map(|term| term.chars().collect()).collect();
    let held = lowering.all(operation, "values")?;
    ensure!(
        held.len() == terms.len()
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || ",->".contains(c)),
        "unsupported einsum formula `{text}` of {} tensors",
        held.len()
    );
    let mut wires = Vec::new();
    for (held, term) in held.iter().zip(&terms) {
        let wire = lowering.wire(held)?;
        let outlet = lowering.frame.builder.cast(wire, dtype)?.outlet;
        let shape = lowering.frame.builder.shape(outlet)?;
        ensure!(
            shape.len() == term.len(),
            "rank {} of a tensor does not match the formula `{text}`",
            shape.len()
        );
        wires.push((outlet, shape));
    }
    let size = |letter: char| {
        let dims = wires.iter().zip(&terms);
        let mut dims = dims.flat_map(|((_, shape), term)| shape.iter().zip(term));
        let found = dims.find(|(dim, own)| **own == letter && !dim.is_one());
        found.map_or(TDim::Val(1), |(dim, _)| dim.clone())
    };
    let mut inputs = Vec::new();
    for ((outlet, _), term) in wires.iter().zip(&terms) {
        let shape: Vec<TDim> = term.iter().map(|letter| size(*letter)).collect();
        inputs.push(lowering.frame.builder.expand(*outlet, &shape)?);
    }
    let outlet = einsum(&mut lowering.frame.builder, &text, &inputs, dtype)?;
    Ok(one(Wire { outlet, dtype }))
}
