//! Operators that compute a subgraph of the model: [`SubgraphOperator`].

use std::collections::HashMap;
use std::fmt::Debug;

use tract_onnx::tract_hir::internal::*;

use crate::frontends::onnx::node_operator::{Built, Wired};

/// An operator with subgraphs.
pub(super) trait SubgraphOperator: Debug + Clone + Send + Sync + 'static {
    /// The operator's name.
    const NAME: &'static str;

    /// Returns the number of outputs.
    fn outputs(&self) -> usize;

    /// Returns the facts of the outputs, as far as they are known; `None` if none is.
    fn infer(&mut self, inputs: &[&InferenceFact]) -> TractResult<Option<TVec<InferenceFact>>>;

    /// Adds the operator to a graph. `first` is the inferred value of its first input.
    fn wire(
        &self,
        first: Option<Arc<Tensor>>,
        prefix: &str,
        target: &mut TypedModel,
        inputs: &[OutletId],
    ) -> Wired;
}

/// Builds an operator that uses these outer tensors.
#[expect(clippy::unnecessary_wraps, reason = "builders have this signature")]
pub(super) fn subgraph_operator(of: impl SubgraphOperator, captured: Vec<String>) -> Built {
    Ok((Box::new(Shell(of)), captured))
}

#[derive(Debug, Clone)]
struct Shell<T>(T);

impl<T> PartialEq for Shell<T> {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl<T> Eq for Shell<T> {}

impl<T: SubgraphOperator> Op for Shell<T> {
    fn name(&self) -> StaticName {
        T::NAME.into()
    }

    not_a_typed_op!();
}

impl<T: SubgraphOperator> EvalOp for Shell<T> {
    not_out_of_plan!();
}

impl<T: SubgraphOperator> InferenceOp for Shell<T> {
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
        let found = self.0.infer(&inputs)?;
        let own = |facts: TVec<&InferenceFact>| facts.into_iter().cloned().collect();
        let mut outputs: TVec<InferenceFact> = own(outputs);
        for (output, found) in outputs.iter_mut().zip(found.iter().flatten()) {
            output.unify_with(found)?;
        }
        Ok((own(inputs), outputs, own(observed)))
    }

    fn nboutputs(&self) -> TractResult<usize> {
        Ok(self.0.outputs())
    }

    fn to_typed(
        &self,
        source: &InferenceModel,
        node: &InferenceNode,
        target: &mut TypedModel,
        mapping: &HashMap<OutletId, OutletId>,
    ) -> Wired {
        let inputs: TVec<OutletId> = node.inputs.iter().map(|outlet| mapping[outlet]).collect();
        let first = node.inputs.first().map(|first| source.outlet_fact(*first));
        let first = first.transpose()?.and_then(|fact| fact.value.concretize());
        self.0.wire(first, &node.name, target, &inputs)
    }

    as_op!();
}
