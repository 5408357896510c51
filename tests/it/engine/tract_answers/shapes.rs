//! Sizes, slices and conditions on tract.
//!
//! Each test computes its answers three times in one session, with other inputs in between.

use pkgtool_engine::tensor::DType;

use super::{
    Attribute, BOOL, FLOAT, FLOAT16, INT64, assert_answers, bytes, float, halves, load, node,
    numbers, tensor, value,
};

#[test]
fn sizes_beyond_32_bits_are_no_small_ones() {
    let large = 4_294_967_298;
    for (operator, inputs) in [
        ("ConstantOfShape", &["s"][..]),
        ("Expand", &["x", "s"]),
        ("Tile", &["x", "s"]),
    ] {
        let graph = [
            value(11, "x", FLOAT, Some(&[0, 1])),
            value(12, "y", INT64, None),
            numbers("s", &[0, large]),
            node(operator, inputs, "t", &[]),
            node("Shape", &["t"], "y", &[]),
        ];
        let error = match load(&graph) {
            Ok(mut session) => session.run(&[float(&[0, 1], &[])]).err(),
            Err(error) => Some(error),
        };
        let error = error.expect("the model is rejected").to_string();
        assert!(error.contains("32-bit"), "{error}");
    }
}

#[test]
fn slices_with_steps_are_cut_whatever_gives_their_bounds() {
    let graph = [
        value(11, "x", FLOAT, Some(&[-1])),
        value(11, "end", INT64, Some(&[1])),
        value(12, "y", FLOAT, None),
        numbers("start", &[0]),
        numbers("axis", &[0]),
        numbers("step", &[2]),
        node("Slice", &["x", "start", "end", "axis", "step"], "y", &[]),
    ];
    let run = |x: &[f64], end: f64, y: &[f64]| {
        let inputs = vec![
            float(&[x.len() as u64], x),
            tensor(DType::Int64, &[1], &[end]),
        ];
        (inputs, vec![y.len() as u64], y.to_vec())
    };
    let x = [1.0, 2.0, 3.0, 4.0, 5.0];
    assert_answers(
        &graph,
        &[
            run(&x, 3.0, &[1.0, 3.0]),
            run(&x, -1.0, &[1.0, 3.0]),
            run(&x[..2], 100.0, &[1.0]),
        ],
    );
}

#[test]
fn a_slice_to_the_other_end_is_empty() {
    for (end, step) in [(i64::MAX, -1), (i64::MIN, 1)] {
        let graph = [
            value(11, "x", FLOAT, Some(&[3])),
            value(12, "y", FLOAT, None),
            numbers("start", &[-1]),
            numbers("end", &[end]),
            numbers("axis", &[0]),
            numbers("step", &[step]),
            node("Slice", &["x", "start", "end", "axis", "step"], "y", &[]),
        ];
        assert_answers(
            &graph,
            &[(vec![float(&[3], &[1.0, 2.0, 3.0])], vec![0], vec![])],
        );
    }
}

/// Starts, ends and steps on four elements, with ONNX Runtime's results.
const SLICES: [(i64, i64, i64, &[f64]); 10] = [
    (3, 1, 1, &[]),
    (2, 2, 1, &[]),
    (7, 9, 1, &[]),
    (7, 2, 1, &[]),
    (-1, -3, 1, &[]),
    (-100, 2, 1, &[0.0, 1.0]),
    (3, 0, -1, &[3.0, 2.0, 1.0]),
    (0, 3, -1, &[]),
    (-1, -100, -2, &[3.0, 1.0]),
    (-100, -200, -1, &[0.0]),
];

#[test]
fn bounds_of_a_slice_are_clamped_whoever_gives_them() {
    let x = [0.0, 1.0, 2.0, 3.0];
    for (start, end, step, expected) in SLICES {
        let slice = node("Slice", &["x", "start", "end", "axis", "step"], "y", &[]);
        let shape = vec![expected.len() as u64];
        let stored = |size: i64| {
            vec![
                value(11, "x", FLOAT, Some(&[size])),
                value(12, "y", FLOAT, None),
                numbers("start", &[start]),
                numbers("end", &[end]),
                numbers("axis", &[0]),
                numbers("step", &[step]),
                slice.clone(),
            ]
        };
        for size in [4, -1] {
            let run = (vec![float(&[4], &x)], shape.clone(), expected.to_vec());
            assert_answers(&stored(size), &[run]);
        }
        let mut given = vec![
            value(11, "x", FLOAT, Some(&[-1])),
            value(12, "y", FLOAT, None),
            numbers("axis", &[0]),
            slice.clone(),
        ];
        let mut inputs = vec![float(&[4], &x)];
        for (name, bound) in [("start", start), ("end", end), ("step", step)] {
            // The bound is computed at run time from a number that is not a known size.
            let from = format!("{name}.given");
            given.push(value(11, &from, FLOAT, Some(&[1])));
            given.push(node(
                "Cast",
                &[from.as_str()],
                name,
                &[("to", Attribute::Int(7))],
            ));
            #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
            inputs.push(float(&[1], &[bound as f64]));
        }
        assert_answers(&given, &[(inputs, shape, expected.to_vec())]);
    }
}

#[test]
fn an_empty_slice_of_an_attribute_is_empty() {
    for (start, end, expected) in [
        (3, 1, &[][..]),
        (-1, -3, &[]),
        (-9, 2, &[0.0, 1.0]),
        (7, 9, &[]),
    ] {
        let (starts, ends) = ([start], [end]);
        let bounds = [
            ("starts", Attribute::Ints(&starts)),
            ("ends", Attribute::Ints(&ends)),
        ];
        let graph = [
            value(11, "x", FLOAT, Some(&[4])),
            value(12, "y", FLOAT, None),
            node("Slice", &["x"], "y", &bounds),
        ];
        let x = float(&[4], &[0.0, 1.0, 2.0, 3.0]);
        let run = (vec![x], vec![expected.len() as u64], expected.to_vec());
        assert_answers(&graph, &[run]);
    }
}

#[test]
fn steps_of_a_slice_stay_behind_a_softmax() {
    let graph = [
        value(11, "x", FLOAT, Some(&[-1])),
        value(12, "y", FLOAT, None),
        numbers("start", &[0]),
        numbers("end", &[i64::MAX]),
        numbers("axis", &[0]),
        numbers("step", &[2]),
        node("Softmax", &["x"], "s", &[]),
        node("Abs", &["s"], "a", &[]),
        node("Slice", &["a", "start", "end", "axis", "step"], "y", &[]),
    ];
    let quarters = vec![0.25, 0.25];
    let run = |x: &[f64], y: Vec<f64>| (vec![float(&[x.len() as u64], x)], vec![y.len() as u64], y);
    assert_answers(
        &graph,
        &[
            run(&[1.0; 4], quarters),
            run(&[3.0; 5], vec![0.2; 3]),
            run(&[0.0; 2], vec![0.5]),
        ],
    );
}

#[test]
fn a_given_end_before_all_is_no_end_of_the_axis() {
    // The minimum of 64-bit integers.
    let least = -(2f64.powi(63));
    for step in [None, Some(2)] {
        let mut graph = vec![
            value(11, "x", FLOAT, Some(&[-1])),
            value(11, "end", INT64, Some(&[1])),
            value(12, "y", FLOAT, None),
            numbers("start", &[-2]),
            numbers("axis", &[0]),
        ];
        let mut inputs = vec!["x", "start", "end", "axis"];
        if let Some(step) = step {
            graph.push(numbers("step", &[step]));
            inputs.push("step");
        }
        graph.push(node("Slice", &inputs, "y", &[]));
        let run = |end: f64, y: &[f64]| {
            let x = float(&[3], &[1.0, 2.0, 3.0]);
            let inputs = vec![x, tensor(DType::Int64, &[1], &[end])];
            (inputs, vec![y.len() as u64], y.to_vec())
        };
        assert_answers(
            &graph,
            &[run(least, &[]), run(2.0, &[2.0]), run(-1.0, &[2.0])],
        );
    }
}

#[test]
fn a_condition_picks_what_is_kept() {
    for (axis, first, second) in [
        (Some(0), vec![1.0, 2.0], vec![3.0, 4.0]),
        (Some(-1), vec![1.0, 3.0], vec![2.0, 4.0]),
        (None, vec![1.0], vec![2.0]),
    ] {
        let axis = axis.map(|axis| ("axis", Attribute::Int(axis)));
        let graph = [
            value(11, "x", FLOAT, Some(&[2, 2])),
            value(11, "c", BOOL, Some(&[2])),
            value(12, "y", FLOAT, None),
            node("Compress", &["x", "c"], "y", axis.as_slice()),
        ];
        let run = |condition: [f64; 2], y: Vec<f64>| {
            let inputs = vec![
                float(&[2, 2], &[1.0, 2.0, 3.0, 4.0]),
                tensor(DType::Bool, &[2], &condition),
            ];
            let shape = match axis {
                Some((_, Attribute::Int(0))) => vec![y.len() as u64 / 2, 2],
                Some(_) => vec![2, y.len() as u64 / 2],
                None => vec![y.len() as u64],
            };
            (inputs, shape, y)
        };
        let runs = [
            run([1.0, 0.0], first),
            run([0.0, 1.0], second),
            run([0.0, 0.0], vec![]),
        ];
        assert_answers(&graph, &runs);
    }
}

/// Strides after a convolution must not be fused into it, because its padding depends on all
/// positions.
#[test]
fn steps_after_a_convolution_stay_there() {
    let kernel = bytes("k", FLOAT16, &[1, 1, 3], &halves(&[1.0, 2.0, 4.0]));
    let begin = |attributes: &[(&str, Attribute<'_>)]| {
        vec![
            value(11, "x", FLOAT16, Some(&[1, 1, 8])),
            value(12, "y", FLOAT16, None),
            kernel.clone(),
            node("Conv", &["x", "k"], "c", attributes),
        ]
    };
    let ramp: Vec<f64> = (0..8).map(f64::from).collect();
    let input = || vec![tensor(DType::Float16, &[1, 1, 8], &ramp)];
    let zeros = || vec![tensor(DType::Float16, &[1, 1, 8], &[0.0; 8])];
    let held = |graph: &[Vec<u8>], expected: [f64; 4]| {
        let runs = [
            (input(), vec![1, 1, 4], expected.to_vec()),
            (zeros(), vec![1, 1, 4], vec![0.0; 4]),
        ];
        assert_answers(graph, &runs);
    };

    let mut graph = begin(&[("auto_pad", Attribute::Text("SAME_UPPER"))]);
    graph.push(bytes("one", FLOAT16, &[1, 1, 1], &halves(&[1.0])));
    let strides = [("strides", Attribute::Ints(&[2]))];
    graph.push(node("Conv", &["c", "one"], "y", &strides));
    held(&graph, [4.0, 17.0, 31.0, 45.0]);

    let mut graph = begin(&[("pads", Attribute::Ints(&[1, 1]))]);
    for (name, values) in [("from", 1), ("to", 1000), ("axis", 2), ("step", 2)] {
        graph.push(numbers(name, &[values]));
    }
    graph.push(node(
        "Slice",
        &["c", "from", "to", "axis", "step"],
        "y",
        &[],
    ));
    held(&graph, [10.0, 24.0, 38.0, 20.0]);
}

/// Matches ONNX Runtime and shape inference.
#[test]
fn without_padding_the_last_window_may_still_reach_beyond() {
    let graph = [
        value(11, "x", FLOAT, Some(&[1, 1, 4, 7])),
        value(12, "y", FLOAT, None),
        node(
            "MaxPool",
            &["x"],
            "y",
            &[
                ("kernel_shape", Attribute::Ints(&[2, 2])),
                ("strides", Attribute::Ints(&[3, 3])),
                ("auto_pad", Attribute::Text("VALID")),
                ("ceil_mode", Attribute::Int(1)),
            ],
        ),
    ];
    let ramp: Vec<f64> = (0..28).map(f64::from).collect();
    let expected = vec![8.0, 11.0, 13.0, 22.0, 25.0, 27.0];
    let run = (
        vec![float(&[1, 1, 4, 7], &ramp)],
        vec![1, 1, 2, 3],
        expected,
    );
    assert_answers(&graph, &[run]);
}

#[test]
fn counts_of_an_open_number_of_values_are_added_up() {
    for (operator, sum) in [("ReduceSum", 2.0), ("ReduceMax", 1.0)] {
        let graph = [
            value(11, "x", FLOAT, Some(&[-1])),
            value(11, "bound", FLOAT, Some(&[1])),
            value(12, "y", INT64, None),
            numbers("axis", &[0]),
            node("Less", &["x", "bound"], "low", &[]),
            node("Cast", &["low"], "counts", &[("to", Attribute::Int(7))]),
            node(
                operator,
                &["counts", "axis"],
                "y",
                &[("keepdims", Attribute::Int(0))],
            ),
        ];
        let run = |x: &[f64], y: f64| {
            let inputs = vec![float(&[x.len() as u64], x), float(&[1], &[2.5])];
            (inputs, vec![], vec![y])
        };
        assert_answers(
            &graph,
            &[
                run(&[1.0, 2.0, 3.0, 4.0], sum),
                run(&[3.0], 0.0),
                run(&[1.0, 5.0, 2.0], sum),
            ],
        );
    }
}
