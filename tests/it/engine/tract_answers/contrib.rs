//! Contributed operators of ONNX Runtime (domain `com.microsoft`) on tract, compared with ONNX
//! Runtime's results.
//!
//! Each test computes its answers three times in one session, with other inputs in between.

use pkgtool_engine::tensor::DType;

use super::{
    Attribute, CONTRIB, FLOAT, INT32, assert_answers, float, floats, load, tensor, value,
    whole_node,
};

const X: [f64; 4] = [1.0, -2.0, 0.5, 4.0];
const SKIP: [f64; 4] = [0.25, 1.0, -1.5, 2.0];
const GAMMA: [f32; 4] = [1.0, 2.0, 0.5, -1.0];
const BETA: [f32; 4] = [0.1, -0.2, 0.3, 0.4];
const BIAS: [f32; 4] = [3.0, -1.0, 0.5, 0.25];

/// Returns the expected sum of both inputs after RMS normalization (`is_simple`) or layer
/// normalization.
fn normed(x: [f64; 4], bias: bool, beta: bool, is_simple: bool) -> Vec<f64> {
    let bias = |at: usize| if bias { f64::from(BIAS[at]) } else { 0.0 };
    let sum: Vec<f64> = (0..4).map(|at| x[at] + SKIP[at] + bias(at)).collect();
    let mean = if is_simple {
        0.0
    } else {
        sum.iter().sum::<f64>() / 4.0
    };
    let square = sum.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 4.0;
    let beta = |at: usize| if beta { f64::from(BETA[at]) } else { 0.0 };
    let of =
        |at: usize| (sum[at] - mean) / (square + 1e-5).sqrt() * f64::from(GAMMA[at]) + beta(at);
    (0..4).map(of).collect()
}

#[test]
fn the_bias_of_a_sum_that_is_normed_is_the_sums() {
    for (operator, inputs) in [
        ("SkipSimplifiedLayerNormalization", &["g"][..]),
        ("SkipSimplifiedLayerNormalization", &["g", "bias"]),
        ("SkipLayerNormalization", &["g"]),
        ("SkipLayerNormalization", &["g", "beta"]),
        ("SkipLayerNormalization", &["g", "", "bias"]),
        ("SkipLayerNormalization", &["g", "beta", "bias"]),
    ] {
        let all = [&["x", "skip"], inputs].concat();
        let epsilon = [("epsilon", Attribute::Float(1e-5))];
        let mut graph = vec![
            value(11, "x", FLOAT, Some(&[1, 1, 4])),
            value(11, "skip", FLOAT, Some(&[1, 1, 4])),
            value(12, "y", FLOAT, None),
            whole_node(CONTRIB, operator, &all, &["y"], &epsilon),
        ];
        for (name, values) in [("g", GAMMA), ("beta", BETA), ("bias", BIAS)] {
            if inputs.contains(&name) {
                graph.push(floats(name, &[4], &values));
            }
        }
        let run = |x: [f64; 4]| {
            let has = |name: &str| inputs.contains(&name);
            let is_simple = operator.contains("Simplified");
            let expected = normed(x, has("bias"), has("beta"), is_simple);
            let given = vec![float(&[1, 1, 4], &x), float(&[1, 1, 4], &SKIP)];
            (given, vec![1, 1, 4], expected)
        };
        assert_answers(&graph, &[run(X), run([0.0, 1.0, 2.0, 3.5])]);
    }
}

/// An attention with one head of size two, over a cache of sequences.
fn over_cache(scale: Option<f32>) -> Vec<Vec<u8>> {
    let shapes: [(&str, u64, &[i64]); 7] = [
        ("q", FLOAT, &[2, 1, 2]),
        ("k", FLOAT, &[2, 1, 2]),
        ("v", FLOAT, &[2, 1, 2]),
        ("past_k", FLOAT, &[2, 1, 2, 2]),
        ("past_v", FLOAT, &[2, 1, 2, 2]),
        ("lengths", INT32, &[2]),
        ("total", INT32, &[]),
    ];
    let values = shapes.map(|(name, dtype, shape)| value(11, name, dtype, Some(shape)));
    let mut attributes = vec![
        ("num_heads", Attribute::Int(1)),
        ("kv_num_heads", Attribute::Int(1)),
    ];
    attributes.extend(scale.map(|scale| ("scale", Attribute::Float(scale))));
    let outputs = ["y", "present_k", "present_v"];
    let inputs = shapes.map(|(name, ..)| name);
    let node = whole_node(
        CONTRIB,
        "GroupQueryAttention",
        &inputs,
        &outputs,
        &attributes,
    );
    let mut graph = values.to_vec();
    graph.extend(outputs.map(|name| value(12, name, FLOAT, None)));
    graph.push(node);
    graph
}

#[test]
fn sequences_beyond_the_cache_are_refused() {
    let whole = |values: &[f64]| tensor(DType::Int32, &[values.len() as u64], values);
    // All keys are equal, so the answer is the mean of the values.
    let given = |lengths: [f64; 2]| {
        vec![
            float(&[2, 1, 2], &[1.0; 4]),
            float(&[2, 1, 2], &[1.0; 4]),
            float(&[2, 1, 2], &[3.0; 4]),
            float(&[2, 1, 2, 2], &[1.0; 8]),
            float(&[2, 1, 2, 2], &[0.0; 8]),
            whole(&lengths),
            tensor(DType::Int32, &[], &[3.0]),
        ]
    };
    let mut session = load(&over_cache(None)).expect("the model loads");
    for _ in 0..3 {
        let answer = session.run(&given([2.0, 2.0])).expect("the run succeeds");
        let found = answer.outputs[0].to_f64();
        assert!(found.into_iter().all(|value| (value - 1.0).abs() < 1e-6));
        // The first sequence has one token in the cache.
        let answer = session.run(&given([1.0, 2.0])).expect("the run succeeds");
        let found: Vec<f64> = answer.outputs[0].to_f64().collect();
        assert_eq!(found, [1.5, 1.5, 1.0, 1.0]);
        for lengths in [[2.0, 3.0], [2.0, -1.0], [-2.0, 2.0]] {
            let error = session
                .run(&given(lengths))
                .expect_err("the result would be wrong");
            assert!(error.to_string().contains("`seqlens_k`"), "{error}");
        }
    }
}

/// A scale of zero stands for the default scale. Taken literally, it would give the mean of all
/// values.
#[test]
fn a_scale_of_zero_is_the_usual_one() {
    let run = || {
        vec![
            float(&[2, 1, 2], &[1.0, 0.0, 0.0, 1.0]),
            float(&[2, 1, 2], &[2.0, 0.0, 0.0, 3.0]),
            float(&[2, 1, 2], &[3.0, 1.0, 2.0, 5.0]),
            float(&[2, 1, 2, 2], &[1.0, -1.0, 0.5, 2.0, 1.0, 1.0, -2.0, 0.0]),
            float(&[2, 1, 2, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
            tensor(DType::Int32, &[2], &[2.0, 2.0]),
            tensor(DType::Int32, &[], &[3.0]),
        ]
    };
    let answer = |scale| {
        let mut session = load(&over_cache(scale)).expect("the model loads");
        let answer = session.run(&run()).expect("the run succeeds");
        answer.outputs[0].to_f64().collect::<Vec<f64>>()
    };
    let usual = answer(None);
    assert_eq!(answer(Some(0.0)), usual);
    assert_ne!(answer(Some(0.1)), usual);
}
