//! Reductions on tract: of empty tensors, with overflow, and of any type.
//!
//! Each test computes its answers three times in one session, with other inputs in between.

use pkgtool_engine::tensor::DType;

use super::{
    Attribute, FLOAT, FLOAT16, INT32, INT64, UINT64, assert_answers, float, node, numbers, tensor,
    value,
};

#[test]
fn extremes_of_nothing_are_infinite() {
    for (operator, nothing) in [
        ("ReduceMax", f64::NEG_INFINITY),
        ("ReduceMin", f64::INFINITY),
    ] {
        for shape in [[0, 2], [-1, 2]] {
            let graph = [
                value(11, "x", FLOAT, Some(&shape)),
                value(12, "y", FLOAT, None),
                numbers("axes", &[0]),
                node(
                    operator,
                    &["x", "axes"],
                    "y",
                    &[("keepdims", Attribute::Int(0))],
                ),
            ];
            let empty = (vec![float(&[0, 2], &[])], vec![2], vec![nothing; 2]);
            let mut runs = vec![empty];
            if shape[0] < 0 {
                let values = [f64::NAN, nothing, 1.0, nothing];
                let expected = vec![f64::NAN, nothing];
                runs.push((vec![float(&[2, 2], &values)], vec![2], expected));
            }
            assert_answers(&graph, &runs);
        }
        // A reduction over all axes leaves one number.
        let graph = [
            value(11, "x", FLOAT, Some(&[0, 2])),
            value(12, "y", FLOAT, None),
            node(operator, &["x"], "y", &[("keepdims", Attribute::Int(0))]),
        ];
        let run = (vec![float(&[0, 2], &[])], vec![], vec![nothing]);
        assert_answers(&graph, &[run]);
    }
}

#[test]
fn a_sum_of_exponents_does_not_overflow() {
    let graph = [
        value(11, "x", FLOAT, Some(&[1, 3])),
        value(12, "y", FLOAT, None),
        numbers("axes", &[1]),
        node(
            "ReduceLogSumExp",
            &["x", "axes"],
            "y",
            &[("keepdims", Attribute::Int(0))],
        ),
    ];
    let run = |x: [f64; 3], y: f64| (vec![float(&[1, 3], &x)], vec![1], vec![y]);
    let three = 3.0_f64.ln();
    assert_answers(
        &graph,
        &[
            run([1000.0; 3], 1000.0 + three),
            run([-1000.0; 3], -1000.0 + three),
            run([f64::INFINITY, 1.0, 2.0], f64::INFINITY),
            run([f64::NEG_INFINITY; 3], f64::NEG_INFINITY),
        ],
    );
}

#[test]
fn a_sum_of_nothing_is_zero() {
    let graph = [
        value(11, "x", FLOAT, Some(&[2, -1])),
        value(12, "y", FLOAT, None),
        numbers("axes", &[1]),
        node("ReduceSum", &["x", "axes"], "y", &[]),
    ];
    let run = |x: &[f64], y: [f64; 2]| {
        let size = x.len() as u64 / 2;
        (vec![float(&[2, size], x)], vec![2, 1], y.to_vec())
    };
    assert_answers(
        &graph,
        &[run(&[], [0.0, 0.0]), run(&[1.0, 2.0, 3.0, 4.0], [3.0, 7.0])],
    );
}

#[test]
fn means_and_norms_of_nothing_are_those_of_onnx_runtime() {
    let none = f64::NEG_INFINITY;
    let operators = [
        ("ReduceMean", 0.0),
        ("ReduceL1", 0.0),
        ("ReduceL2", 0.0),
        ("ReduceLogSum", none),
        ("ReduceLogSumExp", none),
        ("ReduceSumSquare", 0.0),
        ("ReduceProd", 1.0),
    ];
    let dtypes = [
        (FLOAT, DType::Float32),
        (FLOAT16, DType::Float16),
        (INT32, DType::Int32),
        (INT64, DType::Int64),
    ];
    for (operator, nothing) in operators {
        for (element, dtype) in dtypes {
            if nothing.is_infinite() && !dtype.is_float() {
                continue;
            }
            let graph = [
                value(11, "x", element, Some(&[0, 2])),
                value(12, "y", element, None),
                numbers("axes", &[0]),
                node(operator, &["x", "axes"], "y", &[]),
            ];
            let run = (
                vec![tensor(dtype, &[0, 2], &[])],
                vec![1, 2],
                vec![nothing; 2],
            );
            assert_answers(&graph, &[run]);
        }
    }
}

#[test]
fn whole_numbers_of_64_bits_have_norms() {
    for (operator, first, second) in [
        ("ReduceSumSquare", 25.0, 4e18),
        ("ReduceL2", 5.0, 2e9),
        ("ReduceL1", 7.0, 2e9),
        ("ReduceMean", -3.0, 1e9),
    ] {
        let graph = [
            value(11, "x", INT64, Some(&[2])),
            value(12, "y", INT64, None),
            node(operator, &["x"], "y", &[("keepdims", Attribute::Int(0))]),
        ];
        let run = |x: [f64; 2], y: f64| (vec![tensor(DType::Int64, &[2], &x)], vec![], vec![y]);
        let x = if operator == "ReduceMean" { -4.0 } else { 4.0 };
        assert_answers(&graph, &[run([-3.0, x], first), run([2e9, 0.0], second)]);
    }
}

#[test]
fn unsigned_numbers_of_64_bits_are_numbers() {
    let large = 9_007_199_254_740_992.0;
    for (operator, first, second) in [("ArgMax", 1.0, 0.0), ("ArgMin", 2.0, 1.0)] {
        let graph = [
            value(11, "x", UINT64, Some(&[3])),
            value(12, "y", INT64, None),
            node(operator, &["x"], "y", &[("keepdims", Attribute::Int(0))]),
        ];
        let run = |x: [f64; 3], y: f64| (vec![tensor(DType::Uint64, &[3], &x)], vec![], vec![y]);
        let runs = [run([2.0, large, 1.0], first), run([3.0, 1.0, 2.0], second)];
        assert_answers(&graph, &runs);
    }
}

#[test]
fn a_mean_of_small_floats_does_not_overflow() {
    let graph = [
        value(11, "a", FLOAT16, Some(&[2])),
        value(11, "b", FLOAT16, Some(&[2])),
        value(12, "y", FLOAT16, None),
        node("Mean", &["a", "b"], "y", &[]),
    ];
    let run = |a: f64, b: f64, y: f64| {
        let of = |x: f64| tensor(DType::Float16, &[2], &[x; 2]);
        (vec![of(a), of(b)], vec![2], vec![y; 2])
    };
    assert_answers(
        &graph,
        &[run(65504.0, 65504.0, 65504.0), run(1.0, 3.0, 2.0)],
    );
}
