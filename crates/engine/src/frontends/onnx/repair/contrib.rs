//! Rewrites operators of `com.microsoft` whose inputs or attributes the tract library
//! misinterprets.

use tract_onnx::pb::{GraphProto, NodeProto};

use super::super::exact::FULL_SEQUENCES;
use super::super::graph::{attribute, has_input, keep_inputs, step};

/// Rewrites all such operators in a graph.
pub(super) fn repair(graph: &mut GraphProto) {
    for mut node in std::mem::take(&mut graph.node) {
        if node.domain == "com.microsoft" {
            match node.op_type.as_str() {
                "SkipLayerNormalization" => graph.node.extend(with_bias(&mut node, 4)),
                "SkipSimplifiedLayerNormalization" => graph.node.extend(with_bias(&mut node, 3)),
                "MultiHeadAttention" => usual_scale(&mut node),
                "GroupQueryAttention" => {
                    usual_scale(&mut node);
                    graph.node.extend(with_full_sequences(&mut node));
                }
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

/// Removes a scale of zero, which means the default scale.
fn usual_scale(node: &mut NodeProto) {
    let is_usual = attribute(node, "scale").is_some_and(|scale| scale.f == 0.0);
    node.attribute
        .retain(|attribute| !(is_usual && attribute.name == "scale"));
}

/// Adds a check of the sequence lengths before an attention that ignores them.
fn with_full_sequences(node: &mut NodeProto) -> Option<NodeProto> {
    const PAST: usize = 3;
    const LENGTHS: usize = 5;
    if !has_input(node, PAST) || !has_input(node, LENGTHS) {
        return None;
    }
    let checked = format!("{}.checked", node.output.first()?);
    let inputs = [&node.input[0], &node.input[LENGTHS], &node.input[PAST]];
    let check = step(FULL_SEQUENCES, &inputs.map(String::as_str), &checked);
    node.input[0] = checked;
    Some(check)
}
