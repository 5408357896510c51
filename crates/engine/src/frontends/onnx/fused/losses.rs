//! Writes the losses of the standard as several operators.

use tract_onnx::pb::NodeProto;

use crate::frontends::onnx::graph::{attribute, has_input, text};
use crate::frontends::onnx::steps::{Around, NodeSteps, int};

/// Returns the steps of a `NegativeLogLikelihoodLoss`.
pub(super) fn of_logarithms(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let [numbers, labels, ..] = node.input.as_slice() else {
        return None;
    };
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    loss(&mut steps, node, [numbers, labels])?;
    Some(steps.finish(output))
}

/// Returns the steps of a `SoftmaxCrossEntropyLoss`, whose second output has the logarithms.
pub(super) fn of_scores(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let [scores, labels, ..] = node.input.as_slice() else {
        return None;
    };
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    // Before version 13, a softmax joins all axes from its own one.
    if around.opset < 13 {
        return None;
    }
    let mut logarithms = steps.add_with("LogSoftmax", &[scores], [int("axis", 1)]);
    if let Some(kept) = node.output.get(1).filter(|name| !name.is_empty()) {
        steps.rename(&logarithms, kept);
        logarithms.clone_from(kept);
    }
    loss(&mut steps, node, [&logarithms, labels])?;
    Some(steps.finish(output))
}

/// Adds the loss of logarithms of probabilities.
fn loss(steps: &mut NodeSteps, node: &NodeProto, [numbers, labels]: [&str; 2]) -> Option<()> {
    let ignored = attribute(node, "ignore_index").map(|found| {
        #[expect(clippy::cast_precision_loss, reason = "a label")]
        let ignored = steps.number(found.i as f32, labels);
        steps.add("Equal", &[labels, &ignored])
    });
    let known = match &ignored {
        Some(ignored) => {
            let first = steps.number(0.0, labels);
            steps.add("Where", &[ignored, &first, labels])
        }
        None => labels.to_owned(),
    };
    let places = steps.unsqueeze(&known, &[1]);
    let picked = steps.add_with("GatherElements", &[numbers, &places], [int("axis", 1)]);
    let picked = steps.squeeze(&picked, &[1]);
    let mut losses = steps.add("Neg", &[&picked]);
    let mut weights = has_input(node, 2).then(|| steps.add("Gather", &[&node.input[2], &known]));
    if let Some(ignored) = &ignored {
        let [zero, one] = [0.0, 1.0].map(|number| steps.number(number, numbers));
        let others = weights.unwrap_or(one);
        weights = Some(steps.add("Where", &[ignored, &zero, &others]));
    }
    if let Some(weights) = &weights {
        losses = steps.add("Mul", &[&losses, weights]);
    }
    match (text(node, "reduction"), weights) {
        (b"none", _) => {
            steps.add("Identity", &[&losses]);
        }
        (b"sum", _) => {
            steps.sum(&losses, &[], false);
        }
        (b"mean" | b"", None) => {
            steps.mean(&losses, &[], false);
        }
        (b"mean" | b"", Some(weights)) => {
            let sum = steps.sum(&losses, &[], false);
            let all = steps.sum(&weights, &[], false);
            steps.add("Div", &[&sum, &all]);
        }
        _ => return None,
    }
    Some(())
}
