//! `If`: one of two subgraphs, chosen when the model is planned if the condition is known then, or
//! else when it runs.
//!
//! Only the chosen subgraph is computed. The other one may be impossible for the actual shapes
//! (such as an invalid `Squeeze`), as in models of some exporters.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::body::{SubgraphBody, plain_inputs};
use super::facts::{common, facts_of, outer_fact, without_sizes};
use super::subgraph::{SubgraphOperator, subgraph_operator};
use crate::frontends::onnx::node_operator::{Built, Wired};
use crate::graph::kernel::Kernel;

/// An `If` node of the model.
#[derive(Debug, Clone)]
struct If {
    /// The branches for a true and for a false condition.
    branches: [Branch; 2],
}

#[derive(Debug, Clone)]
struct Branch {
    body: SubgraphBody,
    /// For each input of the graph, the index of the node's input.
    inputs: Vec<usize>,
    /// The last inferred facts of its outputs, with the facts of the inputs they were inferred
    /// from.
    last: Option<(Vec<InferenceFact>, Option<TVec<InferenceFact>>)>,
}

/// Builds the operator of a node.
pub(super) fn build(context: &ParsingContext, node: &NodeProto) -> Built {
    let bodies = [
        SubgraphBody::read(context, node, "then_branch")?.0,
        SubgraphBody::read(context, node, "else_branch")?.0,
    ];
    ensure!(
        bodies[0].outputs() == bodies[1].outputs(),
        "its branches have {} and {} outputs",
        bodies[0].outputs(),
        bodies[1].outputs()
    );
    let mut captured: Vec<String> = Vec::new();
    let branches = bodies.map(|body| {
        let mut inputs = Vec::new();
        for name in &body.captured {
            let known = captured.iter().position(|known| known == name);
            inputs.push(1 + known.unwrap_or(captured.len()));
            if known.is_none() {
                captured.push(name.clone());
            }
        }
        Branch {
            body,
            inputs,
            last: None,
        }
    });
    subgraph_operator(If { branches }, captured)
}

impl Branch {
    /// Returns the facts of its outputs, as far as they are known; `None` if the branch is
    /// impossible.
    fn facts(&mut self, inputs: &[&InferenceFact]) -> Option<TVec<InferenceFact>> {
        let given: Vec<InferenceFact> = self.inputs.iter().map(|at| inputs[*at].clone()).collect();
        match &self.last {
            Some((known, found)) if *known == given => found.clone(),
            _ => {
                let found = self.body.facts(&given).ok();
                self.last = Some((given, found.clone()));
                found
            }
        }
    }

    /// Returns the inputs of the node that this branch uses.
    fn own<T: Clone>(&self, inputs: &[T]) -> TVec<T> {
        self.inputs.iter().map(|at| inputs[*at].clone()).collect()
    }
}

impl SubgraphOperator for If {
    const NAME: &'static str = "If";

    fn outputs(&self) -> usize {
        self.branches[0].body.outputs()
    }

    fn infer(&mut self, inputs: &[&InferenceFact]) -> TractResult<Option<TVec<InferenceFact>>> {
        let condition = inputs[0].value.concretize();
        if let Some(condition) = condition {
            return Ok(self.branches[place(&condition)?].facts(inputs));
        }
        let [yes, no] = &mut self.branches;
        let (Some(yes), Some(no)) = (yes.facts(inputs), no.facts(inputs)) else {
            return Ok(None);
        };
        let pairs = yes.iter().zip(&no);
        Ok(Some(pairs.map(|(yes, no)| common(yes, no)).collect()))
    }

    fn wire(
        &self,
        first: Option<Arc<Tensor>>,
        prefix: &str,
        target: &mut TypedModel,
        inputs: &[OutletId],
    ) -> Wired {
        let condition = target.outlet_fact(inputs[0])?.konst.clone().or(first);
        if let Some(condition) = condition {
            let branch = &self.branches[place(&condition)?];
            return branch.body.write(prefix, target, &branch.own(inputs));
        }
        let inputs = plain_inputs(prefix, target, inputs)?;
        let facts = facts_of(target, &inputs)?;
        let [yes, no] = self
            .branches
            .each_ref()
            .map(|branch| branch.body.facts(&branch.own(&facts)));
        let found: TVec<InferenceFact> = match (yes, no) {
            (Ok(yes), Ok(no)) => {
                let pairs = yes.iter().zip(&no);
                pairs.map(|(yes, no)| common(yes, no)).collect()
            }
            (Err(error), Err(_)) => return Err(error),
            // An impossible branch is an error only if it is chosen. Sizes may differ then.
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => one.iter().map(without_sizes).collect(),
        };
        let facts = found.iter().map(|fact| outer_fact(target, fact));
        let facts = facts.collect::<TractResult<_>>()?;
        let branches = self.branches.clone();
        let chosen = Kernel::of_values(Self::NAME, facts, move |_, inputs| {
            let branch = &branches[place(&inputs[0])?];
            branch.body.run(&branch.own(inputs))
        });
        target.wire_node(prefix, chosen.binding(), &inputs)
    }
}

/// Returns the index of the branch that a condition chooses.
fn place(condition: &Tensor) -> TractResult<usize> {
    let values = condition.try_as_plain_ram()?;
    match values.as_slice::<bool>()? {
        [condition] => Ok(usize::from(!condition)),
        other => bail!(
            "the condition of `If` must be one value, got {}",
            other.len()
        ),
    }
}
