//! The library's own builders of ONNX operators, for operators of ours that build on them.

use std::sync::LazyLock;

use tract_onnx::model::{OnnxOpRegister, ParsingContext};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::{
    Expansion, InferenceOp, TractErrorContext as _, TractResult,
};

static BUILDERS: LazyLock<OnnxOpRegister> = LazyLock::new(|| tract_onnx::onnx().op_register);

/// A node as the library reads it.
pub(super) fn usual(
    context: &ParsingContext<'_>,
    node: &NodeProto,
) -> TractResult<(Box<dyn InferenceOp>, Vec<String>)> {
    let build = BUILDERS.0.get(&node.op_type);
    let build = build.with_context(|| format!("the library has no {}", node.op_type))?;
    build(context, node)
}

/// The same, of an operator that the library writes out as others.
pub(super) fn usual_expansion(
    context: &ParsingContext<'_>,
    node: &NodeProto,
) -> TractResult<Box<dyn Expansion>> {
    let (usual, _) = usual(context, node)?;
    let expansion = usual.as_op().downcast_ref::<Box<dyn Expansion>>().cloned();
    expansion.context("the library's is an expansion")
}
