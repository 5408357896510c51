//! Rewrites operators of `com.microsoft` whose inputs or attributes the tract library
//! misinterprets.

use tract_onnx::pb::{GraphProto, NodeProto};

use super::super::graph::{has_input, keep_inputs, step};

/// Rewrites all such operators in a graph.
pub(super) fn repair(graph: &mut GraphProto) {
    for mut node in std::mem::take(&mut graph.node) {
        if node.domain == "com.microsoft" {
            match node.op_type.as_str() {
                "SkipLayerNormalization" => graph.node.extend(with_bias(&mut node, 4)),
                "SkipSimplifiedLayerNormalization" => graph.node.extend(with_bias(&mut node, 3)),
                _ => {}
            }
        }
        graph.node.push(node);
    }
}

/// Adds the bias of a sum, input `place`, to one of its terms. The library misinterprets the bias,
/// or fails if an input before it is omitted.
fn with_bias(node: &mut NodeProto, place: usize) -> Option<NodeProto> {
    let bias = has_input(node, place).then(|| node.input[place].clone());
    keep_inputs(node, place);
    let shifted = format!("{}.biased", node.output.first()?);
    let sum = step("Add", &[node.input.get(1)?, &bias?], &shifted);
    node.input[1] = shifted;
    Some(sum)
}
