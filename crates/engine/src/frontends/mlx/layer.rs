//! MLX layers: matrix products, normalisation, attention.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::{FrameSlot, InstructionTable, MlxInstruction, MlxLowering, float_dtype};
use crate::graph::attention::AttentionInputs;
use crate::graph::builder::{Builder, Wire};
use crate::graph::calling::{CallArg, CallResult};
use crate::graph::product::matrix_product;
use crate::tensor::DType;

/// Maximum number of elements of a mask computed before a run.
const MAX_CONSTANT_MASK_ELEMENTS: usize = 1 << 22;

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (&["Addmm"], addmm),
    (&["LayerNorm"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let shape = lowering.shape(x)?;
        let last = shape
            .last()
            .cloned()
            .context("the input of a layer norm has no dimensions")?;
        let weight = lowering.optional(node, "weight")?;
        let bias = lowering.optional(node, "bias")?;
        let epsilon = lowering.float(node, "eps")?;
        let args = vec![
            x.into(),
            CallArg::Ints(vec![last]),
            weight.into(),
            bias.into(),
            epsilon.into(),
        ];
        let outs = [float_dtype(x.dtype); 3].map(CallResult::Tensor);
        let given = lowering
            .caller()
            .call("aten::native_layer_norm.out", args, &outs)?;
        match given.first() {
            Some(FrameSlot::Tensor(wire)) => lowering.write_output(node, *wire),
            _ => bail!("the layer norm returned nothing"),
        }
    }),
    (&["RMSNorm"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let weight = lowering.optional(node, "weight")?;
        let epsilon = lowering.float(node, "eps")?;
        let wire = lowering.caller().root_mean_square(x, weight, epsilon)?;
        let wire = lowering.frame.builder.cast(wire, float_dtype(x.dtype))?;
        lowering.write_output(node, wire)
    }),
    (&["Sdpa"], attention),
];

/// Computes `alpha · (mat1 · mat2) + beta · bias`.
fn addmm(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let (a, b) = (
        lowering.tensor(node, "mat1")?,
        lowering.tensor(node, "mat2")?,
    );
    let bias = lowering.optional(node, "bias")?;
    let (alpha, beta) = (
        lowering.float(node, "alpha")?,
        lowering.float(node, "beta")?,
    );
    let builder = &mut lowering.frame.builder;
    let float = DType::Float32;
    let [left, right] = [a, b].map(|wire| builder.cast(wire, float));
    let mut outlet = matrix_product(builder, (left?.outlet, false), (right?.outlet, false))?;
    let rank = builder.rank(outlet)?;
    if alpha.to_bits() != 1_f64.to_bits() {
        let alpha = builder.scalar(alpha, float, rank)?.outlet;
        outlet = builder.binary(Box::new(math::Mul), outlet, alpha)?;
    }
    if let Some(bias) = bias {
        let mut bias = builder.cast(bias, float)?.outlet;
        if beta.to_bits() != 1_f64.to_bits() {
            let beta = builder.scalar(beta, float, 0)?.outlet;
            bias = builder.binary(Box::new(math::Mul), bias, beta)?;
        }
        outlet = builder.binary(Box::new(math::Add), outlet, bias)?;
    }
    let wire = builder.rounded(outlet, a.dtype)?;
    lowering.write_output(node, wire)
}

fn attention(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let queries = lowering.tensor(node, "q")?;
    let (keys, values) = (lowering.tensor(node, "k")?, lowering.tensor(node, "v")?);
    let mask = lowering.optional(node, "mask")?;
    let mask = if lowering.flag(node, "causal")? {
        ensure!(
            mask.is_none(),
            "a mask cannot be combined with the causal mask"
        );
        Some(causal(&mut lowering.frame.builder, queries, keys)?)
    } else {
        mask
    };
    let attention = AttentionInputs {
        queries,
        keys,
        values,
        mask,
        scale: Some(lowering.float(node, "scale")?),
    };
    let builder = &mut lowering.frame.builder;
    let outlet = attention.wire(builder)?;
    let wire = builder.rounded(outlet, queries.dtype)?;
    lowering.write_output(node, wire)
}

/// Returns the causal mask: the last query sees all keys, each query before it one key less.
fn causal(builder: &mut Builder, queries: Wire, keys: Wire) -> TractResult<Wire> {
    let last = |builder: &Builder, wire: Wire| -> TractResult<TDim> {
        let shape = builder.shape(wire.outlet)?;
        let at = shape
            .len()
            .checked_sub(2)
            .context("an attention input has fewer than 2 dimensions")?;
        Ok(shape[at].clone())
    };
    let (rows, columns) = (last(builder, queries)?, last(builder, keys)?);
    let seen = |rows: usize, columns: usize| {
        let places = (0..rows)
            .flat_map(|row| (0..columns).map(move |column| column + rows <= row + columns));
        let places: Vec<bool> = places.collect();
        Tensor::from_shape(&[rows, columns], &places)
    };
    if let (Ok(rows), Ok(columns)) = (rows.to_usize(), columns.to_usize())
        && rows.saturating_mul(columns) <= MAX_CONSTANT_MASK_ELEMENTS
    {
        return builder.constant(Arc::new(seen(rows, columns)?), DType::Bool);
    }
    let inputs = [
        builder.size(&rows, DType::Int64)?,
        builder.size(&columns, DType::Int64)?,
    ];
    builder.kernel(
        "Causal",
        DType::Bool,
        &[rows, columns],
        &inputs,
        move |inputs| {
            let size = |at: usize| -> TractResult<usize> {
                Ok(usize::try_from(inputs[at].cast_to_scalar::<i64>()?)?)
            };
            seen(size(0)?, size(1)?)
        },
    )
}
