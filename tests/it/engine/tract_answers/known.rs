//! Constant folding and operator fusion in tract: the corrected operators give the same answers
//! there as elsewhere.
//!
//! Each test computes its answers three times in one session, with other inputs in between.

use pkgtool_engine::tensor::DType;

use super::{Attribute, FLOAT, UINT8, assert_answers, float, floats, load, node, tensor, value};

const NAN: f64 = f64::NAN;

/// Runs `operator` on constants of the model, plus an input of zeros and ones.
fn of_stored(operator: &str, stored: &[(&str, &[f32])], expected: &[f64]) {
    let size = i64::try_from(expected.len()).expect("a few");
    let names: Vec<&str> = stored.iter().map(|(name, _)| *name).collect();
    let mut graph = vec![
        value(11, "x", FLOAT, Some(&[size])),
        value(12, "y", FLOAT, None),
        node(operator, &names, "m", &[]),
        node("Add", &["m", "x"], "y", &[]),
    ];
    for (name, values) in stored {
        let shape = [values.len() as u64];
        let shape = if values.len() == 1 {
            &[][..]
        } else {
            &shape[..]
        };
        graph.push(floats(name, shape, values));
    }
    let run = |x: f64| {
        let shape = [expected.len() as u64];
        let inputs = vec![float(&shape, &vec![x; expected.len()])];
        let sums = expected.iter().map(|value| value + x).collect();
        (inputs, shape.to_vec(), sums)
    };
    assert_answers(&graph, &[run(0.0), run(1.0)]);
}

#[test]
fn stored_numbers_that_are_none_stay_none() {
    let nan = f32::NAN;
    let (a, b) = ([1.0, nan, -2.0], [nan, 0.0, 1.0]);
    of_stored("Max", &[("a", &a), ("b", &b)], &[NAN, NAN, 1.0]);
    of_stored("Min", &[("a", &a), ("b", &b)], &[NAN, NAN, -2.0]);
    of_stored("Relu", &[("a", &a)], &[1.0, NAN, 0.0]);
    let bounds: [(&str, &[f32]); 2] = [("least", &[0.0]), ("most", &[0.5])];
    of_stored("Clip", &[("a", &a), bounds[0], bounds[1]], &[0.5, NAN, 0.0]);
    of_stored("Tanh", &[("a", &[nan, 0.0, 90.0])], &[NAN, 0.0, 1.0]);
    of_stored("HardSigmoid", &[("a", &[nan, 0.0, 90.0])], &[NAN, 0.5, 1.0]);
    // Constants too large to be folded while the graph is read.
    let mut large = vec![-1.0; 64];
    large[7] = nan;
    let mut expected = vec![0.0; 64];
    expected[7] = NAN;
    of_stored("Relu", &[("a", &large)], &expected);
}

#[test]
fn a_stored_logistic_function_has_no_floor() {
    let small = (-20.0_f64).exp();
    of_stored(
        "Sigmoid",
        &[("a", &[-20.0, 0.0])],
        &[small / (1.0 + small), 0.5],
    );
}

#[test]
fn stored_numbers_far_beyond_the_steps_are_the_last_one() {
    let zero = super::bytes("z", UINT8, &[], &[5]);
    let graph = [
        value(11, "x", UINT8, Some(&[4])),
        value(12, "y", UINT8, None),
        floats("a", &[4], &[1e20, -3e9, 3e9, f32::NAN]),
        floats("s", &[], &[1.0]),
        zero,
        node("QuantizeLinear", &["a", "s", "z"], "m", &[]),
        node("Concat", &["m", "x"], "y", &[("axis", Attribute::Int(0))]),
    ];
    let run = |x: [f64; 4]| {
        let expected = [255.0, 0.0, 255.0, 0.0].into_iter().chain(x).collect();
        (vec![tensor(DType::Uint8, &[4], &x)], vec![8], expected)
    };
    assert_answers(&graph, &[run([1.0, 2.0, 3.0, 4.0]), run([9.0; 4])]);
}

#[test]
fn what_is_refused_of_inputs_is_refused_of_stored_tensors() {
    let graph = [
        value(11, "x", UINT8, Some(&[2])),
        value(12, "y", UINT8, None),
        super::bytes("a", UINT8, &[2], &[1, 2]),
        super::bytes("b", UINT8, &[2], &[1, 9]),
        node(
            "BitShift",
            &["a", "b"],
            "m",
            &[("direction", Attribute::Text("LEFT"))],
        ),
        node("BitwiseOr", &["m", "x"], "y", &[]),
    ];
    let error = load(&graph)
        .err()
        .expect("the model is rejected")
        .to_string();
    assert!(error.contains("a shift of 8 bits by 9"), "{error}");
    assert!(error.contains("`BitShift`"), "{error}");
}

/// Matrix product kernels fuse the operator that follows; the fused forms lost NaN.
#[test]
fn products_keep_what_is_no_number_through_what_is_fused() {
    let bounds = [floats("least", &[], &[-1.0]), floats("most", &[], &[2.0])];
    for tail in ["Relu", "Clip"] {
        for (rows, columns, depth) in [(1, 1, 3), (1, 40, 8), (8, 16, 16), (40, 3, 5)] {
            let (outer, inner): (i64, u64) = (rows, columns);
            let inputs: &[&str] = if tail == "Clip" {
                &["m", "least", "most"]
            } else {
                &["m"]
            };
            let weights = vec![0.5; usize::try_from(depth * inner).expect("a few")];
            let mut graph = vec![
                value(
                    11,
                    "x",
                    FLOAT,
                    Some(&[outer, i64::try_from(depth).expect("a few")]),
                ),
                value(12, "y", FLOAT, None),
                floats("w", &[depth, inner], &weights),
                node("MatMul", &["x", "w"], "m", &[]),
                node(tail, inputs, "y", &[]),
            ];
            if tail == "Clip" {
                graph.extend(bounds.clone());
            }
            let size = usize::try_from(outer).expect("a few");
            let width = usize::try_from(depth).expect("a few");
            let run = |first: f64| {
                let mut x = vec![-8.0; size * width];
                x[0] = first;
                let low = if tail == "Clip" { -1.0 } else { 0.0 };
                let columns = usize::try_from(inner).expect("a few");
                let mut y = vec![low; size * columns];
                if first.is_nan() {
                    y[..columns].fill(NAN);
                }
                let shape = [outer.unsigned_abs(), depth];
                (vec![float(&shape, &x)], vec![shape[0], inner], y)
            };
            assert_answers(&graph, &[run(NAN), run(-8.0)]);
        }
    }
}

#[test]
fn convolutions_keep_what_is_no_number_through_what_is_fused() {
    for group in [1, 2] {
        let weights = vec![1.0; if group == 1 { 4 * 2 * 9 } else { 2 * 9 }];
        let (outer, inner) = if group == 1 { (4, 2) } else { (2, 1) };
        let graph = [
            value(11, "x", FLOAT, Some(&[1, 2, 3, 4])),
            value(12, "y", FLOAT, None),
            floats("w", &[outer, inner, 3, 3], &weights),
            node(
                "Conv",
                &["x", "w"],
                "m",
                &[("group", Attribute::Int(group))],
            ),
            node("Relu", &["m"], "y", &[]),
        ];
        let run = |first: f64| {
            let mut x = [-1.0; 24];
            // The first position of the first channel, which only the first window covers.
            x[0] = first;
            let outer = usize::try_from(outer).expect("a few");
            let mut y = vec![0.0; outer * 2];
            for (channel, place) in y.chunks_mut(2).enumerate() {
                if first.is_nan() && (group == 1 || channel == 0) {
                    place[0] = NAN;
                }
            }
            (
                vec![float(&[1, 2, 3, 4], &x)],
                vec![1, outer as u64, 1, 2],
                y,
            )
        };
        assert_answers(&graph, &[run(NAN), run(-1.0)]);
    }
}

#[test]
fn what_a_product_is_compared_with_may_be_no_number() {
    for (operator, other) in [("Max", 8.0), ("Min", 4.0)] {
        for is_stored in [true, false] {
            let mut graph = vec![
                value(11, "x", FLOAT, Some(&[8, 4])),
                value(12, "y", FLOAT, None),
                floats("w", &[4, 2], &[1.0; 8]),
                node("MatMul", &["x", "w"], "m", &[]),
                node(operator, &["m", "r"], "y", &[]),
            ];
            if is_stored {
                graph.push(floats("r", &[2], &[f32::NAN, 8.0]));
            } else {
                graph.push(value(11, "r", FLOAT, Some(&[2])));
            }
            let run = |x: f64| {
                let mut inputs = vec![float(&[8, 4], &[x; 32])];
                if !is_stored {
                    inputs.push(float(&[2], &[NAN, 8.0]));
                }
                let best = if x > 1.0 { 4.0 * x } else { other };
                let best = if operator == "Min" && x > 1.0 {
                    8.0
                } else {
                    best
                };
                (inputs, vec![8, 2], [NAN, best].repeat(8))
            };
            assert_answers(&graph, &[run(1.0), run(3.0)]);
        }
    }
}
