//! Rewrites products of quantised numbers as an integer product, a factor and a quantisation.
//!
//! The library rounds halfway values upwards when it scales results to the output, so answers
//! differ by one step. The rewritten operators round as the standard specifies.

use tract_onnx::pb::{GraphProto, NodeProto};

use super::super::graph::{FLOAT, Shapes, Zeros};
use super::super::steps::NodeSteps;

/// Rewrites the products of a graph.
pub(super) fn repair(graph: &mut GraphProto, shapes: &Shapes, zeros: &Zeros, opset: i64) {
    for node in std::mem::take(&mut graph.node) {
        let spelled = match node.op_type.as_str() {
            "QLinearMatMul" => of_matrices(&node, opset),
            "QLinearConv" => of_convolution(&node, shapes, zeros, opset),
            _ => None,
        };
        match spelled {
            Some(nodes) => graph.node.extend(nodes),
            None => graph.node.push(node),
        }
    }
}

fn of_matrices(node: &NodeProto, opset: i64) -> Option<Vec<NodeProto>> {
    let [a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero] = node.input.as_slice() else {
        return None;
    };
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, opset);
    let sums = steps.add("MatMulInteger", &[a, b, a_zero, b_zero]);
    let factor = factor(&mut steps, [a_scale, b_scale, y_scale]);
    Some(finished(steps, node, &sums, &factor, y_zero))
}

fn of_convolution(
    node: &NodeProto,
    shapes: &Shapes,
    zeros: &Zeros,
    opset: i64,
) -> Option<Vec<NodeProto>> {
    let [
        x,
        x_scale,
        x_zero,
        w,
        w_scale,
        w_zero,
        y_scale,
        y_zero,
        bias @ ..,
    ] = node.input.as_slice()
    else {
        return None;
    };
    let rank = shapes.of_tensor(w)?.len();
    if rank < 2 {
        return None;
    }
    let count = shapes.of_tensor(w_zero)?.iter().product::<i64>();
    // Another operator handles zero points per channel.
    if count > 1 && !zeros.has(w_zero) {
        return None;
    }
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, opset);
    let mut inputs = vec![x.as_str(), w.as_str(), x_zero.as_str()];
    if count == 1 {
        inputs.push(w_zero);
    }
    let mut sums = steps.add_with("ConvInteger", &inputs, node.attribute.iter().cloned());
    let mut by_channel = vec![1; rank - 1];
    by_channel[0] = -1;
    let by_channel = steps.integers(&by_channel);
    if let [bias] = bias
        && !bias.is_empty()
    {
        let bias = steps.add("Reshape", &[bias, &by_channel]);
        sums = steps.add("Add", &[&sums, &bias]);
    }
    let factor = factor(&mut steps, [x_scale, w_scale, y_scale]);
    let factor = steps.add("Reshape", &[&factor, &by_channel]);
    Some(finished(steps, node, &sums, &factor, y_zero))
}

/// Adds the factor from steps of sums to steps of the output.
fn factor(steps: &mut NodeSteps, scales: [&str; 3]) -> String {
    let [left, right, output] = scales.map(|scale| steps.cast(scale, FLOAT));
    let product = steps.add("Mul", &[&left, &right]);
    steps.add("Div", &[&product, &output])
}

/// Converts sums of products to quantised outputs.
fn finished(
    mut steps: NodeSteps,
    node: &NodeProto,
    sums: &str,
    factor: &str,
    zero: &str,
) -> Vec<NodeProto> {
    let sums = steps.cast(sums, FLOAT);
    let scaled = steps.add("Mul", &[&sums, factor]);
    let one = steps.number(1.0, &scaled);
    steps.add("QuantizeLinear", &[&scaled, &one, zero]);
    let mut nodes = steps.finish(&node.output[0]);
    nodes[0].name.clone_from(&node.name);
    nodes
}
