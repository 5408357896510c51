//! Replaces operators that stand for several others, because the tract library lacks them: those of
//! `com.microsoft`, `SwiGLU` and losses.
//!
//! Nodes with a form that is unknown here stay, and are rejected by name later.

use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto};

use super::attention::contrib;
use super::graph::{
    AttributeKind, Shapes, attribute, each_graph_mut, has_input, integer, keep_inputs, named,
    number_like, operator, opset, step, text,
};
use super::losses;

/// Attributes of a fused activation, which the operator before it does not have.
const ACTIVATION: &str = "activation";
const PARAMETERS: &str = "activation_params";

/// Attributes with the parameters of a fused activation, in their order.
const NAMED_PARAMETERS: [&str; 3] = ["activation_alpha", "activation_beta", "activation_gamma"];

/// Activations, with the attributes that take their parameters.
const ACTIVATIONS: [(&str, &[&str]); 9] = [
    ("Relu", &[]),
    ("Sigmoid", &[]),
    ("Softplus", &[]),
    ("Softsign", &[]),
    ("Tanh", &[]),
    ("Elu", &["alpha"]),
    ("LeakyRelu", &["alpha"]),
    ("ThresholdedRelu", &["alpha"]),
    ("HardSigmoid", &["alpha", "beta"]),
];

/// Replaces all such operators of a model.
pub(crate) fn spell_out(model: &mut ModelProto) {
    let (shapes, opset) = (Shapes::of(model), opset(model));
    each_graph_mut(model, &mut |graph| spell_out_graph(graph, &shapes, opset));
}

fn spell_out_graph(graph: &mut GraphProto, shapes: &Shapes, opset: i64) {
    for node in std::mem::take(&mut graph.node) {
        match several(&node, shapes, opset) {
            Some(several) => graph.node.extend(several),
            None => graph.node.push(node),
        }
    }
}

/// Returns the operators that a node stands for; `None` if it stays.
fn several(node: &NodeProto, shapes: &Shapes, opset: i64) -> Option<Vec<NodeProto>> {
    let name = operator(node);
    match name.as_str() {
        "com.microsoft::Attention" | "com.microsoft::QAttention" => {
            return contrib::of_projection(node, shapes, opset);
        }
        "com.microsoft::MultiHeadAttention" => return contrib::of_heads(node, shapes, opset),
        "NegativeLogLikelihoodLoss" => return losses::of_logarithms(node, opset),
        "SoftmaxCrossEntropyLoss" => return losses::of_scores(node, opset),
        _ if node.output.len() != 1 => return None,
        _ => {}
    }
    match name.as_str() {
        "SwiGLU" => gated(node),
        "com.microsoft::FusedMatMul" | "com.microsoft::TransposeMatMul" => product(node),
        "com.microsoft::FusedGemm" => activated(node, "Gemm"),
        "com.microsoft::FusedConv" => activated(node, "Conv"),
        _ => None,
    }
}

/// A swish times another tensor.
fn gated(node: &NodeProto) -> Option<Vec<NodeProto>> {
    let [gate, value] = node.input.as_slice() else {
        return None;
    };
    let open = part(&node.output[0], "gate");
    let mut swish = step("Swish", &[gate], &open);
    swish.attribute.clone_from(&node.attribute);
    swish.name.clone_from(&node.name);
    Some(vec![swish, step("Mul", &[&open, value], &node.output[0])])
}

/// A product of transposed operands, times a factor.
fn product(node: &NodeProto) -> Option<Vec<NodeProto>> {
    let output = &node.output[0];
    let [left, right] = node.input.as_slice() else {
        return None;
    };
    if ["transBatchA", "transBatchB"]
        .iter()
        .any(|it| integer(node, it, 0) != 0)
    {
        return None;
    }
    let factor = attribute(node, "alpha").map(|found| found.f);
    let factor = factor.filter(|factor| factor.to_bits() != 1_f32.to_bits());
    let made = part(output, "product");
    let made = if factor.is_none() { output } else { &made };
    let transposed = [("transA", "...ji", "...ij"), ("transB", "...kj", "...jk")]
        .map(|(name, yes, no)| if integer(node, name, 0) == 0 { no } else { yes });
    let mut multiply = step("MatMul", &[left, right], made);
    if transposed != ["...ij", "...jk"] {
        "Einsum".clone_into(&mut multiply.op_type);
        let equation = format!("{}->...ik", transposed.join(","));
        multiply.attribute.push(AttributeProto {
            s: equation.into_bytes(),
            ..named("equation", AttributeKind::Text)
        });
    }
    multiply.name.clone_from(&node.name);
    let mut nodes = vec![multiply];
    if let Some(factor) = factor {
        let cast = part(output, "factor");
        nodes.extend(number_like(factor, left, &cast));
        nodes.push(step("Mul", &[made, &cast], output));
    }
    Some(nodes)
}

/// An operator with a sum and an activation after it.
fn activated(node: &NodeProto, operator: &str) -> Option<Vec<NodeProto>> {
    let (name, output) = (text(node, ACTIVATION), &node.output[0]);
    let mut parameters = attribute(node, PARAMETERS).map_or(vec![], |found| found.floats.clone());
    parameters.extend(
        NAMED_PARAMETERS
            .iter()
            .filter_map(|it| Some(attribute(node, it)?.f)),
    );
    let mut first = node.clone();
    first.domain.clear();
    operator.clone_into(&mut first.op_type);
    first.attribute.retain(|it| {
        let it = it.name.as_str();
        it != ACTIVATION && it != PARAMETERS && !NAMED_PARAMETERS.contains(&it)
    });
    keep_inputs(&mut first, 3);
    let mut nodes = Vec::new();
    let mut made = part(output, "whole");
    first.output = vec![made.clone()];
    nodes.push(first);
    if operator == "Conv" && has_input(node, 3) {
        let sum = part(output, "sum");
        nodes.push(step("Add", &[&made, &node.input[3]], &sum));
        made = sum;
    }
    if name == b"Clip" {
        let [least, most] = parameters[..] else {
            return None;
        };
        let like = node.input.first()?;
        let [lower, upper, raised] = ["least", "most", "raised"].map(|name| part(output, name));
        nodes.extend(number_like(least, like, &lower));
        nodes.extend(number_like(most, like, &upper));
        nodes.push(step("Max", &[&made, &lower], &raised));
        nodes.push(step("Min", &[&raised, &upper], output));
        return Some(nodes);
    }
    if name.is_empty() {
        nodes.push(step("Identity", &[&made], output));
        return Some(nodes);
    }
    let known = ACTIVATIONS
        .iter()
        .find(|(known, _)| known.as_bytes() == name);
    let (known, takes) = known?;
    let mut last = step(known, &[&made], output);
    let values = takes.iter().zip(parameters);
    last.attribute
        .extend(values.map(|(name, value)| AttributeProto {
            f: value,
            ..named(name, AttributeKind::Float)
        }));
    nodes.push(last);
    Some(nodes)
}

fn part(output: &str, name: &str) -> String {
    format!("{output}.fused.{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the operators that a node becomes.
    fn spelled_out(operator: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let mut node = step(operator, inputs, "y");
        "com.microsoft".clone_into(&mut node.domain);
        node.attribute = attributes;
        let mut graph = GraphProto {
            node: vec![node],
            ..GraphProto::default()
        };
        spell_out_graph(&mut graph, &Shapes::of(&ModelProto::default()), 17);
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
        let flag = |name| AttributeProto {
            i: 1,
            ..named(name, AttributeKind::Int)
        };
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
