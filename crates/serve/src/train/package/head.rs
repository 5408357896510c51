//! Writes a classifier as an ONNX model that maps embedding vectors to label probabilities.

use serde_json::{Value, json};

use super::super::classifier::Classifier;
use pkgtool_model::onnx::write::{GraphPort, Size, model, node, stored};

/// ONNX operator set, which every runtime of recent years supports.
const OPSET: u64 = 17;

const INPUT: &str = "embedding";
const OUTPUT: &str = "probabilities";

/// Returns the ONNX model `float32[n, width]` to `float32[n, labels]`: `Softmax(embedding ·
/// weightsᵀ + intercepts)`, or `Sigmoid` for several labels.
pub(super) fn onnx(classifier: &Classifier) -> Vec<u8> {
    let (width, labels) = (classifier.width as u64, classifier.intercepts.len() as u64);
    let inputs = [INPUT, "weights", "intercepts"];
    let nodes = [
        node("Gemm", &inputs, "scores", &[("transB", 1)]),
        if classifier.multi_label {
            node("Sigmoid", &["scores"], OUTPUT, &[])
        } else {
            node("Softmax", &["scores"], OUTPUT, &[("axis", 1)])
        },
    ];
    let weights = [
        stored("weights", &[labels, width], &classifier.weights),
        stored("intercepts", &[labels], &classifier.intercepts),
    ];
    let rows = Size::Symbol("n");
    let input = GraphPort {
        name: INPUT,
        dims: &[rows, Size::Fixed(width)],
    };
    let output = GraphPort {
        name: OUTPUT,
        dims: &[rows, Size::Fixed(labels)],
    };
    model("head", OPSET, &nodes, &weights, [&[input], &[output]])
}

/// Returns the description of its method for a package's config.
pub(super) fn methods(classifier: &Classifier) -> Value {
    let tensor =
        |name: &str, size: usize| json!({"name": name, "shape": [-1, size], "dtype": "float32"});
    json!({"forward": {
        "inputs": [tensor(INPUT, classifier.width)],
        "outputs": [tensor(OUTPUT, classifier.intercepts.len())],
    }})
}
