//! Replaces sequences of tensors, which the tract library lacks, by their tensors.
//!
//! The tensors of a sequence must be known when the graph is read: their number, and the positions
//! at which they are inserted, erased or taken. A graph with another sequence stays as it is, and is
//! rejected by name later.

use std::collections::HashMap;

use tract_onnx::pb::tensor_shape_proto::dimension::Value;
use tract_onnx::pb::type_proto::Value as TypeValue;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto};

use super::graph::{
    Stored, attribute, each_graph_mut, each_node, has_input, integer, is_default, opset,
};
use super::node_operator::counted_from_start;
use super::steps::{NodeSteps, int};

/// Maximum number of tensors in a sequence.
const MAX_TENSORS: usize = 1024;

/// Returns the names of the operators that are replaced.
pub(crate) fn names() -> impl Iterator<Item = String> {
    SEQUENCES.iter().map(|(name, _)| (*name).to_owned())
}

/// Replaces the sequences of all graphs in which all tensors are known.
pub(crate) fn spell_out(model: &mut ModelProto) {
    let mut has_sequences = false;
    each_node(model, &mut |node| has_sequences |= is_of_sequences(node));
    if !has_sequences {
        return;
    }
    let integers = integers_of(model);
    let opset = opset(model);
    each_graph_mut(model, &mut |graph| {
        if let Some(nodes) = Spelling::of(graph, &integers, opset) {
            graph.node = nodes;
        }
    });
}

/// The small stored tensors of integers, with their number of dimensions.
type Integers = HashMap<String, (usize, Vec<i64>)>;

fn integers_of(model: &ModelProto) -> Integers {
    let stored = Stored::of(model);
    let found = stored.names().filter_map(|name| {
        let integers = stored.integers(name)?;
        Some((name.to_owned(), (stored.shape(name)?.len(), integers)))
    });
    found.collect()
}

/// Writes the operators of one node; `None` if a tensor of a sequence is not known.
type WriteSequence = fn(&mut Spelling<'_>, &NodeProto, &str) -> Option<()>;

/// The operators on sequences.
const SEQUENCES: [(&str, WriteSequence); 8] = [
    ("ConcatFromSequence", |graph, node, output| {
        graph.joined(node, output)
    }),
    ("SequenceAt", |graph, node, output| graph.at(node, output)),
    ("SequenceConstruct", |graph, node, output| {
        graph.constructed(node, output)
    }),
    ("SequenceEmpty", |graph, node, output| {
        graph.constructed(node, output)
    }),
    ("SequenceErase", |graph, node, output| {
        graph.erased(node, output)
    }),
    ("SequenceInsert", |graph, node, output| {
        graph.inserted(node, output)
    }),
    ("SequenceLength", |graph, node, output| {
        graph.counted(node, output)
    }),
    ("SplitToSequence", |graph, node, output| {
        graph.split(node, output)
    }),
];

fn is_of_sequences(node: &NodeProto) -> bool {
    is_default(node) && SEQUENCES.iter().any(|(name, _)| *name == node.op_type)
}

/// A graph whose sequences become tensors.
struct Spelling<'a> {
    graph: &'a GraphProto,
    integers: &'a Integers,
    opset: i64,
    /// The tensors of the sequences so far.
    sequences: HashMap<String, Vec<String>>,
    nodes: Vec<NodeProto>,
}

impl<'a> Spelling<'a> {
    /// Returns the nodes of a graph without sequences.
    fn of(graph: &'a GraphProto, integers: &'a Integers, opset: i64) -> Option<Vec<NodeProto>> {
        let mut spelling = Self {
            graph,
            integers,
            opset,
            sequences: HashMap::new(),
            nodes: Vec::new(),
        };
        for node in &graph.node {
            let output = node.output.first();
            let row = SEQUENCES.iter().find(|(name, _)| *name == node.op_type);
            match (row, output) {
                (Some((_, write)), Some(output)) if is_default(node) => {
                    write(&mut spelling, node, output)?;
                }
                _ => spelling.nodes.push(node.clone()),
            }
        }
        let read = spelling.nodes.iter().flat_map(|node| &node.input);
        let given = graph.output.iter().map(|output| &output.name);
        let has_other_use = read
            .chain(given)
            .any(|name| spelling.sequences.contains_key(name));
        (!has_other_use).then_some(spelling.nodes)
    }

    /// Returns the tensors of the sequence that a node reads.
    fn sequence(&self, node: &NodeProto) -> Option<&Vec<String>> {
        self.sequences.get(node.input.first()?)
    }

    /// Returns the position that a node's input gives among `count`; `absent` without it.
    fn position(
        &self,
        node: &NodeProto,
        input: usize,
        count: usize,
        absent: usize,
    ) -> Option<usize> {
        if !has_input(node, input) {
            return Some(absent);
        }
        let (_, integers) = self.integers.get(&node.input[input])?;
        let [position] = integers.as_slice() else {
            return None;
        };
        counted_from_start(*position, count).ok().flatten()
    }

    fn keep(&mut self, output: &str, tensors: Vec<String>) -> Option<()> {
        if tensors.len() > MAX_TENSORS {
            return None;
        }
        self.sequences.insert(output.to_owned(), tensors);
        Some(())
    }

    fn steps(&self, output: &str) -> NodeSteps {
        NodeSteps::new(output, self.opset)
    }

    #[expect(clippy::unnecessary_wraps, reason = "rows have this signature")]
    fn write(&mut self, steps: NodeSteps, output: &str) -> Option<()> {
        self.nodes.extend(steps.finish(output));
        Some(())
    }

    fn constructed(&mut self, node: &NodeProto, output: &str) -> Option<()> {
        self.keep(output, node.input.clone())
    }

    fn inserted(&mut self, node: &NodeProto, output: &str) -> Option<()> {
        let mut tensors = self.sequence(node)?.clone();
        let count = tensors.len();
        let position = self.position(node, 2, count + 1, count)?;
        // Negative positions count from the end of the tensors that are there.
        let is_from_end = has_input(node, 2) && self.integers[&node.input[2]].1[0] < 0;
        let position = position.checked_sub(usize::from(is_from_end))?;
        tensors.insert(position, node.input.get(1)?.clone());
        self.keep(output, tensors)
    }

    fn erased(&mut self, node: &NodeProto, output: &str) -> Option<()> {
        let mut tensors = self.sequence(node)?.clone();
        let count = tensors.len();
        let position = self.position(node, 1, count, count.checked_sub(1)?)?;
        tensors.remove(position);
        self.keep(output, tensors)
    }

    fn at(&mut self, node: &NodeProto, output: &str) -> Option<()> {
        let tensors = self.sequence(node)?;
        let position = self.position(node, 1, tensors.len(), 0)?;
        let tensor = tensors[position].clone();
        let mut steps = self.steps(output);
        steps.add("Identity", &[&tensor]);
        self.write(steps, output)
    }

    fn counted(&mut self, node: &NodeProto, output: &str) -> Option<()> {
        let count = i64::try_from(self.sequence(node)?.len()).ok()?;
        let mut steps = self.steps(output);
        steps.integer(count);
        self.write(steps, output)
    }

    fn joined(&mut self, node: &NodeProto, output: &str) -> Option<()> {
        let tensors = self.sequence(node)?.clone();
        let axis = attribute(node, "axis")?.i;
        let mut steps = self.steps(output);
        let tensors = match integer(node, "new_axis", 0) {
            0 => tensors,
            _ => tensors
                .iter()
                .map(|tensor| steps.unsqueeze(tensor, &[axis]))
                .collect(),
        };
        let tensors: Vec<&str> = tensors.iter().map(String::as_str).collect();
        steps.add_with("Concat", &tensors, [int("axis", axis)]);
        self.write(steps, output)
    }

    fn split(&mut self, node: &NodeProto, output: &str) -> Option<()> {
        let input = node.input.first()?;
        let axis = integer(node, "axis", 0);
        let given = has_input(node, 1);
        let sizes = if given {
            match self.integers.get(&node.input[1])? {
                (1, sizes) => sizes.clone(),
                (_, size) => parts(self.size(input, axis)?, *size.first()?)?,
            }
        } else {
            parts(self.size(input, axis)?, 1)?
        };
        if sizes.len() > MAX_TENSORS {
            return None;
        }
        let mut steps = self.steps(output);
        let mut tensors = steps.split(input, axis, &sizes);
        if !given && integer(node, "keepdims", 1) == 0 {
            for tensor in &mut tensors {
                *tensor = steps.squeeze(tensor, &[axis]);
            }
        }
        self.nodes.extend(steps.into_nodes());
        self.keep(output, tensors)
    }

    /// Returns the size of a tensor along an axis, if the graph declares it.
    fn size(&self, tensor: &str, axis: i64) -> Option<i64> {
        let graph = self.graph;
        let declared = graph.input.iter().chain(&graph.value_info);
        let value = declared.into_iter().find(|value| value.name == tensor)?;
        let TypeValue::TensorType(of) = value.r#type.as_ref()?.value.as_ref()?;
        let dims = &of.shape.as_ref()?.dim;
        let axis = counted_from_start(axis, dims.len()).ok().flatten()?;
        match dims[axis].value.as_ref()? {
            Value::DimValue(size) => Some(*size),
            Value::DimParam(_) => None,
        }
    }
}

/// Returns the sizes of the parts of a dimension; the last one may be smaller.
fn parts(size: i64, each: i64) -> Option<Vec<i64>> {
    let count = usize::try_from(size.checked_div(each)?).ok()?;
    if each <= 0 || count > MAX_TENSORS {
        return None;
    }
    let mut sizes = vec![each; count];
    sizes.extend(Some(size % each).filter(|rest| *rest > 0));
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn dimensions_are_divided() {
        assert_eq!(parts(7, 3), Some(vec![3, 3, 1]));
        assert_eq!(parts(6, 3), Some(vec![3, 3]));
        assert_eq!(parts(2, 3), Some(vec![2]));
        assert_eq!(parts(0, 3), Some(vec![]));
        for (size, each) in [(1, 0), (1, -1), (i64::MAX, 1), (-1, 1)] {
            assert_eq!(parts(size, each), None, "{size} {each}");
        }
    }
}
