//! Writes the embedding of transformers of ONNX Runtime as several operators.

use tract_onnx::pb::NodeProto;

use crate::frontends::onnx::graph::{attribute, has_input};
use crate::frontends::onnx::steps::{Around, NodeSteps, float, int};

/// The sum of embeddings of tokens, positions and segments, normalised.
pub(super) fn normalised(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    // The number of tokens that a mask selects is not computed.
    let counts = node.output.get(1).is_some_and(|name| !name.is_empty());
    if node.input.len() < 7 || counts || around.opset < 17 {
        return None;
    }
    let given = |at: usize| has_input(node, at).then(|| node.input[at].as_str());
    let (tokens, words, places) = (given(0)?, given(2)?, given(3)?);
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let words = steps.add("Gather", &[words, tokens]);
    let places = if let Some(positions) = given(8) {
        steps.add("Gather", &[places, positions])
    } else {
        // The first rows, as many as there are tokens.
        let shape = steps.add("Shape", &[tokens]);
        let [first, second, third] = [0, 1, 2].map(|at| steps.integers(&[at]));
        let length = steps.add("Slice", &[&shape, &second, &third]);
        steps.add("Slice", &[places, &first, &length, &first])
    };
    let mut sum = steps.add("Add", &[&words, &places]);
    if let (Some(segments), Some(table)) = (given(1), given(4)) {
        let segments = steps.add("Gather", &[table, segments]);
        sum = steps.add("Add", &[&sum, &segments]);
    }
    if let Some(kept) = node.output.get(2).filter(|name| !name.is_empty()) {
        steps.rename(&sum, kept);
        sum.clone_from(kept);
    }
    let epsilon = attribute(node, "epsilon").map_or(1e-12, |found| found.f);
    let attributes = [float("epsilon", epsilon), int("axis", -1)];
    steps.add_with(
        "LayerNormalization",
        &[&sum, given(5)?, given(6)?],
        attributes,
    );
    Some(steps.finish(output))
}
