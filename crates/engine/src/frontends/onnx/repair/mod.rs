//! Rewrites parts of an ONNX model that the tract library reads or computes wrongly into equivalent
//! parts that it computes correctly.

mod contrib;
mod deconvolution;
mod quantized;

use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};

use super::exact::CAST_TO_INT64;
use super::graph::{
    AttributeKind, INT64, Shapes, Zeros, attribute, constant, each_graph_mut, each_tensor_mut,
    integer, is_default, named, number, number_like, opset, step, text, value,
};

/// ONNX's codes of element types.
const UINT32: i32 = 12;
const UINT64: i32 = 13;

/// Rewrites the whole model.
pub(crate) fn repair(model: &mut ModelProto) {
    let opset = opset(model);
    each_tensor_mut(model, &mut widen);
    let shapes = Shapes::of(model);
    let zeros = Zeros::of(model);
    each_graph_mut(model, &mut |graph| {
        graph.node.iter_mut().for_each(fill_with_float);
        graph.node.iter_mut().for_each(without_padding);
        contrib::repair(graph);
        deconvolution::repair(graph, &shapes);
        quantized::repair(graph, &shapes, &zeros, opset);
        spell_out(graph, opset);
    });
}

/// Converts unsigned numbers to raw bytes, because the library reads them from a field that the
/// standard does not use for them.
fn widen(tensor: &mut TensorProto) {
    if !tensor.raw_data.is_empty() {
        return;
    }
    let numbers = tensor.uint64_data.iter();
    tensor.raw_data = match tensor.data_type {
        UINT32 => numbers
            .flat_map(|number| u32::try_from(*number).unwrap_or(u32::MAX).to_le_bytes())
            .collect(),
        UINT64 => numbers.flat_map(|number| number.to_le_bytes()).collect(),
        _ => return,
    };
}

/// Without a value, `ConstantOfShape` creates float32 zeros in ONNX, but float64 zeros in the
/// library.
fn fill_with_float(node: &mut NodeProto) {
    if node.op_type == "ConstantOfShape" && attribute(node, "value").is_none() {
        node.attribute.push(value(TensorProto {
            dims: vec![1],
            ..number(0.0)
        }));
    }
}

/// Removes `auto_pad` = `VALID`, which means no padding. The library lets it change `ceil_mode`,
/// too.
fn without_padding(node: &mut NodeProto) {
    let is_pool = matches!(node.op_type.as_str(), "MaxPool" | "AveragePool" | "LpPool");
    if is_pool && is_default(node) && text(node, "auto_pad") == b"VALID" {
        node.attribute
            .retain(|it| !matches!(it.name.as_str(), "auto_pad" | "pads"));
    }
}

/// Replaces operators whose implementation overflows or underflows by several that do not.
fn spell_out(graph: &mut GraphProto, opset: i64) {
    let nodes = std::mem::take(&mut graph.node);
    for node in nodes {
        let is_default = is_default(&node);
        match (node.input.as_slice(), node.output.as_slice()) {
            ([input], [output]) if is_default && node.op_type == "Softplus" => {
                graph.node.extend(softplus(input, output));
            }
            ([input], [output]) if is_default && node.op_type == "LogSoftmax" && opset >= 13 => {
                let axis = integer(&node, "axis", -1);
                graph.node.extend(log_softmax(input, output, axis, opset));
            }
            ([input], [output]) if is_default && node.op_type == "LogSoftmax" => {
                let axis = integer(&node, "axis", 1);
                graph
                    .node
                    .extend(flat_log_softmax(input, output, axis, opset));
            }
            _ if is_default
                && node.op_type == "Cast"
                && integer(&node, "to", 0) == i64::from(INT64) =>
            {
                let mut node = node;
                CAST_TO_INT64.clone_into(&mut node.op_type);
                graph.node.push(node);
            }
            _ => graph.node.push(node),
        }
    }
}

/// Computes `max(x, 0) + log(1 + exp(-|x|))`, which does not overflow, unlike `log(1 + exp(x))`.
fn softplus(input: &str, output: &str) -> [NodeProto; 9] {
    let part = |name: &str| format!("{output}.softplus.{name}");
    let [stored, one] = number_like(1.0, input, &part("one"));
    [
        stored,
        one,
        step("Abs", &[input], &part("abs")),
        step("Neg", &[&part("abs")], &part("neg")),
        step("Exp", &[&part("neg")], &part("exp")),
        step("Add", &[&part("exp"), &part("one")], &part("sum")),
        step("Log", &[&part("sum")], &part("log")),
        step("Relu", &[input], &part("relu")),
        step("Add", &[&part("relu"), &part("log")], output),
    ]
}

/// Computes `x - max(x) - log(sum(exp(x - max(x))))`, which does not underflow, unlike the
/// logarithm of a softmax.
fn log_softmax(input: &str, output: &str, axis: i64, opset: i64) -> [NodeProto; 7] {
    let part = |name: &str| format!("{output}.log_softmax.{name}");
    let axes = TensorProto {
        dims: vec![1],
        data_type: INT64,
        int64_data: vec![axis],
        ..TensorProto::default()
    };
    let mut largest = step("ReduceMax", &[input], &part("max"));
    if opset >= 18 {
        largest.input.push(part("axes"));
    } else {
        largest.attribute.push(AttributeProto {
            ints: vec![axis],
            ..named("axes", AttributeKind::Ints)
        });
    }
    let mut sum = step("ReduceSum", &[&part("exp")], &part("sum"));
    if opset >= 13 {
        sum.input.push(part("axes"));
    } else {
        sum.attribute.push(AttributeProto {
            ints: vec![axis],
            ..named("axes", AttributeKind::Ints)
        });
    }
    [
        constant(&part("axes"), axes),
        largest,
        step("Sub", &[input, &part("max")], &part("shifted")),
        step("Exp", &[&part("shifted")], &part("exp")),
        sum,
        step("Log", &[&part("sum")], &part("log")),
        step("Sub", &[&part("shifted"), &part("log")], output),
    ]
}

/// Before version 13 the operator flattens its input to two dimensions.
fn flat_log_softmax(input: &str, output: &str, axis: i64, opset: i64) -> Vec<NodeProto> {
    let part = |name: &str| format!("{output}.log_softmax.{name}");
    let mut flatten = step("Flatten", &[input], &part("flat"));
    flatten.attribute.push(AttributeProto {
        i: axis,
        ..named("axis", AttributeKind::Int)
    });
    let mut nodes = vec![flatten];
    nodes.extend(log_softmax(&part("flat"), &part("rows"), 1, opset));
    nodes.push(step("Shape", &[input], &part("shape")));
    nodes.push(step("Reshape", &[&part("rows"), &part("shape")], output));
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_wrongly_is_written_otherwise() {
        let mut model = ModelProto {
            graph: Some(GraphProto {
                node: vec![
                    step("ConstantOfShape", &["shape"], "zeros"),
                    step("Softplus", &["zeros"], "y"),
                ],
                initializer: vec![TensorProto {
                    data_type: UINT32,
                    uint64_data: vec![7],
                    ..TensorProto::default()
                }],
                ..GraphProto::default()
            }),
            ..ModelProto::default()
        };
        repair(&mut model);
        let graph = model.graph.expect("it is still there");
        assert_eq!(graph.initializer[0].raw_data, [7, 0, 0, 0]);
        assert!(attribute(&graph.node[0], "value").is_some());
        assert_eq!(graph.node.len(), 10);
        assert_eq!(graph.node[9].output, ["y"]);
    }
}
