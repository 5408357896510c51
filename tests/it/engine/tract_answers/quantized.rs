//! Quantised numbers: steps half way, far beyond, and what lies between two quantizations.
//!
//! Each answer three times in one session, with other inputs between.

use pkgtool::tensor::DType;

use super::{
    Attribute, FLOAT, INT8, UINT8, assert_answers, bytes, float, floats, node, tensor, value,
};
use crate::model::onnx::build::{int, part};

#[test]
fn what_is_far_beyond_the_steps_is_the_last_one() {
    let zero = part(5, &[&int(2, UINT8), &part(8, &[b"z"]), &part(9, &[&[100]])]);
    let graph = [
        value(11, "x", FLOAT, Some(&[5])),
        value(12, "y", UINT8, None),
        floats("s", &[], &[0.5]),
        zero,
        node("QuantizeLinear", &["x", "s", "z"], "y", &[]),
    ];
    let run = |x: [f64; 5], y: [f64; 5]| (vec![float(&[5], &x)], vec![5], y.to_vec());
    assert_answers(
        &graph,
        &[
            run(
                [1e30, -1e30, f64::INFINITY, f64::NEG_INFINITY, 3e9],
                [255.0, 0.0, 255.0, 0.0, 255.0],
            ),
            run(
                [0.25, 0.75, -0.25, 1.0, -60.0],
                [100.0, 102.0, 100.0, 102.0, 0.0],
            ),
        ],
    );
}

/// `y` of two matrices of uint8 whose product is a number of steps and a half.
#[test]
fn a_quantised_product_half_way_is_rounded_to_the_even_step() {
    let zero = |name: &str| {
        part(
            5,
            &[
                &int(2, UINT8),
                &part(8, &[name.as_bytes()]),
                &part(9, &[&[0]]),
            ],
        )
    };
    let graph = [
        value(11, "a", UINT8, Some(&[1, 2])),
        value(11, "b", UINT8, Some(&[2, 3])),
        value(12, "y", UINT8, None),
        floats("one", &[], &[1.0]),
        floats("two", &[], &[2.0]),
        zero("z"),
        node(
            "QLinearMatMul",
            &["a", "one", "z", "b", "one", "z", "two", "z"],
            "y",
            &[],
        ),
    ];
    let uint8 = |shape: &[u64], values: &[f64]| tensor(DType::Uint8, shape, values);
    let run = |a: [f64; 2], b: [f64; 6], y: [f64; 3]| {
        (
            vec![uint8(&[1, 2], &a), uint8(&[2, 3], &b)],
            vec![1, 3],
            y.to_vec(),
        )
    };
    assert_answers(
        &graph,
        &[
            run([1.0, 0.0], [1.0, 3.0, 5.0, 0.0, 0.0, 0.0], [0.0, 2.0, 2.0]),
            run(
                [1.0, 1.0],
                [7.0, 8.0, 200.0, 2.0, 1.0, 200.0],
                [4.0, 4.0, 200.0],
            ),
        ],
    );
}

#[test]
fn a_quantised_convolution_half_way_is_rounded_to_the_even_step() {
    let byte = |name: &str, dims: &[u64], value: u8| {
        let dims: Vec<u8> = dims.iter().flat_map(|size| int(1, *size)).collect();
        part(
            5,
            &[
                &dims,
                &int(2, UINT8),
                &part(8, &[name.as_bytes()]),
                &part(9, &[&[value]]),
            ],
        )
    };
    let graph = [
        value(11, "x", UINT8, Some(&[1, 1, -1])),
        value(12, "y", UINT8, None),
        floats("one", &[], &[1.0]),
        floats("two", &[], &[2.0]),
        byte("z", &[], 1),
        byte("w", &[1, 1, 1], 2),
        node(
            "QLinearConv",
            &["x", "one", "z", "w", "one", "z", "two", "z"],
            "y",
            &[],
        ),
    ];
    let run = |x: &[f64], y: &[f64]| {
        let shape = [1, 1, x.len() as u64];
        (
            vec![tensor(DType::Uint8, &shape, x)],
            shape.to_vec(),
            y.to_vec(),
        )
    };
    // (x - 1) * (2 - 1) / 2 + 1
    assert_answers(
        &graph,
        &[
            run(&[2.0, 4.0, 6.0], &[1.0, 3.0, 3.0]),
            run(&[3.0, 0.0], &[2.0, 1.0]),
        ],
    );
}

#[test]
fn a_softmax_between_two_quantizations_sums() {
    let graph = [
        value(11, "x", UINT8, Some(&[1, 4])),
        value(12, "y", UINT8, None),
        floats("s", &[], &[0.5]),
        floats("t", &[], &[0.0625]),
        bytes("z", UINT8, &[], &[0]),
        node("DequantizeLinear", &["x", "s", "z"], "d", &[]),
        node("Softmax", &["d"], "e", &[("axis", Attribute::Int(-1))]),
        node("QuantizeLinear", &["e", "t", "z"], "y", &[]),
    ];
    let run = |x: [f64; 4], y: [f64; 4]| {
        (
            vec![tensor(DType::Uint8, &[1, 4], &x)],
            vec![1, 4],
            y.to_vec(),
        )
    };
    let runs = [
        run([3.0; 4], [4.0; 4]),
        run([100.0, 100.0, 0.0, 0.0], [8.0, 8.0, 0.0, 0.0]),
    ];
    assert_answers(&graph, &runs);
}

#[test]
fn bytes_change_their_sign_between_two_quantizations() {
    let graph = [
        value(11, "x", UINT8, Some(&[3])),
        value(12, "y", INT8, None),
        floats("s", &[], &[1.0]),
        bytes("z", UINT8, &[], &[100]),
        bytes("t", INT8, &[], &[0]),
        node("DequantizeLinear", &["x", "s", "z"], "d", &[]),
        node("Relu", &["d"], "e", &[]),
        node("QuantizeLinear", &["e", "s", "t"], "y", &[]),
    ];
    let run =
        |x: [f64; 3], y: [f64; 3]| (vec![tensor(DType::Uint8, &[3], &x)], vec![3], y.to_vec());
    let runs = [
        run([0.0, 150.0, 250.0], [0.0, 50.0, 127.0]),
        run([101.0, 99.0, 100.0], [1.0, 0.0, 0.0]),
    ];
    assert_answers(&graph, &runs);
}

#[test]
fn no_number_is_the_least_step() {
    for (element, least) in [(UINT8, 0.0), (INT8, -128.0)] {
        let graph = [
            value(11, "x", FLOAT, Some(&[2])),
            value(12, "y", element, None),
            floats("s", &[], &[1.0]),
            bytes("z", element, &[], &[3]),
            node("QuantizeLinear", &["x", "s", "z"], "y", &[]),
        ];
        let run = |x: f64, y: f64| (vec![float(&[2], &[x; 2])], vec![2], vec![y; 2]);
        assert_answers(&graph, &[run(f64::NAN, least), run(1.0, 4.0)]);
    }
}
