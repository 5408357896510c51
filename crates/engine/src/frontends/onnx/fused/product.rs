//! Writes products of matrices of ONNX Runtime as several operators.

use tract_onnx::pb::NodeProto;

use crate::frontends::onnx::graph::{attribute, integer};
use crate::frontends::onnx::steps::{Around, NodeSteps, text};

/// A product of transposed operands, times a factor.
pub(super) fn transposed(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let [left, right] = node.input.as_slice() else {
        return None;
    };
    let is_turned = |name: &str| integer(node, name, 0) != 0;
    if is_turned("transBatchA") || is_turned("transBatchB") {
        return None;
    }
    let [left_axes, right_axes] = [("transA", "...ji", "...ij"), ("transB", "...kj", "...jk")]
        .map(|(name, yes, no)| if is_turned(name) { yes } else { no });
    let product = if (left_axes, right_axes) == ("...ij", "...jk") {
        steps.add("MatMul", &[left, right])
    } else {
        let equation = format!("{left_axes},{right_axes}->...ik");
        steps.add_with("Einsum", &[left, right], [text("equation", &equation)])
    };
    let factor = attribute(node, "alpha").map(|found| found.f);
    if let Some(factor) = factor.filter(|factor| factor.to_bits() != 1_f32.to_bits()) {
        let factor = steps.number(factor, left);
        steps.add("Mul", &[&product, &factor]);
    }
    Some(steps.finish(output))
}

/// A product with bytes of a matrix; the other operand is quantised between its extremes.
pub(super) fn dynamic(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let [rows, matrix, scale, ..] = node.input.as_slice() else {
        return None;
    };
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let [bytes, own_scale, own_zero] = steps.quantised(rows);
    let given = |at: usize| node.input.get(at).map_or("", String::as_str);
    let tensors = [&bytes, matrix, &own_zero, given(3)];
    let product = steps.scaled_product(&tensors, [&own_scale, scale]);
    biased(&mut steps, &product, given(4));
    Some(steps.finish(output))
}

/// A product of bytes whose results are numbers.
pub(super) fn of_integers(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let [left, right, left_scale, right_scale, ..] = node.input.as_slice() else {
        return None;
    };
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let given = |at: usize| node.input.get(at).map_or("", String::as_str);
    let tensors = [left, right, given(4), given(5)];
    let product = steps.scaled_product(&tensors, [left_scale, right_scale]);
    biased(&mut steps, &product, given(6));
    Some(steps.finish(output))
}

/// Adds a bias, if there is one.
fn biased(steps: &mut NodeSteps, product: &str, bias: &str) {
    if !bias.is_empty() {
        steps.add("Add", &[product, bias]);
    }
}
