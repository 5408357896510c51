//! Replaces operators that stand for several others, because the tract library lacks them: those of
//! `com.microsoft`, `SwiGLU`, pools and losses.
//!
//! Nodes with a form that is unknown here stay, and are rejected by name later.

mod activated;
mod embedding;
mod losses;
mod product;
mod shaped;

use tract_onnx::pb::{GraphProto, ModelProto, NodeProto};

use super::attention::contrib;
use super::graph::{Shapes, each_graph_mut, operator, opset};
#[cfg(test)]
use super::steps::int;
use super::steps::{Around, NodeSteps};

/// Writes the steps of a node; `None` if the form of the node is unknown.
type WriteSteps = fn(&NodeProto, Around<'_>) -> Option<Vec<NodeProto>>;

/// The operators that are replaced.
const FUSED: [(&str, WriteSteps); 25] = [
    ("CenterCropPad", shaped::centred),
    ("LpPool", shaped::norm_of_windows),
    ("NegativeLogLikelihoodLoss", losses::of_logarithms),
    ("SoftmaxCrossEntropyLoss", losses::of_scores),
    ("SwiGLU", gated),
    ("com.microsoft::Attention", contrib::of_projection),
    ("com.microsoft::QAttention", contrib::of_projection),
    ("com.microsoft::MultiHeadAttention", contrib::of_heads),
    ("com.microsoft::FusedConv", activated::convolution),
    ("com.microsoft::FusedGemm", activated::product),
    ("com.microsoft::FusedMatMul", product::transposed),
    ("com.microsoft::TransposeMatMul", product::transposed),
    ("com.microsoft::DynamicQuantizeMatMul", product::dynamic),
    ("com.microsoft::MatMulIntegerToFloat", product::of_integers),
    (
        "com.microsoft::EmbedLayerNormalization",
        embedding::normalised,
    ),
    ("com.microsoft::NhwcMaxPool", shaped::channels_last),
    ("com.microsoft::ExpandDims", shaped::expanded),
    ("com.microsoft::CausalConvWithState", of_standard),
    ("com.microsoft::GatherND", of_standard),
    ("com.microsoft::GridSample", of_standard),
    ("com.microsoft::LinearAttention", of_standard),
    ("com.microsoft::Pad", of_standard),
    ("com.microsoft::Range", of_standard),
    ("com.microsoft::Trilu", of_standard),
    ("com.microsoft::Unique", shaped::different),
];

/// Returns the full names of the operators that are replaced.
pub(crate) fn names() -> impl Iterator<Item = String> {
    FUSED.iter().map(|(name, _)| (*name).to_owned())
}

/// Replaces all such operators of a model.
pub(crate) fn spell_out(model: &mut ModelProto) {
    let (shapes, opset) = (Shapes::of(model), opset(model));
    let around = Around {
        shapes: &shapes,
        opset,
    };
    each_graph_mut(model, &mut |graph| spell_out_graph(graph, around));
}

fn spell_out_graph(graph: &mut GraphProto, around: Around<'_>) {
    for node in std::mem::take(&mut graph.node) {
        let name = operator(&node);
        let fused = FUSED.iter().find(|(fused, _)| *fused == name);
        match fused.and_then(|(_, steps)| steps(&node, around)) {
            Some(steps) => graph.node.extend(steps),
            None => graph.node.push(node),
        }
    }
}

/// A node of ONNX Runtime with the meaning of its namesake.
#[expect(clippy::unnecessary_wraps, reason = "steps have this signature")]
fn of_standard(node: &NodeProto, _: Around<'_>) -> Option<Vec<NodeProto>> {
    let mut node = node.clone();
    node.domain.clear();
    Some(vec![node])
}

/// A swish times another tensor.
fn gated(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let [gate, value] = node.input.as_slice() else {
        return None;
    };
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, around.opset);
    let gate = steps.add_with("Swish", &[gate], node.attribute.iter().cloned());
    steps.add("Mul", &[&gate, value]);
    Some(steps.finish(output))
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::AttributeProto;

    use super::activated::{ACTIVATION, PARAMETERS};
    use super::*;
    use crate::frontends::onnx::graph::{AttributeKind, named, step};

    /// Returns the operators that a node becomes.
    fn spelled_out(operator: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let mut node = step(operator, inputs, "y");
        "com.microsoft".clone_into(&mut node.domain);
        node.attribute = attributes;
        let mut graph = GraphProto {
            node: vec![node],
            ..GraphProto::default()
        };
        let around = Around {
            shapes: &Shapes::of(&ModelProto::default()),
            opset: 17,
        };
        spell_out_graph(&mut graph, around);
        let operators = graph.node.into_iter().map(|node| node.op_type);
        operators.collect::<Vec<_>>().join(" ")
    }

    fn activation(name: &str, parameters: &[f32]) -> Vec<AttributeProto> {
        let name = AttributeProto {
            s: name.as_bytes().to_vec(),
            ..named(ACTIVATION, AttributeKind::Text)
        };
        let parameters = AttributeProto {
            floats: parameters.to_vec(),
            ..named(PARAMETERS, AttributeKind::Floats)
        };
        vec![name, parameters]
    }

    #[test]
    fn unknown_forms_stay() {
        let flag = |name| int(name, 1);
        let product = |attributes| spelled_out("FusedMatMul", &["a", "b"], attributes);
        assert_eq!(product(vec![]), "MatMul");
        assert_eq!(product(vec![flag("transB")]), "Einsum");
        assert_eq!(product(vec![flag("transBatchA")]), "FusedMatMul");
        assert_eq!(spelled_out("FusedMatMul", &["a"], vec![]), "FusedMatMul");
        let convolution = |inputs: &[&str], name, of: &[f32]| {
            spelled_out("FusedConv", inputs, activation(name, of))
        };
        assert_eq!(convolution(&["x", "w"], "Relu", &[]), "Conv Relu");
        assert_eq!(convolution(&["x", "w"], "Clip", &[0.0]), "FusedConv");
        assert_eq!(convolution(&[], "Clip", &[0.0, 6.0]), "FusedConv");
        assert_eq!(convolution(&[], "Relu", &[]), "Conv Relu");
        assert_eq!(convolution(&["x", "w"], "Hush", &[]), "FusedConv");
        assert_eq!(
            convolution(&["x", "w", "", "z"], "", &[]),
            "Conv Add Identity"
        );
    }
}
