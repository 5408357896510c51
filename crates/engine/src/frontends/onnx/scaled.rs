//! Rewrites operators with an attribute that the tract library ignores into several operators
//! without it.

use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, TensorProto};

use super::graph::{
    Stored, attribute, constant, each_graph_mut, has_input, integer, is_default, number_like, step,
};

/// ONNX's code of int8.
const INT8: i32 = 3;

/// Rewrites all such operators.
pub(crate) fn expand_attributes(model: &mut ModelProto) {
    let scales = shapes_of_scales(model);
    each_graph_mut(model, &mut |graph| spell_out_graph(graph, &scales));
}

/// Returns `true` if this module rewrites a quantisation to this type, without a zero point, whose
/// scale is in `stored`.
pub(crate) fn is_expanded(node: &NodeProto, stored: &Stored<'_>) -> bool {
    let scale = node.input.get(1).and_then(|name| stored.shape(name));
    integer(node, "output_dtype", 0) == i64::from(INT8) && scale.is_some()
}

fn shapes_of_scales(model: &ModelProto) -> Vec<(String, Vec<i64>)> {
    let stored = Stored::of(model);
    let mut found = Vec::new();
    super::graph::each_node(model, &mut |node| {
        if is_whole(node, "QuantizeLinear") && is_expanded(node, &stored) {
            let shape = stored.shape(&node.input[1]).expect("it was just found");
            found.push((node.input[1].clone(), shape.to_vec()));
        }
    });
    found
}

fn spell_out_graph(graph: &mut GraphProto, scales: &[(String, Vec<i64>)]) {
    for mut node in std::mem::take(&mut graph.node) {
        let alpha = attribute(&node, "alpha").map_or(1.0, |alpha| alpha.f);
        let is_scaled = (alpha - 1.0).abs() > f32::EPSILON;
        if is_scaled && is_whole(&node, "Swish") {
            graph.node.extend(swish(&node, alpha));
        } else {
            let is_typed = integer(&node, "output_dtype", 0) == i64::from(INT8);
            if is_typed && is_whole(&node, "QuantizeLinear") && !has_input(&node, 2) {
                let scale = scales
                    .iter()
                    .find(|(name, _)| node.input.get(1) == Some(name));
                if let Some((_, shape)) = scale {
                    let zero = format!("{}.zero", node.output[0]);
                    graph.node.push(zeros(&zero, shape));
                    node.input.truncate(2);
                    node.input.push(zero);
                }
            }
            graph.node.push(node);
        }
    }
}

/// Computes `x * sigmoid(alpha * x)`.
fn swish(node: &NodeProto, alpha: f32) -> [NodeProto; 5] {
    let part = |name: &str| format!("{}.swish.{name}", node.output[0]);
    let [stored, alpha] = number_like(alpha, &node.input[0], &part("alpha"));
    [
        stored,
        alpha,
        step("Mul", &[&node.input[0], &part("alpha")], &part("scaled")),
        step("Sigmoid", &[&part("scaled")], &part("gate")),
        step("Mul", &[&node.input[0], &part("gate")], &node.output[0]),
    ]
}

/// Returns `true` for an operator of the default domain with its first input and output.
fn is_whole(node: &NodeProto, operator: &str) -> bool {
    let has_ends = has_input(node, 0) && !node.output.is_empty();
    has_ends && node.op_type == operator && is_default(node)
}

/// Zeros of int8. A scale of too many elements gets one zero, which contradicts its shape and fails
/// later.
fn zeros(output: &str, shape: &[i64]) -> NodeProto {
    let count = shape
        .iter()
        .map(|size| usize::try_from(*size).unwrap_or(0))
        .product::<usize>();
    constant(
        output,
        TensorProto {
            dims: shape.to_vec(),
            data_type: INT8,
            raw_data: vec![0; count.min(1 << 24)],
            ..TensorProto::default()
        },
    )
}
