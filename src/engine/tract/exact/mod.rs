//! Operators that the library computes wrongly, computed rightly.
//!
//! Three places to do so, the earliest that can see what is wrong: builders of ONNX operators
//! ([`register`]), the graph before the library optimises it ([`prepare`]), the plan before it runs
//! ([`settle`]). Invariant: what is not wrong for the values at hand costs no more than a look at them.

mod cast;
mod einsum;
mod expand;
mod extreme;
mod mask;
mod mended;
mod modulo;
mod pointwise;
mod pool;
mod product;
mod quantize;
mod reduce;
mod slice;

pub(super) use cast::CAST_TO_INT64;
pub(super) use mask::ADDITIVE_MASK;

use tract_onnx::Onnx;
use tract_onnx::tract_core::internal::{TractResult, TypedModel};

/// Puts builders of ours in place of the library's.
pub(super) fn register(library: &mut Onnx) {
    let operators = &mut library.op_register;
    operators.insert(CAST_TO_INT64, cast::to_dimensions);
    operators.insert("Einsum", einsum::einsum);
    operators.insert("GlobalLpPool", pool::global_lp_pool);
    operators.insert(ADDITIVE_MASK, mask::additive);
    operators.insert("Mish", pointwise::mish);
    operators.insert("Mod", modulo::modulo);
    operators.insert("ReduceLogSumExp", reduce::log_sum_exp);
    operators.insert("ReduceMax", reduce::max);
    operators.insert("ReduceMin", reduce::min);
    operators.insert("ReduceSum", reduce::sum);
    operators.insert("Selu", pointwise::selu);
    operators.insert("Shrink", pointwise::shrink);
    operators.insert("Celu", pointwise::celu);
}

/// Looks at a graph before it is optimised; an error says what cannot be planned rightly.
pub(super) fn prepare(mut model: TypedModel) -> TractResult<TypedModel> {
    slice::prepare(&mut model)?;
    expand::prepare(&mut model)?;
    product::prepare(&mut model);
    pool::prepare(&model)?;
    Ok(model)
}

/// Looks at an optimised graph: its operators do not change any more.
pub(super) fn settle(model: &mut TypedModel) {
    for node in &mut model.nodes {
        let op = node.op.clone();
        let replaced = pointwise::settled(op.as_ref())
            .or_else(|| extreme::settled(op.as_ref()))
            .or_else(|| quantize::settled(op.as_ref()))
            .or_else(|| product::settled(&node.name, op.as_ref()));
        if let Some(replaced) = replaced {
            node.op = replaced;
        }
    }
}
