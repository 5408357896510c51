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
use super::steps::NodeSteps;
#[cfg(test)]
use super::steps::int;

/// What the steps of a node depend on.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    /// Shapes of stored tensors.
    shapes: &'a Shapes,
    /// Version of the default operator set.
    opset: i64,
}

/// Writes the steps of a node; `None` if the form of the node is unknown.
type WriteSteps = fn(&NodeProto, Around<'_>) -> Option<Vec<NodeProto>>;

/// The operators that are replaced.
const FUSED: [(&str, WriteSteps); 25] = [
    ("CenterCropPad", |node, around| {
        shaped::centred(node, around.opset)
    }),
    ("LpPool", |node, around| {
        shaped::norm_of_windows(node, around.opset)
    }),
    ("NegativeLogLikelihoodLoss", |node, around| {
        losses::of_logarithms(node, around.opset)
    }),
    ("SoftmaxCrossEntropyLoss", |node, around| {
        losses::of_scores(node, around.opset)
    }),
    ("SwiGLU", |node, around| gated(node, around.opset)),
    ("com.microsoft::Attention", |node, around| {
        contrib::of_projection(node, around.shapes, around.opset)
    }),
    ("com.microsoft::QAttention", |node, around| {
        contrib::of_projection(node, around.shapes, around.opset)
    }),
    ("com.microsoft::MultiHeadAttention", |node, around| {
        contrib::of_heads(node, around.shapes, around.opset)
    }),
    ("com.microsoft::FusedConv", |node, around| {
        activated::steps_of(node, "Conv", around.opset)
    }),
    ("com.microsoft::FusedGemm", |node, around| {
        activated::steps_of(node, "Gemm", around.opset)
    }),
    ("com.microsoft::FusedMatMul", |node, around| {
        product::transposed(node, around.opset)
    }),
    ("com.microsoft::TransposeMatMul", |node, around| {
        product::transposed(node, around.opset)
    }),
    ("com.microsoft::DynamicQuantizeMatMul", |node, around| {
        product::dynamic(node, around.opset)
    }),
    ("com.microsoft::MatMulIntegerToFloat", |node, around| {
        product::of_integers(node, around.opset)
    }),
    ("com.microsoft::EmbedLayerNormalization", |node, around| {
        embedding::normalised(node, around.opset)
    }),
    ("com.microsoft::NhwcMaxPool", |node, around| {
        shaped::channels_last(node, around.opset)
    }),
    ("com.microsoft::ExpandDims", |node, _| {
        renamed(node, "Unsqueeze")
    }),
    ("com.microsoft::CausalConvWithState", |node, _| {
        of_standard(node)
    }),
    ("com.microsoft::GatherND", |node, _| of_standard(node)),
    ("com.microsoft::GridSample", |node, _| of_standard(node)),
    ("com.microsoft::LinearAttention", |node, _| {
        of_standard(node)
    }),
    ("com.microsoft::Pad", |node, _| of_standard(node)),
    ("com.microsoft::Range", |node, _| of_standard(node)),
    ("com.microsoft::Trilu", |node, _| of_standard(node)),
    ("com.microsoft::Unique", |node, _| shaped::different(node)),
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
fn of_standard(node: &NodeProto) -> Option<Vec<NodeProto>> {
    renamed(node, &node.op_type)
}

/// A node of ONNX Runtime with the meaning of a standard operator.
#[expect(clippy::unnecessary_wraps, reason = "steps have this signature")]
fn renamed(node: &NodeProto, operator: &str) -> Option<Vec<NodeProto>> {
    Some(vec![NodeProto {
        domain: String::new(),
        op_type: operator.to_owned(),
        ..node.clone()
    }])
}

/// A swish times another tensor.
fn gated(node: &NodeProto, opset: i64) -> Option<Vec<NodeProto>> {
    let [gate, value] = node.input.as_slice() else {
        return None;
    };
    let output = node.output.first()?;
    let mut steps = NodeSteps::new(output, opset);
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
