//! The library's own builders of ONNX operators, for operators of this crate that wrap them.

use std::sync::LazyLock;

use tract_onnx::model::{OnnxOpRegister, ParsingContext};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::{
    Expansion, InferenceOp, TractErrorContext as _, TractResult,
};

static BUILDERS: LazyLock<OnnxOpRegister> = LazyLock::new(|| tract_onnx::onnx().op_register);

/// Builds a node as the library itself would.
pub(crate) fn library_operator(
    context: &ParsingContext<'_>,
    node: &NodeProto,
) -> TractResult<(Box<dyn InferenceOp>, Vec<String>)> {
    let build = BUILDERS.0.get(&node.op_type);
    let build = build.with_context(|| format!("the library lacks {}", node.op_type))?;
    build(context, node)
}

/// Like [`library_operator`], for an operator that the library expands into others.
pub(crate) fn library_expansion(
    context: &ParsingContext<'_>,
    node: &NodeProto,
) -> TractResult<Box<dyn Expansion>> {
    let (usual, _) = library_operator(context, node)?;
    let expansion = usual.as_op().downcast_ref::<Box<dyn Expansion>>().cloned();
    expansion.context("expected an expansion from the library")
}
