//! Writes operators as others between changes of the shape.

use tract_onnx::pb::NodeProto;

use crate::frontends::onnx::graph::{INT64, attribute, integer};
use crate::frontends::onnx::steps::{Around, NodeSteps, int};

/// A maximum over windows of pictures whose channels are the last axis.
pub(super) fn channels_last(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let [input] = node.input.as_slice() else {
        return None;
    };
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let first = steps.transpose(input, &[0, 3, 1, 2]);
    let largest = steps.add_with("MaxPool", &[&first], node.attribute.iter().cloned());
    steps.transpose(&largest, &[0, 2, 3, 1]);
    Some(steps.finish(output))
}

/// A new axis at a position.
pub(super) fn expanded(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let inputs: Vec<&str> = node.input.iter().map(String::as_str).collect();
    steps.add("Unsqueeze", &inputs);
    Some(steps.finish(output))
}

/// The different elements of a tensor in their order, the place of each element among them, and
/// counts.
pub(super) fn different(node: &NodeProto, _: Around<'_>) -> Option<Vec<NodeProto>> {
    node.output.first()?;
    let mut node = node.clone();
    node.domain.clear();
    if node.output.len() > 1 {
        // The standard has the first places of the different elements here.
        node.output.insert(1, String::new());
    }
    node.attribute.push(int("sorted", 0));
    Some(vec![node])
}

/// The norm of the numbers of each window.
pub(super) fn norm_of_windows(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let input = node.input.first()?;
    let window = &attribute(node, "kernel_shape")?.ints;
    #[expect(clippy::cast_precision_loss, reason = "a small size")]
    let [count, power] =
        [window.iter().product::<i64>(), integer(node, "p", 2)].map(|it| it as f32);
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let attributes = node.attribute.iter().filter(|it| it.name != "p").cloned();
    let attributes = attributes.chain([int("count_include_pad", 1)]);
    let [of_power, of_root, of_count] =
        [power, power.recip(), count].map(|number| steps.number(number, input));
    let sizes = steps.add("Abs", &[input]);
    let powers = steps.add("Pow", &[&sizes, &of_power]);
    let means = steps.add_with("AveragePool", &[&powers], attributes);
    let sums = steps.add("Mul", &[&means, &of_count]);
    steps.add("Pow", &[&sums, &of_root]);
    Some(steps.finish(output))
}

/// The middle of a tensor, or the tensor in the middle of zeros.
pub(super) fn centred(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let [input, wanted] = node.input.as_slice() else {
        return None;
    };
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let axes = attribute(node, "axes").map(|axes| steps.integers(&axes.ints));
    let mut sizes = steps.add("Shape", &[input]);
    if let Some(axes) = &axes {
        sizes = steps.add("Gather", &[&sizes, axes]);
    }
    let wanted = steps.cast(wanted, INT64);
    let [zero, two] = [0, 2].map(|number| steps.integers(&[number]));
    let more = steps.add("Sub", &[&sizes, &wanted]);
    let more = steps.add("Max", &[&more, &zero]);
    let start = steps.add("Div", &[&more, &two]);
    let kept = steps.add("Min", &[&sizes, &wanted]);
    let end = steps.add("Add", &[&start, &kept]);
    let axes = axes.as_deref();
    let middle: Vec<&str> = [input.as_str(), &start, &end]
        .into_iter()
        .chain(axes)
        .collect();
    let middle = steps.add("Slice", &middle);
    let less = steps.add("Sub", &[&wanted, &kept]);
    let before = steps.add("Div", &[&less, &two]);
    let after = steps.add("Sub", &[&less, &before]);
    let pads = steps.add_with("Concat", &[&before, &after], [int("axis", 0)]);
    let padded: Vec<&str> = match axes {
        Some(axes) => vec![&middle, &pads, "", axes],
        None => vec![&middle, &pads],
    };
    steps.add("Pad", &padded);
    Some(steps.finish(output))
}
