//! [`Wrapped`]: an operator of an ONNX graph, and another way to compute it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::LazyLock;

use tract_onnx::model::{OnnxOpRegister, ParsingContext};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_hir::internal::*;

use crate::frontends::onnx::node_operator::{Built, Wired};

/// Builders of operators by name, with the replacements of [`super`].
static BUILDERS: LazyLock<OnnxOpRegister> = LazyLock::new(|| {
    let mut library = tract_onnx::onnx();
    super::register_corrections(&mut library);
    library.op_register
});

/// Returns `true` if an operator of this name has an implementation.
pub(crate) fn has_builder(name: &str) -> bool {
    BUILDERS.0.contains_key(name)
}

/// The outputs of an operator; `None` if it needs a plan.
pub(crate) type Evaluated = TractResult<Option<TVec<TValue>>>;

/// Another way to compute an operator.
pub(crate) trait Wrapping: Debug + Clone + Send + Sync + 'static {
    /// Computes the operator without a plan; `None` if it needs one.
    fn eval(&self, inner: &dyn InferenceOp, inputs: TVec<TValue>) -> Evaluated;

    /// Adds the operators that compute it to a graph.
    fn to_typed(&self, inner: &dyn InferenceOp, to: Translation<'_>) -> Wired;
}

/// The translation of a node to a typed graph.
pub(crate) struct Translation<'a> {
    /// The graph of the node.
    pub(crate) source: &'a InferenceModel,
    /// The node.
    pub(crate) node: &'a InferenceNode,
    /// The typed graph.
    pub(crate) target: &'a mut TypedModel,
    /// The tensors of the typed graph, by those of the node's graph.
    pub(crate) mapping: &'a HashMap<OutletId, OutletId>,
}

/// Builds the operator of a node, computed in another way.
pub(crate) fn build(context: &ParsingContext<'_>, node: &NodeProto, by: impl Wrapping) -> Built {
    let builder = BUILDERS.0.get(&node.op_type);
    let builder = builder.with_context(|| format!("the builder of {} is missing", node.op_type))?;
    let (inner, captured) = builder(context, node)?;
    Ok((Box::new(Wrapped { inner, by }), captured))
}

#[derive(Debug, Clone)]
struct Wrapped<W> {
    inner: Box<dyn InferenceOp>,
    by: W,
}

impl<W> PartialEq for Wrapped<W> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl<W> Eq for Wrapped<W> {}

impl<W: Wrapping> Op for Wrapped<W> {
    fn name(&self) -> StaticName {
        self.inner.name()
    }

    fn info(&self) -> TractResult<Vec<String>> {
        self.inner.info()
    }

    fn validation(&self) -> Validation {
        self.inner.validation()
    }

    not_a_typed_op!();
}

impl<W: Wrapping> EvalOp for Wrapped<W> {
    fn eval_out_of_plan(&self, inputs: TVec<TValue>) -> Evaluated {
        self.by.eval(self.inner.as_ref(), inputs)
    }
}

impl<W: Wrapping> InferenceOp for Wrapped<W> {
    fn infer_facts(
        &mut self,
        inputs: TVec<&InferenceFact>,
        outputs: TVec<&InferenceFact>,
        observed: TVec<&InferenceFact>,
    ) -> TractResult<(
        TVec<InferenceFact>,
        TVec<InferenceFact>,
        TVec<InferenceFact>,
    )> {
        self.inner.infer_facts(inputs, outputs, observed)
    }

    fn observe_outlets(
        &self,
        model: &InferenceModel,
        node: &InferenceNode,
    ) -> TractResult<Vec<OutletId>> {
        self.inner.observe_outlets(model, node)
    }

    fn incorporate(
        &self,
        model: &InferenceModel,
        node: &InferenceNode,
    ) -> TractResult<Option<InferenceModelPatch>> {
        self.inner.incorporate(model, node)
    }

    fn nboutputs(&self) -> TractResult<usize> {
        self.inner.nboutputs()
    }

    fn to_typed(
        &self,
        source: &InferenceModel,
        node: &InferenceNode,
        target: &mut TypedModel,
        mapping: &HashMap<OutletId, OutletId>,
    ) -> Wired {
        let to = Translation {
            source,
            node,
            target,
            mapping,
        };
        self.by.to_typed(self.inner.as_ref(), to)
    }

    as_op!();
}
