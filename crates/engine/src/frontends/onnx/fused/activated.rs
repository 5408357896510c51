//! Writes convolutions and products with an activation as several operators.

use tract_onnx::pb::NodeProto;

use crate::frontends::onnx::graph::{attribute, has_input, keep_inputs, text};
use crate::frontends::onnx::steps::{Around, NodeSteps, float};

/// Attributes of a fused activation, which the operator before it does not have.
pub(super) const ACTIVATION: &str = "activation";
pub(super) const PARAMETERS: &str = "activation_params";

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

/// A convolution with a sum and an activation after it.
pub(super) fn convolution(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    steps_of(node, "Conv", around)
}

/// A product with an activation after it.
pub(super) fn product(node: &NodeProto, around: Around<'_>) -> Option<Vec<NodeProto>> {
    steps_of(node, "Gemm", around)
}

fn steps_of(node: &NodeProto, operator: &str, around: Around<'_>) -> Option<Vec<NodeProto>> {
    let mut first = node.clone();
    first.domain.clear();
    operator.clone_into(&mut first.op_type);
    first.attribute.retain(|it| {
        let it = it.name.as_str();
        it != ACTIVATION && it != PARAMETERS && !NAMED_PARAMETERS.contains(&it)
    });
    let has_sum = operator == "Conv" && has_input(node, 3);
    keep_inputs(&mut first, 3);
    let mut steps = NodeSteps::new(node.output.first()?, around.opset);
    let mut made = steps.push_renamed(first);
    if has_sum {
        made = steps.add("Add", &[&made, &node.input[3]]);
    }
    activate(&mut steps, node, &made)?;
    Some(steps.finish(&node.output[0]))
}

/// Adds the activation of a node; `None` if it is unknown.
fn activate(steps: &mut NodeSteps, node: &NodeProto, made: &str) -> Option<()> {
    let name = text(node, ACTIVATION);
    let mut parameters = attribute(node, PARAMETERS).map_or(vec![], |found| found.floats.clone());
    parameters.extend(
        NAMED_PARAMETERS
            .iter()
            .filter_map(|it| Some(attribute(node, it)?.f)),
    );
    if name == b"Clip" {
        let [least, most] = parameters[..] else {
            return None;
        };
        let like = node.input.first()?;
        let [least, most] = [least, most].map(|limit| steps.number(limit, like));
        let raised = steps.add("Max", &[made, &least]);
        steps.add("Min", &[&raised, &most]);
        return Some(());
    }
    if name.is_empty() {
        steps.add("Identity", &[made]);
        return Some(());
    }
    let known = ACTIVATIONS
        .iter()
        .find(|(known, _)| known.as_bytes() == name);
    let (known, takes) = known?;
    let values = takes.iter().zip(parameters);
    steps.add_with(
        known,
        &[made],
        values.map(|(name, value)| float(name, value)),
    );
    Some(())
}
