//! Bugs of ONNX Runtime and their workarounds: graph rewrites that are disabled for affected
//! models, and nodes that are rejected.
//!
//! Each test computes its answers three times in one session.

use pkgtool_engine::runtime::worker::Worker;
use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_engine::{EngineError, Session};

use crate::support::engines;
use crate::support::graph::{Attribute, DOUBLE, FLOAT, Graph, INT64, Size};
use crate::support::loading::{launcher, request, written};

/// -2 as an attribute.
const LAST_BUT_ONE: u64 = u64::MAX - 1;

/// Loads the model in a worker process, so that a crash does not end the test.
fn load(graph: Graph) -> Result<Worker, EngineError> {
    let model = written("model.onnx", &graph.bytes());
    let mut request = request(&model.path);
    request.options.library = engines::ort();
    launcher(None).load("ort", &request)
}

fn tensor(dtype: DType, shape: &[u64], values: &[f64]) -> Tensor {
    Tensor::from_f64(dtype, shape.to_vec(), values.iter().copied()).expect("the tensor is valid")
}

fn float(shape: &[u64], values: &[f64]) -> Tensor {
    tensor(DType::Float32, shape, values)
}

/// Runs a graph three times, with zeros in between, and compares the outputs each time.
fn assert_answers(graph: Graph, inputs: &[Tensor], expected: &[(&[u64], &[f64])]) {
    let mut session = load(graph).unwrap_or_else(|error| panic!("{error}"));
    let zeros: Vec<Tensor> = inputs
        .iter()
        .map(|it| Tensor::zeros(it.dtype(), it.shape().to_vec()).expect("the tensor is valid"))
        .collect();
    for _ in 0..3 {
        let answer = session
            .run(inputs)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(answer.outputs.len(), expected.len());
        for (output, (shape, values)) in answer.outputs.iter().zip(expected) {
            assert_eq!(output.shape(), *shape);
            let found: Vec<f64> = output.to_f64().collect();
            assert_eq!(found.len(), values.len(), "{found:?}");
            for (found, value) in found.iter().zip(*values) {
                let tolerance = (value.abs() * 1e-6).max(f64::MIN_POSITIVE);
                assert!((found - value).abs() <= tolerance, "{found}, not {value}");
            }
        }
        session
            .run(&zeros)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

fn assert_refused(error: &EngineError, words: &str) {
    assert!(error.is_about_the_engine(), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

/// ONNX Runtime moves a quantization before a transposition, which also changes other uses of the
/// transposition's input.
#[test]
fn an_output_before_a_quantisation_is_not_quantised() {
    let Some(_) = engines::ort() else { return };
    for is_hidden in [false, true] {
        let mut graph = Graph::default()
            .input("x", FLOAT, &[Size::Of(2), Size::Of(2)])
            .output("plain", FLOAT)
            .output("y", FLOAT)
            .number("step", 0.5)
            .byte("zero", 128)
            .node("Neg", &["x"], "plain", &[]);
        // A removable node stands between the two.
        if is_hidden {
            graph = graph.node("Identity", &["plain"], "same", &[]);
        }
        let before = if is_hidden { "same" } else { "plain" };
        let graph = graph
            .node(
                "Transpose",
                &[before],
                "t",
                &[Attribute::Ints("perm", &[1, 0])],
            )
            .node("QuantizeLinear", &["t", "step", "zero"], "bytes", &[])
            .node("DequantizeLinear", &["bytes", "step", "zero"], "y", &[]);
        let plain = [0.625, -1.125, 2.25, 3.375];
        let x = plain.map(|value: f64| -value);
        // Ties round to even.
        let steps = [0.5, 2.0, -1.0, 3.5];
        let expected: [(&[u64], &[f64]); 2] = [(&[2, 2], &plain), (&[2, 2], &steps)];
        assert_answers(graph, &[float(&[2, 2], &x)], &expected);
    }
}

/// ONNX Runtime fuses a pad of zeros into a max pool, whose own padding is the least number.
#[test]
fn zeros_before_a_maximum_count() {
    let Some(_) = engines::ort() else { return };
    let graph = Graph::default()
        .input("x", FLOAT, &[Size::Of(1), Size::Of(1), Size::Of(2)])
        .output("y", FLOAT)
        .integers("pads", &[0, 0, 1, 0, 0, 0])
        .node("Pad", &["x", "pads"], "p", &[])
        .node(
            "MaxPool",
            &["p"],
            "y",
            &[Attribute::Ints("kernel_shape", &[2])],
        );
    let x = float(&[1, 1, 2], &[-1.0, -2.0]);
    assert_answers(graph, &[x], &[(&[1, 1, 2], &[0.0, -1.0])]);
}

/// The fused operator normalizes only the last axis.
#[test]
fn a_sum_is_normalised_over_all_its_axes() {
    let Some(_) = engines::ort() else { return };
    let sizes = [Size::Of(1), Size::Of(2), Size::Of(2)];
    let graph = Graph::default()
        .input("a", FLOAT, &sizes)
        .input("b", FLOAT, &sizes)
        .output("y", FLOAT)
        .numbers("scale", &[2], &[1.0, 1.0])
        .numbers("shift", &[2], &[0.0, 0.0])
        .node("Add", &["a", "b"], "sum", &[])
        .node(
            "LayerNormalization",
            &["sum", "scale", "shift"],
            "y",
            &[Attribute::Int("axis", LAST_BUT_ONE)],
        );
    let a = float(&[1, 2, 2], &[3000.0, 3000.0, 0.0, 0.0]);
    let b = float(&[1, 2, 2], &[0.0, 0.0, -3000.0, -3000.0]);
    let expected: (&[u64], &[f64]) = (&[1, 2, 2], &[1.0, 1.0, -1.0, -1.0]);
    assert_answers(graph, &[a, b], &[expected]);
}

#[test]
fn steps_of_a_slice_count_without_axes() {
    let Some(_) = engines::ort() else { return };
    let graph = Graph::default()
        .input("x", FLOAT, &[Size::Of(6)])
        .output("y", FLOAT)
        .integers("starts", &[0])
        .integers("ends", &[i64::MAX])
        .integers("steps", &[2])
        .node("Neg", &["x"], "n", &[])
        .node("Slice", &["n", "starts", "ends", "", "steps"], "s", &[])
        .node("Neg", &["s"], "y", &[]);
    let x = float(&[6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_answers(graph, &[x], &[(&[3], &[1.0, 3.0, 5.0])]);
}

#[test]
fn what_is_expanded_to_nothing_is_nothing() {
    let Some(_) = engines::ort() else { return };
    let graph = Graph::default()
        .input("x", FLOAT, &[Size::Of(1)])
        .output("y", FLOAT)
        .integers("shape", &[0])
        .node("Neg", &["x"], "n", &[])
        .node("Expand", &["n", "shape"], "e", &[])
        .node("Neg", &["e"], "y", &[]);
    assert_answers(graph, &[float(&[1], &[2.0])], &[(&[0], &[])]);
}

/// ONNX Runtime crashed when its optimizer moved a cast before the transposition.
#[test]
fn a_cast_between_transposition_and_product_is_no_crash() {
    let Some(_) = engines::ort() else { return };
    for (is_left, is_hidden) in [(true, false), (false, false), (true, true)] {
        let mut graph = Graph::default()
            .input("x", INT64, &[Size::Of(2), Size::Of(1), Size::Of(2)])
            .output("y", FLOAT)
            .numbers("w", &[2, 2], &[1.0, 10.0, 100.0, 1000.0])
            .node(
                "Transpose",
                &["x"],
                "t",
                &[Attribute::Ints("perm", &[1, 0, 2])],
            );
        if is_hidden {
            graph = graph.node("Identity", &["t"], "same", &[]);
        }
        let before = if is_hidden { "same" } else { "t" };
        let inputs = if is_left { ["f", "w"] } else { ["w", "f"] };
        let graph = graph
            .node("Cast", &[before], "f", &[Attribute::Int("to", FLOAT)])
            .node("MatMul", &inputs, "y", &[]);
        // The matrix 1 2 / 3 4, and the transposed weights.
        let x = tensor(DType::Int64, &[2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
        let expected = if is_left {
            [201.0, 2010.0, 403.0, 4030.0]
        } else {
            [31.0, 42.0, 3100.0, 4200.0]
        };
        assert_answers(graph, &[x], &[(&[1, 2, 2], &expected)]);
    }
}

/// ONNX Runtime read float64 numbers as float32, so small numbers became zero.
#[test]
fn little_numbers_of_float64_count() {
    let Some(_) = engines::ort() else { return };
    let sum = Graph::default()
        .input("x", DOUBLE, &[Size::Of(2)])
        .output("y", DOUBLE)
        .doubles("little", &[1e-50])
        .node("Add", &["x", "little"], "s", &[])
        .node("Neg", &["s"], "y", &[]);
    let x = tensor(DType::Float64, &[2], &[1e-50, 2e-50]);
    assert_answers(sum, &[x], &[(&[2], &[-2e-50, -3e-50])]);

    let normalised = Graph::default()
        .input("x", DOUBLE, &[Size::Of(1), Size::Of(2)])
        .output("y", DOUBLE)
        .integers("last", &[-1])
        .doubles("two", &[2.0])
        .doubles("epsilon", &[1e-50])
        .doubles("scale", &[1.0, 1.0])
        .doubles("shift", &[0.0, 0.0])
        .node("ReduceMean", &["x", "last"], "mean", &[])
        .node("Sub", &["x", "mean"], "apart", &[])
        .node("Pow", &["apart", "two"], "square", &[])
        .node("ReduceMean", &["square", "last"], "variance", &[])
        .node("Add", &["variance", "epsilon"], "more", &[])
        .node("Sqrt", &["more"], "deviation", &[])
        .node("Div", &["apart", "deviation"], "even", &[])
        .node("Mul", &["even", "scale"], "scaled", &[])
        .node("Add", &["scaled", "shift"], "y", &[]);
    let x = tensor(DType::Float64, &[1, 2], &[1e-25, -1e-25]);
    let half = 0.5_f64.sqrt();
    assert_answers(normalised, &[x], &[(&[1, 2], &[half, -half])]);
}

/// ONNX Runtime merged two random samples into one.
#[test]
fn samples_of_chance_are_different() {
    let Some(_) = engines::ort() else { return };
    let graph = Graph::default()
        .input("x", FLOAT, &[Size::Of(1000)])
        .output("y", FLOAT)
        .node("Bernoulli", &["x"], "a", &[])
        .node("Bernoulli", &["x"], "b", &[])
        .node("Sub", &["a", "b"], "y", &[]);
    let mut session = load(graph).unwrap_or_else(|error| panic!("{error}"));
    let x = float(&[1000], &[0.5; 1000]);
    let answer = session.run(&[x]).unwrap_or_else(|error| panic!("{error}"));
    let differing = answer.outputs[0].to_f64().filter(|it| *it != 0.0).count();
    assert!(differing > 100, "{differing}");
}

/// For tensors without elements, ONNX Runtime does not count negative axes from the end.
#[test]
fn nothing_is_not_reduced_over_axes_from_the_end() {
    let Some(_) = engines::ort() else { return };
    let graph = |size, axis| {
        Graph::default()
            .input("x", FLOAT, &[Size::Of(2), size])
            .output("y", FLOAT)
            .integers("axes", &[axis])
            .node("ReduceMax", &["x", "axes"], "y", &[])
    };
    let error = load(graph(Size::Of(0), -1)).expect_err("the model is rejected");
    assert_refused(&error, "empty tensor");

    let mut session = load(graph(Size::Open("n"), -1)).unwrap_or_else(|error| panic!("{error}"));
    let some = float(&[2, 2], &[1.0, 3.0, 4.0, 2.0]);
    let nothing = float(&[2, 0], &[]);
    for _ in 0..3 {
        let answer = session
            .run(std::slice::from_ref(&some))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(answer.outputs[0].to_f64().collect::<Vec<_>>(), [3.0, 4.0]);
        let error = session
            .run(std::slice::from_ref(&nothing))
            .expect_err("the input is rejected");
        assert_refused(&error, "empty tensor");
    }

    let mut session = load(graph(Size::Open("n"), 1)).unwrap_or_else(|error| panic!("{error}"));
    let answer = session
        .run(&[nothing])
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(answer.outputs[0].shape(), [2, 1]);
}

/// ONNX Runtime does not crop along an axis whose size stays the same.
#[test]
fn crops_that_keep_a_size_are_refused() {
    let Some(_) = engines::ort() else { return };
    let graph = |size, sizes: &[i64]| {
        Graph::default()
            .input("x", FLOAT, &[Size::Of(1), size])
            .output("y", FLOAT)
            .numbers("region", &[4], &[0.0, 0.25, 1.0, 0.75])
            .integers("sizes", sizes)
            .node(
                "Resize",
                &["x", "region", "", "sizes"],
                "y",
                &[
                    Attribute::Text("mode", "linear"),
                    Attribute::Text("coordinate_transformation_mode", "tf_crop_and_resize"),
                ],
            )
    };
    for (size, sizes) in [(Size::Of(5), [1, 5]), (Size::Open("n"), [1, 3])] {
        let error = load(graph(size, &sizes)).expect_err("the model is rejected");
        assert_refused(&error, "does not crop");
    }
    let x = float(&[1, 5], &[0.0, 1.0, 2.0, 3.0, 4.0]);
    let expected: (&[u64], &[f64]) = (&[1, 3], &[1.0, 2.0, 3.0]);
    assert_answers(graph(Size::Of(5), &[1, 3]), &[x], &[expected]);
}

/// ONNX Runtime loses non-finite float64 values between the maximum and the sum.
#[test]
fn a_logarithm_of_a_softmax_of_float64_is_refused() {
    let Some(_) = engines::ort() else { return };
    let graph = |element| {
        Graph::default()
            .input("x", element, &[Size::Of(1), Size::Of(2)])
            .output("y", element)
            .node("Neg", &["x"], "n", &[])
            .node("LogSoftmax", &["n"], "l", &[])
            .node("Neg", &["l"], "y", &[])
    };
    let error = load(graph(DOUBLE)).expect_err("the model is rejected");
    assert_refused(&error, "float64");
    let two = 2_f64.ln();
    let x = float(&[1, 2], &[3.0, 3.0]);
    assert_answers(graph(FLOAT), &[x], &[(&[1, 2], &[two, two])]);
}
