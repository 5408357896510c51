//! Corrections of what the library computes wrongly, at the earliest point where the defect is visible:
//! the graph before the library optimises it ([`prepare`]), and the plan before it runs ([`settle`]).
//!
//! Invariant: values that the library computes correctly cost only a check.

mod expand;
pub(crate) mod extreme;
mod mended;
mod pointwise;
pub(crate) mod product;
mod reduce;
mod slice;
mod window;

use tract_linalg::multithread::Executor;
use tract_onnx::tract_core::internal::{TractResult, TypedModel, TypedOp};
use tract_onnx::tract_core::ops::konst::Const;

use super::runner::{Mending, PlanError, Runner};

/// The corrections for optimised graphs.
pub(crate) const CORRECTIONS: Mending = Mending {
    functions: pointwise::function_of,
    pin: slice::pin_steps,
    finalise: settle,
};

/// Plans the graph that `build` returns, with all corrections.
pub(crate) fn runner(
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
    window::prepare(&model)?;
    reduce::prepare(&mut model)?;
    extreme::prepare(&mut model)?;
    prepare_known(&mut model)?;
    Ok(model)
}

/// Returns a graph in which repeated tensors stay repeated, whatever the library's optimiser does
/// with them.
pub(crate) fn repeated(mut model: TypedModel) -> TractResult<TypedModel> {
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
pub(crate) fn settled(name: &str, operator: &dyn TypedOp) -> Option<Box<dyn TypedOp>> {
    pointwise::settled(operator)
        .or_else(|| extreme::settled(operator))
        .or_else(|| product::settled(name, operator))
}

/// Replaces operators whose inputs are all known, but were too large to be computed while the graph
/// was built, by corrected ones.
fn prepare_known(model: &mut TypedModel) -> TractResult<()> {
    let mut known = vec![false; model.nodes().len()];
    for id in model.eval_order()? {
        let node = model.node(id);
        let is_constant = node.op_is::<Const>();
        let has_known = !node.inputs.is_empty() && node.inputs.iter().all(|from| known[from.node]);
        known[id] = is_constant || has_known;
        if has_known && let Some(replaced) = settled(&node.name, node.op.as_ref()) {
            model.nodes[id].op = replaced;
        }
    }
    Ok(())
}
