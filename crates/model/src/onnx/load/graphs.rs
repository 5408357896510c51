//! Checks the subgraphs of control-flow operators (`If`, `Loop`, `Scan`): the number and types of
//! their inputs and outputs.

use super::node::NodeHeader;
use super::operators::{OperatorSchema, Operators, TypeSet};
use super::scope::SubgraphInterface;

/// A control-flow operator.
struct ControlFlowOperator {
    operator: &'static str,
    attributes: &'static [&'static str],
    /// True if the node passes its inputs to the graph.
    passes: bool,
    /// Number of leading outputs of the graph that do not become outputs of the node.
    own_outputs: usize,
    /// Number of leading inputs of the node that are not passed on unchanged.
    own_inputs: usize,
}

/// All control-flow operators. The graph of `Loop` receives a counter and a condition instead of
/// the node's limit and condition, and returns a condition.
const CONTROL_FLOW_OPERATORS: [ControlFlowOperator; 3] = [
    ControlFlowOperator {
        operator: "If",
        attributes: &["then_branch", "else_branch"],
        passes: false,
        own_outputs: 0,
        own_inputs: 1,
    },
    ControlFlowOperator {
        operator: "Loop",
        attributes: &["body"],
        passes: true,
        own_outputs: 1,
        own_inputs: 2,
    },
    ControlFlowOperator {
        operator: "Scan",
        attributes: &["body"],
        passes: true,
        own_outputs: 0,
        own_inputs: 0,
    },
];

/// Checks the graphs of a node; `inputs` are the types of its inputs.
pub(super) fn check(
    node: &NodeHeader,
    schema: &OperatorSchema,
    inputs: &[TypeSet],
) -> Result<(), String> {
    // The first version of `Scan` has a batch dimension.
    let is_batched = schema
        .attributes
        .iter()
        .any(|known| known.name == "directions");
    let Some(runner) = runner(node).filter(|_| !is_batched) else {
        return Ok(());
    };
    let mut first: Option<&SubgraphInterface> = None;
    for (name, graph) in runner.graphs(node) {
        let check = GraphCheck { node, name };
        let passed = if runner.passes { inputs.len() } else { 0 };
        let all = graph.inputs.len();
        check.count(
            "inputs",
            all,
            all - graph.initialized.min(all)..=all,
            passed,
        )?;
        let outputs = node.outputs.len() + runner.own_outputs;
        let found = graph.outputs.len();
        check.count("outputs", found, found..=found, outputs)?;
        if runner.passes && all == inputs.len() {
            let passed = inputs.iter().skip(runner.own_inputs).copied();
            let taken = graph.inputs.iter().skip(runner.own_inputs).copied();
            check.types("input", taken.zip(passed), runner.own_inputs)?;
        }
        if runner.operator == "Loop" {
            check.types(
                "input",
                graph.inputs.iter().copied().zip([counter_type()]),
                0,
            )?;
            // A loop-carried value keeps its type.
            let carried = inputs.iter().skip(2).copied();
            check.types(
                "output",
                graph.outputs.iter().skip(1).copied().zip(carried),
                1,
            )?;
        }
        if let Some(other) = first {
            let both = graph
                .outputs
                .iter()
                .copied()
                .zip(other.outputs.iter().copied());
            check.types("output", both, 0)?;
        }
        first = Some(graph);
    }
    Ok(())
}

/// Returns the types of a node's outputs, if it is a control-flow operator.
pub(super) fn outputs(node: &NodeHeader, inputs: &[TypeSet]) -> Option<Vec<TypeSet>> {
    let runner = runner(node)?;
    let mut graphs = runner.graphs(node).map(|(_, graph)| graph);
    let first = graphs.next();
    let second = graphs.next();
    let of = |graph: Option<&SubgraphInterface>, position: usize| {
        let types = graph.and_then(|graph| graph.outputs.get(position + runner.own_outputs));
        types.copied().unwrap_or(0)
    };
    let carried = |position: usize| match runner.operator {
        "Loop" => inputs
            .get(position + runner.own_inputs)
            .copied()
            .unwrap_or(0),
        _ => 0,
    };
    let known = |position| {
        let told = [of(first, position), of(second, position), carried(position)];
        told.into_iter().find(|types| *types != 0).unwrap_or(0)
    };
    Some((0..node.outputs.len()).map(known).collect())
}

fn runner(node: &NodeHeader) -> Option<&'static ControlFlowOperator> {
    CONTROL_FLOW_OPERATORS
        .iter()
        .find(|runner| runner.operator == node.operator)
}

fn counter_type() -> TypeSet {
    Operators::get().type_of("tensor(int64)").unwrap_or(0)
}

impl ControlFlowOperator {
    fn graphs<'n>(
        &self,
        node: &'n NodeHeader,
    ) -> impl Iterator<Item = (&'static str, &'n SubgraphInterface)> {
        let names = self.attributes.iter().copied();
        names.filter_map(|name| {
            let mut given = node.attributes.iter();
            let given = given.find(|given| given.name == name)?;
            Some((name, given.graph.as_ref()?))
        })
    }
}

/// A check of one graph of a node.
struct GraphCheck<'n> {
    node: &'n NodeHeader,
    name: &'static str,
}

impl GraphCheck<'_> {
    fn count(
        &self,
        what: &'static str,
        found: usize,
        allowed: std::ops::RangeInclusive<usize>,
        expected: usize,
    ) -> Result<(), String> {
        if allowed.contains(&expected) {
            return Ok(());
        }
        Err(format!(
            "the graph `{}` of `{}` has {found} {what}: expected {expected}",
            self.name, self.node.operator
        ))
    }

    /// Compares pairs of types; `start` is the position of the first pair.
    fn types(
        &self,
        what: &'static str,
        pairs: impl Iterator<Item = (TypeSet, TypeSet)>,
        start: usize,
    ) -> Result<(), String> {
        let table = Operators::get();
        // A value of the contained type is accepted for an optional.
        let certain = |types| types != 0 && !table.type_name(types).starts_with("optional(");
        let differs = |found, expected| found != expected && certain(found) && certain(expected);
        let mut pairs = pairs.enumerate();
        match pairs.find(|(_, (found, expected))| differs(*found, *expected)) {
            None => Ok(()),
            Some((position, (found, expected))) => Err(format!(
                "{what} {} of the graph `{}` is {}: its node needs {}",
                start + position,
                self.name,
                table.type_name(found),
                table.type_name(expected)
            )),
        }
    }
}
