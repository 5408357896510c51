//! Pins the steps of slices and convolutions in a graph, because the library's optimiser moves them
//! wrongly.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::Downsample;
use tract_onnx::tract_core::ops::cnn::Conv;

/// Pins steps at their position. The library would move them before their predecessors. Moved
/// before a softmax or a norm, the sum misses elements. Moved into a convolution, the padding
/// changes. `model` is the graph that the library is about to optimise.
pub(crate) fn pin_steps(model: &mut TypedModel) -> TractResult<()> {
    let mut held = Vec::new();
    for node in model.nodes() {
        let has_steps = node.op_is::<Downsample>() || node.op_as::<Conv>().is_some_and(skips);
        // Known tensors are not affected.
        if has_steps && model.outlet_fact(node.inputs[0])?.konst.is_none() {
            held.push((node.id, node.inputs[0]));
        }
    }
    for (node, from) in held {
        pin(model, node, from)?;
    }
    Ok(())
}

/// Returns `true` if a convolution skips some elements, so that the library would remove them
/// before it.
fn skips(conv: &Conv) -> bool {
    let pool = &conv.pool_spec;
    (0..pool.rank()).any(|axis| {
        let stride = pool.stride(axis);
        let is_apart = pool.kernel_shape[axis] == 1 || pool.dilation(axis).is_multiple_of(stride);
        stride > 1 && is_apart
    })
}

/// Inserts a [`Pinned`] before a node, at its first input.
pub(crate) fn pin(model: &mut TypedModel, node: usize, from: OutletId) -> TractResult<()> {
    let fact = model.outlet_fact(from)?.clone();
    let name = format!("{}.held", model.node(node).name);
    let barrier = model.add_node(name, Pinned, tvec!(fact))?;
    model.add_edge(from, InletId::new(barrier, 0))?;
    model.add_edge(barrier.into(), InletId::new(node, 0))
}

/// Returns a tensor unchanged; the optimiser moves nothing past it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pinned;

impl Op for Pinned {
    fn name(&self) -> StaticName {
        "Held".into()
    }

    op_as_typed_op!();
}

impl EvalOp for Pinned {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        Ok(inputs)
    }
}

impl TypedOp for Pinned {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(tvec!(inputs[0].clone()))
    }

    as_op!();
}
