//! The producers and readers of the tensors of a graph.

use std::collections::HashMap;

use tract_onnx::pb::{GraphProto, NodeProto};

/// Counts the readers of each tensor: nodes, subgraphs of nodes, and outputs of the graph.
pub(super) fn readers(nodes: &[NodeProto], outputs: &[String]) -> HashMap<String, usize> {
    let mut readers = HashMap::new();
    for output in outputs {
        *readers.entry(output.clone()).or_insert(0) += 1;
    }
    for node in nodes {
        count(node, &mut readers);
    }
    readers
}

fn count(node: &NodeProto, readers: &mut HashMap<String, usize>) {
    for input in node.input.iter().filter(|input| !input.is_empty()) {
        *readers.entry(input.clone()).or_insert(0) += 1;
    }
    for attribute in &node.attribute {
        for graph in attribute.g.iter().chain(&attribute.graphs) {
            for output in &graph.output {
                *readers.entry(output.name.clone()).or_insert(0) += 1;
            }
            graph.node.iter().for_each(|inner| count(inner, readers));
        }
    }
}

/// Returns, for each tensor, the index of the node that computes it.
pub(super) fn makers(nodes: &[NodeProto]) -> HashMap<String, usize> {
    let made = nodes.iter().enumerate().flat_map(|(at, node)| {
        let outputs = node.output.iter().filter(|output| !output.is_empty());
        outputs.map(move |output| (output.clone(), at))
    });
    made.collect()
}

/// Returns the names of a graph's outputs.
pub(super) fn outputs(graph: &GraphProto) -> Vec<String> {
    graph.output.iter().map(|it| it.name.clone()).collect()
}

/// Removes dequantising nodes whose outputs lost all their readers. Those without readers `before`
/// stay.
pub(super) fn drop_unread(
    nodes: &mut Vec<NodeProto>,
    outputs: &[String],
    before: &HashMap<String, usize>,
) {
    let now = readers(nodes, outputs);
    let no_longer_read = |name: &String| before.contains_key(name) && !now.contains_key(name);
    nodes.retain(|node| {
        node.op_type != "DequantizeLinear" || !node.output.iter().all(no_longer_read)
    });
}
