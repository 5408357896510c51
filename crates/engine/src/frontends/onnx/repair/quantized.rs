//! Rewrites products of quantised numbers as an integer product, a factor and a quantisation.
//!
//! The library rounds halfway values upwards when it scales results to the output, so answers
//! differ by one step. The rewritten operators round as the standard specifies.

use tract_onnx::pb::{AttributeProto, GraphProto, NodeProto, TensorProto};

use super::super::graph::{AttributeKind, FLOAT, Floats, Shapes, named, step};
use super::INT64;

/// Rewrites the products of a graph whose scales are stored.
pub(super) fn repair(graph: &mut GraphProto, floats: &Floats, shapes: &Shapes) {
    let nodes = std::mem::take(&mut graph.node);
    for node in nodes {
        let spelled = match node.op_type.as_str() {
            "QLinearMatMul" => of_matrices(&node, floats),
            "QLinearConv" => of_convolution(&node, floats, shapes),
            _ => None,
        };
        match spelled {
            Some((nodes, stored)) => {
                graph.node.extend(nodes);
                graph.initializer.extend(stored);
            }
            None => graph.node.push(node),
        }
    }
}

type Spelled = (Vec<NodeProto>, Vec<TensorProto>);

fn of_matrices(node: &NodeProto, floats: &Floats) -> Option<Spelled> {
    let [a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero] = node.input.as_slice() else {
        return None;
    };
    let scale = |name: &String| match floats.of_tensor(name)? {
        [scale] => Some(*scale),
        _ => None,
    };
    let factor = scale(a_scale)? * scale(b_scale)? / scale(y_scale)?;
    let output = node.output.first()?;
    let mut product = step(
        "MatMulInteger",
        &[a, b, a_zero, b_zero],
        &part(output, "product"),
    );
    product.name.clone_from(&node.name);
    Some(finished(
        vec![product],
        output,
        &part(output, "product"),
        vec![factor],
        0,
        y_zero,
    ))
}

fn of_convolution(node: &NodeProto, floats: &Floats, shapes: &Shapes) -> Option<Spelled> {
    let [
        x,
        x_scale,
        x_zero,
        w,
        w_scale,
        w_zero,
        y_scale,
        y_zero,
        bias @ ..,
    ] = node.input.as_slice()
    else {
        return None;
    };
    let one = |name: &String| match floats.of_tensor(name)? {
        [scale] => Some(*scale),
        _ => None,
    };
    let (x_scale, y_scale) = (one(x_scale)?, one(y_scale)?);
    let rank = shapes.of_tensor(w)?.len();
    let factors = floats.of_tensor(w_scale)?;
    let factors: Vec<f32> = factors
        .iter()
        .map(|scale| x_scale * scale / y_scale)
        .collect();
    // Another operator handles zero points per channel.
    if shapes.of_tensor(w_zero)?.iter().product::<i64>() > 1 && !floats.is_zero(w_zero) {
        return None;
    }
    let output = node.output.first()?;
    let mut inputs = vec![x.as_str(), w.as_str(), x_zero.as_str()];
    if shapes.of_tensor(w_zero)?.iter().product::<i64>() == 1 {
        inputs.push(w_zero);
    }
    let mut product = step("ConvInteger", &inputs, &part(output, "product"));
    product.name.clone_from(&node.name);
    product.attribute.clone_from(&node.attribute);
    let mut nodes = vec![product];
    let mut last = part(output, "product");
    let mut stored = Vec::new();
    if let [bias] = bias
        && !bias.is_empty()
    {
        let mut shape = vec![1; rank - 1];
        shape[0] = -1;
        stored.push(TensorProto {
            name: part(output, "bias_shape"),
            dims: vec![i64::try_from(shape.len()).ok()?],
            data_type: INT64,
            int64_data: shape,
            ..TensorProto::default()
        });
        nodes.push(step(
            "Reshape",
            &[bias, &part(output, "bias_shape")],
            &part(output, "bias"),
        ));
        nodes.push(step(
            "Add",
            &[&last, &part(output, "bias")],
            &part(output, "sum"),
        ));
        last = part(output, "sum");
    }
    let (nodes, more) = finished(nodes, output, &last, factors, rank - 2, y_zero);
    stored.extend(more);
    Some((nodes, stored))
}

fn part(output: &str, name: &str) -> String {
    format!("{output}.quantized.{name}")
}

/// Converts sums of products to quantised outputs. Factors per channel are followed by `axes` axes.
fn finished(
    mut nodes: Vec<NodeProto>,
    output: &str,
    last: &str,
    factors: Vec<f32>,
    axes: usize,
    zero: &str,
) -> Spelled {
    let part = |name: &str| part(output, name);
    let mut dims = Vec::new();
    if factors.len() > 1 {
        dims.push(i64::try_from(factors.len()).unwrap_or(i64::MAX));
        dims.extend(std::iter::repeat_n(1, axes));
    }
    let float = |name: &str, dims: Vec<i64>, values: Vec<f32>| TensorProto {
        name: part(name),
        dims,
        data_type: FLOAT,
        float_data: values,
        ..TensorProto::default()
    };
    let mut cast = step("Cast", &[last], &part("float"));
    cast.attribute.push(AttributeProto {
        i: i64::from(FLOAT),
        ..named("to", AttributeKind::Int)
    });
    nodes.push(cast);
    nodes.push(step(
        "Mul",
        &[&part("float"), &part("factor")],
        &part("scaled"),
    ));
    nodes.push(step(
        "QuantizeLinear",
        &[&part("scaled"), &part("one"), zero],
        output,
    ));
    let stored = vec![
        float("factor", dims, factors),
        float("one", Vec::new(), vec![1.0]),
    ];
    (nodes, stored)
}
