//! Products on tract: of repeated tensors, by einsum equations, of any type, and transposed
//! convolutions.
//!
//! Each test computes its answers three times in one session, with other inputs in between.

use pkgtool_engine::tensor::DType;

use super::{
    Attribute, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8, UINT64, assert_answers, bytes,
    float, floats, load, node, numbers, tensor, value,
};

/// Three rows of one number, repeated along the axis over which the product sums.
fn repeated_before(repeat: &[Vec<u8>], product: Vec<u8>) {
    let mut graph = vec![
        value(11, "x", FLOAT, Some(&[3, 1])),
        value(12, "y", FLOAT, None),
    ];
    graph.extend_from_slice(repeat);
    graph.push(product);
    graph.push(floats("w", &[2, 2], &[1.0, 2.0, 10.0, 20.0]));
    let expected = |rows: [f64; 3]| {
        rows.iter()
            .flat_map(|row| [11.0 * row, 22.0 * row])
            .collect()
    };
    let run = |rows: [f64; 3]| (vec![float(&[3, 1], &rows)], vec![3, 2], expected(rows));
    assert_answers(&graph, &[run([1.0, 2.0, 3.0]), run([-1.0, 0.5, 4.0])]);
}

#[test]
fn an_expanded_axis_is_summed_over_by_a_product() {
    let expand = [numbers("s", &[3, 2]), node("Expand", &["x", "s"], "e", &[])];
    repeated_before(&expand, node("MatMul", &["e", "w"], "y", &[]));
    repeated_before(&expand, node("Gemm", &["e", "w"], "y", &[]));
}

#[test]
fn a_tiled_axis_is_summed_over_by_a_product() {
    let tile = [numbers("s", &[1, 2]), node("Tile", &["x", "s"], "e", &[])];
    repeated_before(&tile, node("MatMul", &["e", "w"], "y", &[]));
    repeated_before(&tile, node("Gemm", &["e", "w"], "y", &[]));
}

#[test]
fn expanded_channels_are_summed_over_by_a_convolution() {
    let graph = [
        value(11, "x", FLOAT, Some(&[1, 1, 2, 1])),
        value(12, "y", FLOAT, None),
        numbers("s", &[1, 2, 2, 1]),
        node("Expand", &["x", "s"], "e", &[]),
        floats("w", &[1, 2, 1, 1], &[1.0, 10.0]),
        node("Conv", &["e", "w"], "y", &[]),
    ];
    let run = |x: [f64; 2]| {
        let y = x.map(|x| 11.0 * x).to_vec();
        (vec![float(&[1, 1, 2, 1], &x)], vec![1, 1, 2, 1], y)
    };
    assert_answers(&graph, &[run([1.0, 2.0]), run([3.0, -1.0])]);
}

#[test]
fn expanded_rows_of_a_product_are_all_there() {
    let graph = [
        value(11, "x", FLOAT, Some(&[1, 2])),
        value(12, "y", FLOAT, None),
        numbers("s", &[3, 2]),
        node("Expand", &["x", "s"], "e", &[]),
        floats("w", &[2, 1], &[1.0, 10.0]),
        node("MatMul", &["e", "w"], "y", &[]),
    ];
    let run = |x: [f64; 2]| {
        let sum = x[0] + 10.0 * x[1];
        (vec![float(&[1, 2], &x)], vec![3, 1], vec![sum; 3])
    };
    assert_answers(&graph, &[run([1.0, 2.0]), run([3.0, -1.0])]);
}

#[test]
fn equations_sum_over_axes_of_one_operand() {
    let matrix = || vec![float(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])];
    let of = |equation: &str| {
        [
            value(11, "x", FLOAT, Some(&[2, 3])),
            value(12, "y", FLOAT, None),
            node(
                "Einsum",
                &["x"],
                "y",
                &[("equation", Attribute::Text(equation))],
            ),
        ]
    };
    assert_answers(&of("ij->"), &[(matrix(), vec![], vec![21.0])]);
    assert_answers(&of("ij->i"), &[(matrix(), vec![2], vec![6.0, 15.0])]);
    assert_answers(&of("ij->j"), &[(matrix(), vec![3], vec![5.0, 7.0, 9.0])]);
    assert_answers(&of("...j -> ..."), &[(matrix(), vec![2], vec![6.0, 15.0])]);
    let expected = vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
    assert_answers(&of("ij->ji"), &[(matrix(), vec![3, 2], expected)]);
}

#[test]
fn equations_of_several_operands_come_down_to_a_number() {
    let vector = |x: [f64; 3]| float(&[3], &x);
    let of = |equation: &str| {
        let inputs: &[&str] = if equation.matches(',').count() == 1 {
            &["a", "b"]
        } else {
            &["a", "b", "c"]
        };
        let mut graph: Vec<_> = inputs
            .iter()
            .map(|name| value(11, name, FLOAT, Some(&[3])))
            .collect();
        graph.push(value(12, "y", FLOAT, None));
        graph.push(node(
            "Einsum",
            inputs,
            "y",
            &[("equation", Attribute::Text(equation))],
        ));
        graph
    };
    let (a, b, c) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [1.0, 0.0, 2.0]);
    let pair = |a, b| vec![vector(a), vector(b)];
    assert_answers(
        &of("i,i->"),
        &[
            (pair(a, b), vec![], vec![32.0]),
            (pair(a, c), vec![], vec![7.0]),
        ],
    );
    assert_answers(&of("i,j->"), &[(pair(a, b), vec![], vec![90.0])]);
    let three = vec![vector(a), vector(b), vector(c)];
    assert_answers(&of("i,j,i->j"), &[(three, vec![3], vec![28.0, 35.0, 42.0])]);
}

#[test]
fn products_of_wide_integers_are_computed() {
    let graph = [
        value(11, "a", INT64, Some(&[-1, 2])),
        value(11, "b", INT64, Some(&[2, 1])),
        value(12, "y", INT64, None),
        node("MatMul", &["a", "b"], "y", &[]),
    ];
    let int64 = |shape: &[u64], values: &[f64]| tensor(DType::Int64, shape, values);
    let run = |a: [f64; 2], b: [f64; 2], y: f64| {
        (
            vec![int64(&[1, 2], &a), int64(&[2, 1], &b)],
            vec![1, 1],
            vec![y],
        )
    };
    assert_answers(
        &graph,
        &[
            run([3e9, 1.0], [2.0, 5.0], 6_000_000_005.0),
            run([1.0, 2.0], [3.0, 4.0], 11.0),
        ],
    );
}

#[test]
fn a_transposed_convolution_has_its_output_padding() {
    let graph = |mode: &str| {
        [
            value(11, "x", FLOAT, Some(&[1, 1, -1])),
            value(12, "y", FLOAT, None),
            floats("w", &[1, 1, 3], &[1.0, 10.0, 100.0]),
            node(
                "ConvTranspose",
                &["x", "w"],
                "y",
                &[
                    ("auto_pad", Attribute::Text(mode)),
                    ("strides", Attribute::Ints(&[2])),
                    ("output_padding", Attribute::Ints(&[1])),
                ],
            ),
        ]
    };
    let x = || vec![float(&[1, 1, 2], &[1.0, 2.0])];
    // Without padding the result is 1, 10, 102, 20, 200 and a zero; padding removes one at either
    // end.
    let expected = vec![10.0, 102.0, 20.0, 200.0];
    for mode in ["SAME_UPPER", "SAME_LOWER"] {
        assert_answers(&graph(mode), &[(x(), vec![1, 1, 4], expected.clone())]);
    }
}

#[test]
fn transposed_convolutions_that_nobody_defines_are_refused() {
    let same = ("auto_pad", Attribute::Text("SAME_UPPER"));
    for (attributes, cause) in [
        (
            [same, ("output_shape", Attribute::Ints(&[4]))],
            "output_shape",
        ),
        ([same, ("strides", Attribute::Ints(&[3]))], "stride"),
    ] {
        let graph = [
            value(11, "x", FLOAT, Some(&[1, 1, 2])),
            value(12, "y", FLOAT, None),
            floats("w", &[1, 1, 2], &[1.0, 10.0]),
            node("ConvTranspose", &["x", "w"], "y", &attributes),
        ];
        let error = load(&graph)
            .err()
            .expect("the model is rejected")
            .to_string();
        assert!(error.contains(cause), "{error}");
    }
}

#[test]
fn stored_matrices_of_whole_numbers_are_multiplied() {
    for (element, dtype) in [
        (INT32, DType::Int32),
        (INT64, DType::Int64),
        (UINT64, DType::Uint64),
    ] {
        let stored = |name: &str, values: [u64; 4]| {
            let wide = values.iter().flat_map(|value| value.to_le_bytes());
            let narrow = values
                .iter()
                .flat_map(|value| value.to_le_bytes()[..4].to_vec());
            let values: Vec<u8> = if element == INT32 {
                narrow.collect()
            } else {
                wide.collect()
            };
            bytes(name, element, &[2, 2], &values)
        };
        for operator in ["MatMul", "Gemm"] {
            let graph = [
                value(11, "x", element, Some(&[2, 2])),
                value(12, "y", element, None),
                stored("a", [1, 2, 3, 4]),
                stored("b", [5, 6, 7, 8]),
                node(operator, &["a", "b"], "m", &[]),
                node("Add", &["m", "x"], "y", &[]),
            ];
            let run = |x: f64| {
                let sums = [19.0, 22.0, 43.0, 50.0].map(|y| y + x).to_vec();
                (vec![tensor(dtype, &[2, 2], &[x; 4])], vec![2, 2], sums)
            };
            assert_answers(&graph, &[run(0.0), run(7.0)]);
        }
    }
}

#[test]
fn two_vectors_make_a_number() {
    for (element, dtype) in [(FLOAT, DType::Float32), (INT64, DType::Int64)] {
        let graph = [
            value(11, "a", element, Some(&[3])),
            value(11, "b", element, Some(&[3])),
            value(12, "y", element, None),
            node("MatMul", &["a", "b"], "y", &[]),
        ];
        let run = |a: [f64; 3], b: [f64; 3], y: f64| {
            let inputs = vec![tensor(dtype, &[3], &a), tensor(dtype, &[3], &b)];
            (inputs, vec![], vec![y])
        };
        let runs = [
            run([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], 32.0),
            run([1.0, 0.0, 0.0], [7.0; 3], 7.0),
        ];
        assert_answers(&graph, &runs);
    }
}

#[test]
fn factors_of_a_product_have_the_dtype_of_its_matrices() {
    for (element, dtype) in [
        (FLOAT16, DType::Float16),
        (DOUBLE, DType::Float64),
        (INT32, DType::Int32),
    ] {
        let graph = [
            value(11, "a", element, Some(&[2, 2])),
            value(11, "b", element, Some(&[2, 2])),
            value(11, "c", element, Some(&[2])),
            value(12, "y", element, None),
            node(
                "Gemm",
                &["a", "b", "c"],
                "y",
                &[
                    ("alpha", Attribute::Float(2.0)),
                    ("beta", Attribute::Float(3.0)),
                    ("transB", Attribute::Int(1)),
                ],
            ),
        ];
        let run = |a: [f64; 4], y: [f64; 4]| {
            let inputs = vec![
                tensor(dtype, &[2, 2], &a),
                tensor(dtype, &[2, 2], &[1.0, 2.0, 3.0, 4.0]),
                tensor(dtype, &[2], &[1.0, 10.0]),
            ];
            (inputs, vec![2, 2], y.to_vec())
        };
        let runs = [
            run([1.0, 1.0, 0.0, 1.0], [9.0, 44.0, 7.0, 38.0]),
            run([0.0; 4], [3.0, 30.0, 3.0, 30.0]),
        ];
        assert_answers(&graph, &runs);
    }
}

/// An integer product of a computed matrix and a vector on either side.
#[test]
fn a_whole_product_with_a_vector_has_no_row_of_its_own() {
    let shapes: [(&[i64], &[i64]); 3] = [(&[3], &[3, 2]), (&[2, 3], &[3]), (&[3], &[3])];
    for (left, right) in shapes {
        let graph = [
            value(11, "a", UINT8, Some(left)),
            value(11, "b", INT8, Some(right)),
            value(12, "y", INT32, None),
            bytes("za", UINT8, &[], &[1]),
            bytes("zb", INT8, &[], &[0]),
            node("MatMulInteger", &["a", "b", "za", "zb"], "y", &[]),
        ];
        let given = |dtype, shape: &[i64], first: f64| {
            let sizes: Vec<u64> = shape.iter().map(|size| size.unsigned_abs()).collect();
            let count = sizes.iter().product::<u64>();
            let values: Vec<f64> = (0_u32..)
                .zip(0..count)
                .map(|(at, _)| first + f64::from(at))
                .collect();
            (tensor(dtype, &sizes, &values), values)
        };
        let run = |first: f64| {
            let (a, of_a) = given(DType::Uint8, left, first + 1.0);
            let (b, of_b) = given(DType::Int8, right, -2.0);
            let columns = right
                .get(1)
                .map_or(1, |size| usize::try_from(*size).expect("the number fits"));
            let rows = of_a.chunks(3);
            let at = |row: &[f64], column: usize| -> f64 {
                (0..3)
                    .map(|k| (row[k] - 1.0) * of_b[k * columns + column])
                    .sum()
            };
            let expected = rows.flat_map(|row| (0..columns).map(move |column| at(row, column)));
            let shape = [&left[..left.len() - 1], &right[1..]].concat();
            let shape = shape.iter().map(|size| size.unsigned_abs()).collect();
            (vec![a, b], shape, expected.collect())
        };
        assert_answers(&graph, &[run(0.0), run(5.0)]);
    }
}
