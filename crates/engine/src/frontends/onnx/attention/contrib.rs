//! Writes `Attention`, `QAttention` and `MultiHeadAttention` of ONNX Runtime as `Attention` of the
//! standard, with one more input: the padding of keys.

use tract_onnx::pb::{AttributeProto, NodeProto};

use super::{NAME, PADDING, PADDING_VALUE};
use crate::frontends::onnx::graph::{attribute, has_input, integer};
use crate::frontends::onnx::steps::{Around, NodeSteps, float, int};

/// The score that ONNX Runtime adds to padding, unless the node has another one.
const USUAL_PADDING: f32 = -10_000.0;

/// Returns the steps of an `Attention` or a `QAttention`; `None` for unknown forms.
pub(in super::super) fn of_projection(
    node: &NodeProto,
    around: Around<'_>,
) -> Option<Vec<NodeProto>> {
    let is_quantised = node.op_type == "QAttention";
    let [weights, bias] = [
        node.input.get(1)?,
        node.input.get(2).filter(|it| !it.is_empty())?,
    ];
    let [mask, past, added] = if is_quantised {
        [5, 8, usize::MAX]
    } else {
        [3, 4, 5]
    };
    let is_known = integer(node, "do_rotary", 0) == 0
        && integer(node, "past_present_share_buffer", 0) == 0
        && (is_quantised || !has_input(node, 6));
    if !is_known {
        return None;
    }
    let heads = integer(node, "num_heads", 0);
    let &[_, all] = around.shapes.of_tensor(weights)? else {
        return None;
    };
    let sizes = match attribute(node, "qkv_hidden_sizes") {
        Some(sizes) if !sizes.ints.is_empty() => sizes.ints.clone(),
        _ => vec![all / 3; 3],
    };
    if sizes.len() != 3 || sizes.iter().sum::<i64>() != all || heads < 1 {
        return None;
    }
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let product = if is_quantised {
        let given = |at: usize| node.input.get(at).map_or("", String::as_str);
        let scales = [given(3), given(4)];
        steps.scaled_product(&[&node.input[0], weights, given(6), given(7)], scales)
    } else {
        steps.add("MatMul", &[&node.input[0], weights])
    };
    let product = steps.add("Add", &[&product, bias]);
    let parts = steps.split(&product, 2, &sizes);
    let mut inputs = vec![String::new(); PADDING + 1];
    inputs[..3].clone_from_slice(&parts);
    if has_input(node, past) {
        for at in [0, 1] {
            inputs[4 + at] = steps.at(&node.input[past], 0, i64::from(at == 1));
        }
    }
    if let Some(added) = node.input.get(added) {
        inputs[3].clone_from(added);
    }
    if has_input(node, mask) {
        inputs[PADDING].clone_from(&node.input[mask]);
    }
    let present = node.output.get(1).filter(|name| !name.is_empty());
    let mut outputs = vec![output.clone()];
    if present.is_some() {
        outputs.extend(["keys", "values"].map(|name| format!("{output}.step.{name}")));
    }
    steps.push(attention(node, inputs, outputs.clone()));
    let Some(present) = present else {
        return Some(steps.into_nodes());
    };
    let [keys, values] = [1, 2].map(|at| steps.unsqueeze(&outputs[at], &[0]));
    steps.add_with("Concat", &[&keys, &values], [int("axis", 0)]);
    Some(steps.finish(present))
}

/// Returns the steps of a `MultiHeadAttention`; `None` for unknown forms.
pub(in super::super) fn of_heads(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let has = |at| has_input(node, at);
    let heads = integer(node, "num_heads", 0);
    if heads < 1 || has(8) || has(9) || !has(0) {
        return None;
    }
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let mut inputs = vec![String::new(); PADDING + 1];
    // Parts that are stored together are `[batch, rows, heads, parts, size]`.
    let (packed, count) = match (has(1), has(2)) {
        (true, true) => (None, 0),
        (true, false) => (Some(&node.input[1]), 2),
        (false, false) => (Some(&node.input[0]), 3),
        (false, true) => return None,
    };
    inputs[..3]
        .clone_from_slice(&[0, 1, 2].map(|at| node.input.get(at).cloned().unwrap_or_default()));
    if let Some(packed) = packed {
        let rows = steps.integers(&[0, 0, -1]);
        for at in 0..count {
            let part = steps.at(packed, 3, i64::try_from(at).ok()?);
            inputs[3 - count + at] = steps.add("Reshape", &[&part, &rows]);
        }
    }
    if has(3) {
        let &[all] = around.shapes.of_tensor(&node.input[3])? else {
            return None;
        };
        if all % 3 != 0 {
            return None;
        }
        let parts = steps.split(&node.input[3], 0, &[all / 3; 3]);
        for (input, part) in inputs.iter_mut().zip(&parts) {
            *input = steps.add("Add", &[input, part]);
        }
    }
    for (to, from) in [(PADDING, 4), (3, 5), (4, 6), (5, 7)] {
        if has(from) {
            inputs[to].clone_from(&node.input[from]);
        }
    }
    steps.push(attention(node, inputs, node.output.clone()));
    Some(steps.into_nodes())
}

/// Creates the attention of a node.
fn attention(node: &NodeProto, inputs: Vec<String>, outputs: Vec<String>) -> NodeProto {
    let heads = integer(node, "num_heads", 0);
    let padding = attribute(node, "mask_filter_value").map_or(USUAL_PADDING, |found| found.f);
    let scale = attribute(node, "scale").map(|found| float("scale", found.f));
    let attributes: [AttributeProto; 5] = [
        int("q_num_heads", heads),
        int("kv_num_heads", heads),
        int("is_causal", integer(node, "unidirectional", 0)),
        int("qk_matmul_output_mode", 2),
        float(PADDING_VALUE, padding),
    ];
    NodeProto {
        name: node.name.clone(),
        op_type: NAME.to_owned(),
        input: inputs,
        output: outputs,
        attribute: attributes.into_iter().chain(scale).collect(),
        ..NodeProto::default()
    }
}
