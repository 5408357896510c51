//! Windows that the library computes wrongly: `MaxPool` of integers that are all minimal returns no
//! position, and windows larger than the padded input are mishandled.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cnn::{Conv, MaxPool, SumPool};

use crate::graph::images::too_large;
use crate::graph::watch::WRONG_RESULT;

/// Rejects positions of maximum integers.
pub(crate) fn prepare(model: &TypedModel) -> TractResult<()> {
    for node in model.nodes() {
        // The context has the form in which the library names the node of a failed run.
        check_window(model, node)
            .with_context(|| format!("Evaluating #{} {:?}", node.id, node.name))?;
        let has_places = node
            .op_as::<MaxPool>()
            .is_some_and(|op| op.with_index_outputs.is_some());
        let is_whole = has_places && model.outlet_fact(node.inputs[0])?.datum_type.is_integer();
        if is_whole {
            bail!("the position of a maximum integer {WRONG_RESULT}");
        }
    }
    Ok(())
}

/// Rejects a window that is larger than the padded input.
fn check_window(model: &TypedModel, node: &TypedNode) -> TractResult<()> {
    let pooled = node.op_as::<MaxPool>().map(|op| &op.pool_spec);
    let pooled = pooled.or_else(|| node.op_as::<SumPool>().map(|op| &op.pool_spec));
    let spec = pooled.or_else(|| node.op_as::<Conv>().map(|op| &op.pool_spec));
    let Some(spec) = spec else {
        return Ok(());
    };
    let input = model.outlet_fact(node.inputs[0])?;
    let shape = spec.data_format.shape(input.shape.to_tvec())?;
    for (axis, size) in shape.hw_dims().iter().enumerate() {
        let Ok(size) = size.to_usize() else {
            continue;
        };
        if let Some(reason) = too_large(spec, axis, size) {
            bail!(reason);
        }
    }
    Ok(())
}
