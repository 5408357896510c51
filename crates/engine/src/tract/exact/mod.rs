//! Correct implementations of operators that the tract library computes wrongly.
//!
//! They are installed at three points, each at the earliest one where the defect is visible:
//! builders of ONNX operators ([`register`]), the graph before the library optimises it
//! ([`prepare`]), and the plan before it runs ([`settle`]). Tensors that are known while a graph is
//! built go through all three ([`folded`]).
//!
//! Invariant: values that the library computes correctly cost only a check.

mod cast;
mod compress;
mod cut;
mod einsum;
mod expand;
mod extreme;
mod folded;
mod gemm;
mod mask;
mod mean;
mod mended;
mod modulo;
mod numbers;
mod pointwise;
mod pool;
mod product;
mod quantize;
mod reduce;
mod scalar;
mod sequences;
mod slice;
mod top;
mod wide;
mod wrapped;

pub(super) use cast::CAST_TO_INT64;
pub(super) use mask::ADDITIVE_MASK;
pub(super) use sequences::FULL_SEQUENCES;

use tract_linalg::multithread::Executor;
use tract_onnx::Onnx;
use tract_onnx::tract_core::internal::{TractResult, TypedModel, TypedOp};

use super::node_operator::{Builder, operator};
use super::runner::{Mending, PlanError, Runner};

/// The corrections for optimised graphs.
pub(super) const CORRECTIONS: Mending = Mending {
    functions: pointwise::function_of,
    pin: slice::pin_steps,
    finalise: settle,
};

/// Replaces builders of the library by those of this module.
pub(super) fn register(library: &mut Onnx) {
    register_corrections(library);
    for name in folded::CHECKED_OPERATORS {
        library.op_register.insert(name, folded::build);
    }
    for name in wide::summing_operators() {
        library.op_register.insert(name, wide::build);
    }
}

/// The corrected operators by name.
const CORRECTED_OPERATORS: [(&str, Builder); 26] = [
    (CAST_TO_INT64, |_, _| cast::to_dimensions()),
    ("Compress", compress::compress),
    ("CumSum", scalar::cumsum),
    ("Einsum", einsum::einsum),
    ("Gemm", gemm::gemm),
    ("GlobalLpPool", pool::global_lp_pool),
    ("MatMul", |_, _| gemm::matmul()),
    ("MatMulInteger", gemm::matmul_integer),
    ("Mean", |_, _| operator("Mean", None, mean::Mean)),
    (ADDITIVE_MASK, mask::additive),
    ("Mod", modulo::modulo),
    ("Pow", |_, _| operator("Pow", 2, numbers::Pow)),
    ("Range", scalar::range),
    ("ReduceL1", reduce::build),
    ("ReduceL2", reduce::build),
    ("ReduceLogSum", reduce::build),
    ("ReduceLogSumExp", reduce::build),
    ("ReduceMax", reduce::build),
    ("ReduceMean", reduce::build),
    ("ReduceMin", reduce::build),
    ("ReduceSum", reduce::build),
    ("ReduceSumSquare", reduce::build),
    ("Slice", cut::build),
    (FULL_SEQUENCES, |_, _| sequences::build()),
    ("TopK", top::build),
    ("Trilu", scalar::trilu),
];

fn register_corrections(library: &mut Onnx) {
    let operators = &mut library.op_register;
    for (name, build) in CORRECTED_OPERATORS {
        operators.insert(name, build);
    }
    for row in &pointwise::MAPPED_FUNCTIONS {
        operators.insert(row.name, pointwise::mapped);
    }
}

/// Plans the graph that `build` returns, with all corrections.
pub(super) fn runner(
    executor: &Executor,
    optimise: bool,
    build: impl FnOnce() -> TractResult<TypedModel>,
) -> Result<Runner, PlanError> {
    Runner::new(executor, optimise, || prepare(build()?), CORRECTIONS)
}

/// Corrects a graph before it is optimised. An error names a part that cannot be planned correctly.
fn prepare(mut model: TypedModel) -> TractResult<TypedModel> {
    expand::prepare(&mut model)?;
    product::prepare(&mut model);
    pool::prepare(&model)?;
    numbers::prepare(&mut model)?;
    extreme::prepare(&mut model)?;
    quantize::prepare(&mut model)?;
    folded::prepare(&mut model)?;
    Ok(model)
}

/// Returns a graph in which repeated tensors stay repeated, whatever the library's optimiser does
/// with them.
pub(super) fn repeated(mut model: TypedModel) -> TractResult<TypedModel> {
    expand::prepare(&mut model)?;
    Ok(model)
}

/// Corrects an optimised graph, whose operators do not change any more.
fn settle(model: &mut TypedModel) {
    for node in &mut model.nodes {
        let replaced = settled(&node.name, node.op.as_ref());
        if let Some(replaced) = replaced {
            node.op = replaced;
        }
    }
}

/// Returns the replacement of this operator of the node of this name, if it needs one.
fn settled(name: &str, operator: &dyn TypedOp) -> Option<Box<dyn TypedOp>> {
    pointwise::settled(operator)
        .or_else(|| extreme::settled(operator))
        .or_else(|| quantize::settled(operator))
        .or_else(|| product::settled(name, operator))
}
