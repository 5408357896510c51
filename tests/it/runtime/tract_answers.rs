//! Answers of the tract engine that the library gets wrong when it is left to itself: each of them
//! three times in one session, with other inputs between.

use std::fs;
use std::path::PathBuf;

use pkgtool::engine::{EngineError, LoadOptions, LoadRequest, Session, engine};
use pkgtool::model;
use pkgtool::source::FileSource;
use pkgtool::tensor::{DType, Signature, Tensor};
use tempfile::TempDir;

use crate::model::onnx::build::{int, model as model_of, part};
#[cfg(feature = "ort")]
use crate::support::environment::Piece;

/// An attribute of a node.
#[derive(Clone, Copy)]
enum Attribute<'a> {
    Int(i64),
    Ints(&'a [i64]),
    Text(&'a str),
}

fn attribute((name, value): &(&str, Attribute<'_>)) -> Vec<u8> {
    let unsigned = i64::cast_unsigned;
    let content = match value {
        Attribute::Int(value) => [int(3, unsigned(*value)), int(20, 2)].concat(),
        Attribute::Ints(values) => {
            let values = values.iter().flat_map(|value| int(8, unsigned(*value)));
            values.chain(int(20, 7)).collect()
        }
        Attribute::Text(text) => [part(4, &[text.as_bytes()]), int(20, 3)].concat(),
    };
    part(5, &[&part(1, &[name.as_bytes()]), &content])
}

fn node(
    operator: &str,
    inputs: &[&str],
    output: &str,
    attributes: &[(&str, Attribute<'_>)],
) -> Vec<u8> {
    let mut content: Vec<u8> = inputs
        .iter()
        .flat_map(|input| part(1, &[input.as_bytes()]))
        .collect();
    content.extend(part(2, &[output.as_bytes()]));
    content.extend(part(4, &[operator.as_bytes()]));
    content.extend(attributes.iter().flat_map(attribute));
    part(1, &[&content])
}

const FLOAT: u64 = 1;
const UINT8: u64 = 2;
const INT64: u64 = 7;

/// An input (field 11) or an output (field 12); a size below zero is left open.
fn value(field: u64, name: &str, element: u64, shape: Option<&[i64]>) -> Vec<u8> {
    let mut tensor = int(1, element);
    if let Some(shape) = shape {
        let dims: Vec<u8> = shape
            .iter()
            .enumerate()
            .flat_map(|(axis, size)| match u64::try_from(*size) {
                Ok(size) => part(1, &[&int(1, size)]),
                Err(_) => part(1, &[&part(2, &[format!("n{axis}").as_bytes()])]),
            })
            .collect();
        tensor.extend(part(2, &[&dims]));
    }
    part(
        field,
        &[
            &part(1, &[name.as_bytes()]),
            &part(2, &[&part(1, &[&tensor])]),
        ],
    )
}

fn numbers(name: &str, values: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let dims = int(1, values.len() as u64);
    part(
        5,
        &[
            &dims,
            &int(2, INT64),
            &part(8, &[name.as_bytes()]),
            &part(9, &[&bytes]),
        ],
    )
}

fn floats(name: &str, shape: &[u64], values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let dims: Vec<u8> = shape.iter().flat_map(|size| int(1, *size)).collect();
    part(
        5,
        &[
            &dims,
            &int(2, FLOAT),
            &part(8, &[name.as_bytes()]),
            &part(9, &[&bytes]),
        ],
    )
}

fn load(graph: &[Vec<u8>]) -> Result<Box<dyn Session>, EngineError> {
    load_on("tract", None, graph)
}

fn load_on(
    name: &str,
    library: Option<PathBuf>,
    graph: &[Vec<u8>],
) -> Result<Box<dyn Session>, EngineError> {
    let folder = TempDir::new().expect("a directory");
    let path = folder.path().join("model.onnx");
    let parts: Vec<&[u8]> = graph.iter().map(Vec::as_slice).collect();
    fs::write(&path, model_of(&parts)).expect("it can be written");
    let source = FileSource::open(&path).expect("it is there");
    let info = model::inspect(&path, &source).expect("it can be read");
    let info = info.expect("it is a model");
    let request = LoadRequest {
        signature: Signature::of(&info.methods[0], None).expect("a signature"),
        model: path,
        options: LoadOptions {
            library,
            ..LoadOptions::default()
        },
    };
    engine(name).expect("it is there").load(&request)
}

fn tensor(dtype: DType, shape: &[u64], values: &[f64]) -> Tensor {
    Tensor::from_f64(dtype, shape.to_vec(), values.iter().copied()).expect("it is small")
}

fn float(shape: &[u64], values: &[f64]) -> Tensor {
    tensor(DType::Float32, shape, values)
}

/// Runs each of the inputs three times, in turns, and holds the first output against what is expected.
fn assert_answers(graph: &[Vec<u8>], runs: &[(Vec<Tensor>, Vec<u64>, Vec<f64>)]) {
    let mut session = load(graph).expect("it loads");
    for round in 0..3 {
        for (inputs, shape, expected) in runs {
            let answer = session
                .run(inputs)
                .unwrap_or_else(|error| panic!("{error}"));
            let found = &answer.outputs[0];
            assert_eq!(found.shape(), shape, "round {round}");
            for (place, (found, expected)) in found.to_f64().zip(expected).enumerate() {
                let same = found.to_bits() == expected.to_bits()
                    || found.is_nan() && expected.is_nan()
                    || (found - expected).abs() <= 1e-5 * expected.abs();
                assert!(
                    same,
                    "round {round}, place {place}: {found}, not {expected}"
                );
            }
        }
    }
}

/// Three rows of one number, repeated along the axis that the product sums over.
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
fn a_remainder_broadcasts_either_operand() {
    let graph = |fmod| {
        [
            value(11, "a", INT64, Some(&[1, 2])),
            value(11, "b", INT64, Some(&[3, 1])),
            value(12, "y", INT64, None),
            node("Mod", &["a", "b"], "y", &[("fmod", Attribute::Int(fmod))]),
        ]
    };
    let run = |a: [f64; 2], b: [f64; 3], y: [f64; 6]| {
        let inputs = vec![
            tensor(DType::Int64, &[1, 2], &a),
            tensor(DType::Int64, &[3, 1], &b),
        ];
        (inputs, vec![3, 2], y.to_vec())
    };
    let (a, b) = ([7.0, -7.0], [3.0, -3.0, 4.0]);
    assert_answers(
        &graph(0),
        &[
            run(a, b, [1.0, 2.0, -2.0, -1.0, 3.0, 1.0]),
            run([1.0, 5.0], [2.0, 5.0, 7.0], [1.0, 1.0, 1.0, 0.0, 1.0, 5.0]),
        ],
    );
    assert_answers(&graph(1), &[run(a, b, [1.0, -1.0, 1.0, -1.0, 3.0, -3.0])]);
}

#[test]
fn a_remainder_of_fractions_broadcasts_its_first_operand() {
    let graph = [
        value(11, "a", FLOAT, Some(&[])),
        value(11, "b", FLOAT, Some(&[2])),
        value(12, "y", FLOAT, None),
        node("Mod", &["a", "b"], "y", &[("fmod", Attribute::Int(1))]),
    ];
    let run = |a: f64, b: [f64; 2], y: [f64; 2]| {
        (vec![float(&[], &[a]), float(&[2], &b)], vec![2], y.to_vec())
    };
    assert_answers(
        &graph,
        &[
            run(5.5, [2.0, -3.0], [1.5, 2.5]),
            run(-5.5, [2.0, 4.0], [-1.5, -1.5]),
        ],
    );
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
        // All axes: one number is left.
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
#[expect(clippy::cast_possible_truncation, reason = "what is tested is float32")]
fn half_way_between_two_steps_is_rounded_to_the_even_one() {
    let graph = [
        value(11, "x", FLOAT, Some(&[4])),
        value(11, "s", FLOAT, Some(&[])),
        value(12, "y", FLOAT, None),
        node("Div", &["x", "s"], "d", &[]),
        node("Round", &["d"], "y", &[]),
    ];
    // 0.3 / 0.6 and the like: the product with the reciprocal is not the quotient.
    let scale = 0.015_686_275;
    let x = [0.5, 1.5, 63.5, 127.5].map(|steps: f64| f64::from((steps * scale) as f32));
    let y = x
        .map(|x| (x as f32 / scale as f32).round_ties_even())
        .map(f64::from);
    let run = |x: [f64; 4], s: f64, y: [f64; 4]| {
        (vec![float(&[4], &x), float(&[], &[s])], vec![4], y.to_vec())
    };
    assert_answers(
        &graph,
        &[
            run(x, scale, y),
            run([0.5, 1.5, 2.5, -3.5], 1.0, [0.0, 2.0, 2.0, -4.0]),
        ],
    );
}

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

/// What the library would compute wrongly and what nobody has mended is refused.
#[test]
fn what_is_not_mended_is_refused() {
    let refused = |node: Vec<u8>, shape: &[i64], element| {
        let graph = [
            value(11, "x", element, Some(shape)),
            value(12, "y", element, None),
            floats("s", &[4], &[1.0, 1.0, 0.5, 0.5]),
            node,
        ];
        let error = load(&graph).err().expect("it is refused").to_string();
        assert!(error.contains("wrong"), "{error}");
    };
    let spread = [
        ("auto_pad", Attribute::Text("SAME_UPPER")),
        ("kernel_shape", Attribute::Ints(&[2])),
        ("dilations", Attribute::Ints(&[2])),
    ];
    refused(node("AveragePool", &["x"], "y", &spread), &[1, 1, 6], FLOAT);
}

/// ONNX Runtime scales coordinates by the output's whole size.
#[cfg(feature = "ort")]
#[test]
fn ort_refuses_corners_aligned_by_fractions() {
    let Some(library) = Piece::Ort.or_skip("aligned corners on ort") else {
        return;
    };
    for (scales, is_right) in [([1.0, 1.0, 2.0, 2.0], true), ([1.0, 1.0, 0.6, 0.6], false)] {
        let attributes = [
            ("mode", Attribute::Text("linear")),
            (
                "coordinate_transformation_mode",
                Attribute::Text("align_corners"),
            ),
        ];
        let graph = [
            value(11, "x", FLOAT, Some(&[1, 1, 4, 4])),
            value(12, "y", FLOAT, None),
            floats("s", &[4], &scales),
            node("Resize", &["x", "", "s"], "y", &attributes),
        ];
        let loaded = load_on("ort", Some(library.clone()), &graph);
        match loaded {
            Ok(mut session) => {
                assert!(is_right, "0.6 is no whole number");
                let image = float(&[1, 1, 4, 4], &[1.0; 16]);
                let answer = session
                    .run(&[image])
                    .unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(answer.outputs[0].shape(), [1, 1, 8, 8]);
            }
            Err(error) => {
                assert!(!is_right, "{error}");
                assert!(error.is_about_the_engine(), "{error}");
                assert!(error.to_string().contains("corners"), "{error}");
            }
        }
    }
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
    // Without padding 1, 10, 102, 20, 200 and a zero: one is taken off at either end.
    let expected = vec![10.0, 102.0, 20.0, 200.0];
    for mode in ["SAME_UPPER", "SAME_LOWER"] {
        assert_answers(&graph(mode), &[(x(), vec![1, 1, 4], expected.clone())]);
    }
}

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
        let error = error.expect("it is refused").to_string();
        assert!(error.contains("32-bit"), "{error}");
    }
}

#[test]
fn activations_have_no_floor_and_keep_what_is_no_number() {
    let graph = |operator: &str| {
        [
            value(11, "x", FLOAT, Some(&[-1])),
            value(12, "y", FLOAT, None),
            node(operator, &["x"], "y", &[]),
        ]
    };
    let run = |x: &[f64], y: &[f64]| {
        (
            vec![float(&[x.len() as u64], x)],
            vec![y.len() as u64],
            y.to_vec(),
        )
    };
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let low: [f64; 3] = [-20.0, -40.0, -80.0];
    let nan = f64::NAN;
    assert_answers(
        &graph("Sigmoid"),
        &[run(&low, &low.map(logistic)), run(&[0.0, nan], &[0.5, nan])],
    );
    for operator in ["Tanh", "Erf", "Relu"] {
        let end = if operator == "Relu" {
            f64::INFINITY
        } else {
            1.0
        };
        assert_answers(
            &graph(operator),
            &[
                run(&[0.0, nan, f64::INFINITY], &[0.0, nan, end]),
                run(&[0.0], &[0.0]),
            ],
        );
    }
    let silu = [
        value(11, "x", FLOAT, Some(&[-1])),
        value(12, "y", FLOAT, None),
        node("Sigmoid", &["x"], "s", &[]),
        node("Mul", &["x", "s"], "y", &[]),
    ];
    assert_answers(&silu, &[run(&low, &low.map(|x| x * logistic(x)))]);
}

#[test]
fn comparisons_keep_what_is_no_number() {
    let nan = f64::NAN;
    for (operator, other) in [("Max", 5.0), ("Min", 1.0)] {
        let graph = [
            value(11, "a", FLOAT, Some(&[-1])),
            value(11, "b", FLOAT, Some(&[-1])),
            value(12, "y", FLOAT, None),
            node(operator, &["a", "b"], "y", &[]),
        ];
        let run = |a: [f64; 3], b: [f64; 3], y: [f64; 3]| {
            (vec![float(&[3], &a), float(&[3], &b)], vec![3], y.to_vec())
        };
        assert_answers(
            &graph,
            &[
                run([1.0, nan, 5.0], [5.0, 1.0, nan], [other, nan, nan]),
                run([1.0; 3], [5.0; 3], [other; 3]),
            ],
        );
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

#[test]
fn a_norm_over_all_places_sums() {
    let graph = [
        value(11, "x", FLOAT, Some(&[1, 2, -1])),
        value(12, "y", FLOAT, None),
        node("GlobalLpPool", &["x"], "y", &[("p", Attribute::Int(1))]),
    ];
    let run = |x: &[f64], y: [f64; 2]| {
        (
            vec![float(&[1, 2, x.len() as u64 / 2], x)],
            vec![1, 2, 1],
            y.to_vec(),
        )
    };
    assert_answers(
        &graph,
        &[
            run(&[1.0, -2.0, 3.0, 4.0], [3.0, 7.0]),
            run(&[-5.0, 1.0], [5.0, 1.0]),
        ],
    );
}

#[test]
fn functions_of_very_large_and_very_small_numbers_are_right() {
    type Case<'a> = (&'a str, &'a [f64], fn(f64) -> f64);
    let cases: [Case<'_>; 6] = [
        ("Selu", &[-2.2e-6, -1e-3, 0.0], |x| {
            f64::from(1.673_263_2_f32) * f64::from(1.050_701_f32) * x.exp_m1()
        }),
        ("HardSwish", &[3e38, 2.0, -3e38], |x| {
            x * (x / 6.0 + 0.5).clamp(0.0, 1.0)
        }),
        ("Asinh", &[3.4e38, -3.4e38, 0.5], f64::asinh),
        ("Acosh", &[3.4e38, 1.5, 2.0], f64::acosh),
        ("Erf", &[4e-7, -1e-3, 0.0], |x| {
            x * std::f64::consts::FRAC_2_SQRT_PI * (1.0 - x * x / 3.0)
        }),
        ("Mish", &[-14.729_721_069_335_938, -90.0, 2.0], |x| {
            x * x.exp().ln_1p().tanh()
        }),
    ];
    for (operator, x, function) in cases {
        let graph = [
            value(11, "x", FLOAT, Some(&[-1])),
            value(12, "y", FLOAT, None),
            node(operator, &["x"], "y", &[]),
        ];
        let run = |x: &[f64]| {
            // What a number is in single precision, not what was written.
            #[expect(clippy::cast_possible_truncation, reason = "wanted")]
            let y = x.iter().map(|x| function(f64::from(*x as f32)));
            let size = x.len() as u64;
            (vec![float(&[size], x)], vec![size], y.collect())
        };
        let mut session = load(&graph).expect("it loads");
        for x in [x, &x[1..], x] {
            let (inputs, shape, expected): (_, Vec<u64>, Vec<f64>) = run(x);
            let answer = session.run(&inputs).expect("it runs");
            assert_eq!(answer.outputs[0].shape(), shape);
            let found = answer.outputs[0].to_f64();
            for (found, expected) in found.zip(expected) {
                let off = (found - expected).abs();
                assert!(
                    off <= expected.abs() * 1e-4,
                    "{operator}: {found}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn numbers_beyond_32_bits_are_cast_whole() {
    for (element, dtype, number) in [
        (FLOAT, DType::Float32, 8_589_934_592.0),
        (INT64, DType::Int64, -1_099_511_627_776.0),
    ] {
        let graph = [
            value(11, "x", element, Some(&[-1])),
            value(12, "y", INT64, None),
            node("Cast", &["x"], "y", &[("to", Attribute::Int(7))]),
        ];
        let run = |x: &[f64]| {
            let size = x.len() as u64;
            (vec![tensor(dtype, &[size], x)], vec![size], x.to_vec())
        };
        assert_answers(&graph, &[run(&[number, 1.0]), run(&[2.0, 3.0, number])]);
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
    // The least of 64 bits.
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
fn a_quotient_has_no_reciprocal_in_between() {
    let stored = [
        value(11, "x", FLOAT, Some(&[-1])),
        value(12, "y", FLOAT, None),
        floats("d", &[1], &[2e38]),
        node("Div", &["x", "d"], "y", &[]),
    ];
    let run = |x: f64, y: f64| (vec![float(&[1], &[x])], vec![1], vec![y]);
    assert_answers(
        &stored,
        &[run(2f32.powi(120).into(), f64::from(2f32.powi(120) / 2e38))],
    );
    let given = [
        value(11, "x", FLOAT, Some(&[1])),
        value(11, "d", FLOAT, Some(&[1])),
        value(12, "y", FLOAT, None),
        node("Div", &["x", "d"], "y", &[]),
    ];
    let mut session = load(&given).expect("it loads");
    for _ in 0..3 {
        let both = |number: f64| [float(&[1], &[number]), float(&[1], &[number])];
        let answer = session.run(&both(3.0)).expect("it runs");
        assert_eq!(answer.outputs[0].to_f64().collect::<Vec<_>>(), [1.0]);
        match session.run(&both(2e-39)) {
            Ok(answer) => assert_eq!(answer.outputs[0].to_f64().collect::<Vec<_>>(), [1.0]),
            Err(error) => assert!(error.to_string().contains("reciprocal"), "{error}"),
        }
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
        let error = load(&graph).err().expect("it is refused").to_string();
        assert!(error.contains(cause), "{error}");
    }
}
