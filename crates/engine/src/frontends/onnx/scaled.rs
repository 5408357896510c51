//! Rewrites operators with an attribute that the tract library ignores into several operators
//! without it.

use tract_onnx::pb::{GraphProto, ModelProto, NodeProto};

use super::graph::{attribute, each_graph_mut, has_input, is_default, number_like, step};

/// Rewrites all such operators.
pub(crate) fn expand_attributes(model: &mut ModelProto) {
    each_graph_mut(model, &mut spell_out_graph);
}

fn spell_out_graph(graph: &mut GraphProto) {
    for node in std::mem::take(&mut graph.node) {
        let alpha = attribute(&node, "alpha").map_or(1.0, |alpha| alpha.f);
        let is_scaled = (alpha - 1.0).abs() > f32::EPSILON;
        let has_ends = has_input(&node, 0) && !node.output.is_empty();
        if is_scaled && has_ends && node.op_type == "Swish" && is_default(&node) {
            graph.node.extend(swish(&node, alpha));
        } else {
            graph.node.push(node);
        }
    }
}

/// Computes `x * sigmoid(alpha * x)`.
fn swish(node: &NodeProto, alpha: f32) -> [NodeProto; 5] {
    let part = |name: &str| format!("{}.swish.{name}", node.output[0]);
    let [stored, alpha] = number_like(alpha, &node.input[0], &part("alpha"));
    [
        stored,
        alpha,
        step("Mul", &[&node.input[0], &part("alpha")], &part("scaled")),
        step("Sigmoid", &[&part("scaled")], &part("gate")),
        step("Mul", &[&node.input[0], &part("gate")], &node.output[0]),
    ]
}
