//! Quantized numbers on tract: ties, values far out of range, and operators between two
//! quantizations.
//!
//! Each test computes its answers three times in one session, with other inputs in between.

use pkgtool_engine::tensor::{DType, Tensor};

use super::{
    Attribute, CONTRIB, FLOAT, INT8, INT64, UINT8, assert_answers, bytes, float, floats, load,
    node, tensor, value, whole_node,
};
use pkgtool_testing::onnx::{int, part};

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

/// `y` of two uint8 matrices whose product is half way between two quantization steps.
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

/// Applies an operator between dequantization and quantization, to an input `[n, 1, 4]` of
/// integers.
fn between_bytes(operator: Vec<u8>, to: u64, scale: f32) -> [Vec<u8>; 9] {
    [
        value(11, "x", UINT8, Some(&[-1, 1, 4])),
        value(12, "y", to, None),
        floats("s", &[], &[1.0]),
        floats("t", &[], &[scale]),
        bytes("z", UINT8, &[], &[3]),
        bytes("w", to, &[], &[0]),
        node("DequantizeLinear", &["x", "s", "z"], "d", &[]),
        operator,
        node("QuantizeLinear", &["e", "t", "w"], "y", &[]),
    ]
}

fn of_four(x: &[f64], y: &[f64]) -> (Vec<Tensor>, Vec<u64>, Vec<f64>) {
    let batch = x.len() as u64 / 4;
    let input = tensor(DType::Uint8, &[batch, 1, 4], x);
    (vec![input], vec![batch, 1, 4], y.to_vec())
}

#[test]
fn means_of_windows_are_rounded_to_the_even_step() {
    for (counts_padding, first, second) in [
        (0, [2.0, 3.0, 6.0, 8.0], [0.0, 0.0, 83.0, 126.0]),
        (1, [1.0, 3.0, 6.0, 5.0], [0.0, 0.0, 83.0, 84.0]),
    ] {
        let attributes = [
            ("kernel_shape", Attribute::Ints(&[3])),
            ("pads", Attribute::Ints(&[1, 1])),
            ("count_include_pad", Attribute::Int(counts_padding)),
        ];
        let operator = node("AveragePool", &["d"], "e", &attributes);
        let graph = between_bytes(operator, UINT8, 1.0);
        let runs = [
            of_four(&[4.0, 5.0, 9.0, 12.0], &first),
            of_four(&[0.0, 0.0, 3.0, 255.0], &second),
            of_four(&[], &[]),
        ];
        assert_answers(&graph, &runs);
    }
}

#[test]
fn functions_change_the_sign_of_bytes() {
    for (to, least) in [(UINT8, 0.0), (INT8, -1.0)] {
        let operator = node("Softsign", &["d"], "e", &[]);
        let graph = between_bytes(operator, to, 0.75);
        let runs = [
            of_four(&[3.0, 4.0, 103.0, 255.0], &[0.0, 1.0, 1.0, 1.0]),
            of_four(&[0.0, 2.0, 1.0, 6.0], &[least, least, least, 1.0]),
            of_four(&[], &[]),
        ];
        assert_answers(&graph, &runs);
    }
}

/// Multiplied by the inverse of 14 instead, these values would lie slightly above half a step.
#[test]
fn functions_are_divided_by_the_scale() {
    let operator = node("LeakyRelu", &["d"], "e", &[]);
    let graph = between_bytes(operator, UINT8, 14.0);
    let runs = [
        of_four(&[94.0, 178.0, 206.0, 3.0], &[6.0, 12.0, 14.0, 0.0]),
        of_four(&[24.0, 38.0, 255.0, 0.0], &[2.0, 2.0, 18.0, 0.0]),
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

/// A product of rows with weights of few bits, in blocks of 16 inputs. `weights` and `zeros` belong
/// to two outputs with 32 inputs each.
fn small_product(bits: i64, weights: &[u8], zeros: Option<&[u8]>) -> Vec<Vec<u8>> {
    let attributes = [
        ("K", Attribute::Int(32)),
        ("N", Attribute::Int(2)),
        ("bits", Attribute::Int(bits)),
        ("block_size", Attribute::Int(16)),
    ];
    let inputs: &[&str] = match zeros {
        Some(_) => &["x", "w", "s", "z"],
        None => &["x", "w", "s"],
    };
    let product = whole_node(CONTRIB, "MatMulNBits", inputs, &["y"], &attributes);
    let blob = weights.len() as u64 / 4;
    let mut graph = vec![
        value(11, "x", FLOAT, Some(&[1, -1, 32])),
        value(12, "y", FLOAT, None),
        bytes("w", UINT8, &[2, 2, blob], weights),
        floats("s", &[4], &[0.5, 1.0, 0.1, 2.0]),
        product,
    ];
    graph.extend(zeros.map(|zeros| bytes("z", UINT8, &[zeros.len() as u64], zeros)));
    graph
}

/// A row of 32 numbers that is zero except for one number in each block.
fn row_of_blocks(first: f64, second: f64) -> Vec<f64> {
    let mut row = vec![0.0; 32];
    (row[0], row[17]) = (first, second);
    row
}

#[test]
fn weights_of_four_bits_are_multiplied_by_blocks() {
    let mut weights = [0x88; 32];
    // For each output: the first input of the first block and the second input of the second block.
    (weights[0], weights[8], weights[16], weights[24]) = (0x8f, 0x08, 0x80, 0xf8);
    let run = |rows: [[f64; 2]; 2], to: &dyn Fn([f64; 2]) -> [f64; 2]| {
        let from = rows.map(|[first, second]| row_of_blocks(first, second));
        let expected = rows.map(to).concat();
        (
            vec![float(&[1, 2, 32], &from.concat())],
            vec![1, 2, 2],
            expected,
        )
    };
    let rows = [[1.0, 3.0], [-2.5, 0.25]];
    let plain = |[a, b]: [f64; 2]| [3.5 * a - 8.0 * b, -0.8 * a + 14.0 * b];
    assert_answers(&small_product(4, &weights, None), &[run(rows, &plain)]);
    let zeros = |[a, b]: [f64; 2]| [0.5 * 15.0 * a - 3.0 * b, -0.8 * a + 2.0 * 14.0 * b];
    let graph = small_product(4, &weights, Some(&[0x30, 0x18]));
    assert_answers(&graph, &[run(rows, &zeros)]);
}

#[test]
fn weights_of_eight_bits_are_multiplied_by_blocks() {
    let mut weights = [128; 64];
    (weights[0], weights[17], weights[32], weights[49]) = (255, 0, 100, 130);
    let from = row_of_blocks(2.0, -1.0);
    let expected = vec![127.0 + 128.0, -2.8 * 2.0 - 4.0];
    let run = (vec![float(&[1, 1, 32], &from)], vec![1, 1, 2], expected);
    assert_answers(&small_product(8, &weights, None), &[run]);
}

#[test]
fn weights_of_two_bits_are_multiplied_by_blocks() {
    // The default zero point is 2.
    let mut weights = [0xaa; 16];
    (weights[0], weights[4], weights[8], weights[12]) = (0xab, 0xa2, 0xa9, 0xae);
    let run = |to: &dyn Fn(f64, f64) -> [f64; 2]| {
        let (first, second) = (3.0, -0.25);
        let from = row_of_blocks(first, second);
        let expected = to(first, second).to_vec();
        (vec![float(&[1, 1, 32], &from)], vec![1, 1, 2], expected)
    };
    let plain = run(&|a, b| [0.5 * a - 2.0 * b, -0.1 * a + 2.0 * b]);
    assert_answers(&small_product(2, &weights, None), &[plain]);
    let zeros = run(&|a, b| [1.5 * a - b, -0.2 * a + 2.0 * b]);
    let graph = small_product(2, &weights, Some(&[0x04, 0x0b]));
    assert_answers(&graph, &[zeros]);
}

/// The scales must not be converted to float16, which represents neither 1e-9 nor 1e6.
#[test]
fn rows_of_a_table_of_four_bits_have_their_scales() {
    let graph = |zeros: Option<&[u8]>| {
        let mut inputs = vec!["t", "i", "s"];
        let mut graph = vec![
            value(11, "i", INT64, Some(&[-1])),
            value(12, "y", FLOAT, None),
            bytes("t", UINT8, &[3, 32], &[0x98; 96]),
            floats("s", &[3, 2], &[1e-9, 1e6, 0.1, 0.3, 2.0, 3.0]),
        ];
        if let Some(zeros) = zeros {
            inputs.push("z");
            graph.push(bytes("z", UINT8, &[3, 1], zeros));
        }
        let attributes = [("block_size", Attribute::Int(32))];
        let operator = "GatherBlockQuantized";
        graph.push(whole_node(CONTRIB, operator, &inputs, &["y"], &attributes));
        graph
    };
    let places = |places: &[f64]| vec![tensor(DType::Int64, &[places.len() as u64], places)];
    let row = |zero: f64, scales: [f64; 2]| {
        let blocks = scales.map(|scale| [(8.0 - zero) * scale, (9.0 - zero) * scale].repeat(16));
        blocks.concat()
    };
    let rows = [[1e-9, 1e6], [0.1, 0.3], [2.0, 3.0]];
    let two = (
        places(&[2.0, -3.0]),
        vec![2, 64],
        [row(8.0, rows[2]), row(8.0, rows[0])].concat(),
    );
    let one = (places(&[1.0]), vec![1, 64], row(8.0, rows[1]));
    assert_answers(
        &graph(None),
        &[two, one, (places(&[]), vec![0, 64], vec![])],
    );
    // The first number in a byte is in its lowest bits.
    let zeros = graph(Some(&[0x11, 0x33, 0xff]));
    let third = (places(&[2.0]), vec![1, 64], row(15.0, rows[2]));
    let second = (places(&[1.0]), vec![1, 64], row(3.0, rows[1]));
    assert_answers(&zeros, &[third, second]);

    let mut session = load(&graph(None)).expect("the model loads");
    for place in [3.0, -4.0] {
        let error = session
            .run(&places(&[place]))
            .expect_err("the row is missing");
        assert!(
            error.to_string().contains("outside a dimension of 3"),
            "{error}"
        );
        session.run(&places(&[1.0])).expect("the session goes on");
    }
}

/// ONNX Runtime uses a step of one for all-zero inputs.
#[test]
fn zeros_have_a_step_of_one() {
    let graph = [
        value(11, "x", FLOAT, Some(&[2])),
        value(12, "s", FLOAT, Some(&[])),
        whole_node("", "DynamicQuantizeLinear", &["x"], &["q", "s", "z"], &[]),
    ];
    let run = |x: [f64; 2], step: f64| (vec![float(&[2], &x)], vec![], vec![step]);
    assert_answers(
        &graph,
        &[
            run([0.0; 2], 1.0),
            run([0.0, 255.0], 1.0),
            run([0.0, 51.0], 0.2),
        ],
    );
}
