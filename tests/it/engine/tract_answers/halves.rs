//! Sums of float16 numbers on tract are accumulated in float32, as in ONNX Runtime.
//!
//! Each test computes its answers three times in one session, with other inputs in between.

use pkgtool_engine::tensor::DType;

use super::{Attribute, FLOAT16, assert_answers, bytes, halves, node, numbers, tensor, value};

/// A model with one operator and one input of this shape.
fn graph(shape: &[i64], operator: &str, attributes: &[(&str, Attribute<'_>)]) -> Vec<Vec<u8>> {
    vec![
        value(11, "x", FLOAT16, Some(shape)),
        value(12, "y", FLOAT16, None),
        node(operator, &["x"], "y", attributes),
    ]
}

#[test]
fn means_and_norms_of_large_numbers_are_finite() {
    let shape = [1, 1, 16, 16];
    let image = |value: f64| vec![tensor(DType::Float16, &shape, &[value; 256])];
    let of_image = [1, 1, 16, 16];
    for graph in [
        graph(&of_image, "GlobalAveragePool", &[]),
        graph(
            &of_image,
            "AveragePool",
            &[("kernel_shape", Attribute::Ints(&[16, 16]))],
        ),
    ] {
        let run = |value: f64| (image(value), vec![1, 1, 1, 1], vec![value]);
        assert_answers(&graph, &[run(400.0), run(1.5)]);
    }

    let row = |value: f64| vec![tensor(DType::Float16, &[1, 2048], &[value; 2048])];
    for (operator, of_one) in [("ReduceMean", 1.0), ("ReduceL2", 2048.0_f64.sqrt())] {
        let mut graph = graph(&[1, 2048], operator, &[]);
        graph[2] = node(operator, &["x", "axes"], "y", &[]);
        graph.push(numbers("axes", &[1]));
        let run = |value: f64| {
            let half = half::f16::from_f64(of_one * value).to_f64();
            (row(value), vec![1, 1], vec![half])
        };
        assert_answers(&graph, &[run(100.0), run(1.0)]);
    }

    // Two values at equal distances from their mean.
    let either: Vec<f64> = (0..256)
        .map(|at| if at % 2 == 0 { 400.0 } else { -400.0 })
        .collect();
    let signs: Vec<f64> = either.iter().map(|value| value.signum()).collect();
    let mut graph = graph(&of_image, "InstanceNormalization", &[]);
    graph[2] = node("InstanceNormalization", &["x", "one", "none"], "y", &[]);
    graph.push(bytes("one", FLOAT16, &[1], &halves(&[1.0])));
    graph.push(bytes("none", FLOAT16, &[1], &halves(&[0.0])));
    let large = (
        vec![tensor(DType::Float16, &shape, &either)],
        vec![1, 1, 16, 16],
        signs,
    );
    let even = (image(3.0), vec![1, 1, 16, 16], vec![0.0; 256]);
    assert_answers(&graph, &[large, even]);
}

/// In float16, 2048 plus one is 2048, so an accumulation in float16 would be wrong.
#[test]
fn convolutions_of_many_taps_are_exact() {
    const CHANNELS: u32 = 4096;
    let of_all = |value: f64| vec![value; 3 * CHANNELS as usize];
    let weights = halves(&vec![1.0; 3 * CHANNELS as usize]);
    let mut graph = graph(&[1, CHANNELS.into(), 3], "Conv", &[]);
    graph[2] = node("Conv", &["x", "w"], "y", &[]);
    graph.push(bytes("w", FLOAT16, &[1, CHANNELS.into(), 3], &weights));
    let run = |value: f64| {
        let shape = [1, CHANNELS.into(), 3];
        let input = tensor(DType::Float16, &shape, &of_all(value));
        (vec![input], vec![1, 1, 1], vec![value * 12_288.0])
    };
    assert_answers(&graph, &[run(1.0), run(-0.5), run(2.0)]);
}
