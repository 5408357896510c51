//! Saturating sums of 8-bit products in ONNX Runtime on x86-64 processors without VNNI.
//!
//! Every test restricts ONNX Runtime to AVX2, so that all newer processors use the same kernels.

use std::path::PathBuf;

use pkgtool_engine::runtime::worker::Worker;
use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_engine::{ByteSums, EngineError, Session, instruction_sets};

use crate::support::engines;
use crate::support::environment::say;
use crate::support::graph::{FLOAT, Graph, INT8, INT32, Size, UINT8};
use crate::support::loading::{launcher, request, written};
use crate::support::run::pkgtool;
use crate::support::tree::Tree;

/// Number of products in a sum.
const K: u64 = 64;
/// The exact sum 64 * 255 * 127. The 16-bit sums of pairs saturate at 32767.
const SUM: f64 = 2_072_640.0;

/// Returns the library, if this processor can be restricted to AVX2.
fn library() -> Option<PathBuf> {
    if !instruction_sets().contains(&"AVX2") {
        say("SKIPPED sums of bytes in ort: this processor lacks AVX2");
        return None;
    }
    engines::ort()
}

fn load(graph: Graph, library: PathBuf, options: &[&str]) -> Result<Worker, EngineError> {
    let model = written("model.onnx", &graph.bytes());
    let parsed = options
        .iter()
        .map(|text| text.parse().expect("the option is valid"));
    let mut request = request(&model.path);
    request.options.library = Some(library);
    request.options.cpu_features = Some("avx2".to_owned());
    request.options.ort_options = parsed.collect();
    launcher(None).load("ort", &request)
}

fn tensor(dtype: DType, shape: &[u64], value: f64) -> Tensor {
    let count: u64 = shape.iter().product();
    let values = (0..count).map(|_| value);
    Tensor::from_f64(dtype, shape.to_vec(), values).expect("the tensor is valid")
}

/// Runs a graph three times in one session, asserts the sum, and returns how the session computes
/// such sums.
fn assert_sums(graph: Graph, library: PathBuf, inputs: &[Tensor], sum: f64) -> Option<ByteSums> {
    let mut session = load(graph, library, &[]).unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..3 {
        let answer = session
            .run(inputs)
            .unwrap_or_else(|error| panic!("{error}"));
        for found in answer.outputs.iter().flat_map(Tensor::to_f64) {
            assert!(
                (found - sum).abs() <= sum.abs() * 1e-5,
                "{found}, not {sum}"
            );
        }
    }
    session.placement().byte_sums
}

fn weights() -> Vec<u8> {
    vec![127; usize::try_from(K * 32).expect("the number fits")]
}

/// `y = a * w` in integers.
fn whole() -> Graph {
    Graph::default()
        .input("a", UINT8, &[Size::Of(3), Size::Of(K)])
        .output("y", INT32)
        .bytes_of("w", INT8, &[K, 32], &weights())
        .node("MatMulInteger", &["a", "w"], "y", &[])
}

/// `y = a * w` in integers, with `w` as an input.
fn given() -> Graph {
    Graph::default()
        .input("a", UINT8, &[Size::Of(3), Size::Of(K)])
        .input("w", INT8, &[Size::Of(K), Size::Of(32)])
        .output("y", INT32)
        .node("MatMulInteger", &["a", "w"], "y", &[])
}

/// Two consecutive products between conversions, with separate zero points or a shared one.
fn converted(is_shared: bool) -> Graph {
    let zero = if is_shared { "z1" } else { "z2" };
    Graph::default()
        .input("x", FLOAT, &[Size::Of(3), Size::Of(K)])
        .output("y", FLOAT)
        .number("one", 1.0)
        .number("step", 9000.0)
        .byte("zero", 0)
        .bytes_of("z1", INT8, &[], &[0])
        .bytes_of("z2", INT8, &[], &[0])
        .bytes_of("w1", INT8, &[K, 32], &weights())
        .bytes_of("w2", INT8, &[32, 32], &weights()[..32 * 32])
        .node("QuantizeLinear", &["x", "one", "zero"], "q", &[])
        .node("DequantizeLinear", &["q", "one", "zero"], "a", &[])
        .node("DequantizeLinear", &["w1", "one", "z1"], "b", &[])
        .node("MatMul", &["a", "b"], "m", &[])
        .node("QuantizeLinear", &["m", "step", "zero"], "mq", &[])
        .node("DequantizeLinear", &["mq", "step", "zero"], "ma", &[])
        .node("DequantizeLinear", &["w2", "one", zero], "mb", &[])
        .node("MatMul", &["ma", "mb"], "y", &[])
}

/// Asserts the sums of [`converted`].
fn assert_converted_sums(is_shared: bool, library: PathBuf) -> Option<ByteSums> {
    let floats = tensor(DType::Float32, &[3, K], 255.0);
    // 2072640 is about 230 steps of 9000.
    let expected = 230.0 * 9000.0 * 127.0 * 32.0;
    assert_sums(converted(is_shared), library, &[floats], expected)
}

#[test]
fn stored_weights_are_summed_exactly() {
    let Some(library) = library() else { return };
    let bytes = tensor(DType::Uint8, &[3, K], 255.0);
    let sums = assert_sums(whole(), library.clone(), &[bytes], SUM);
    assert_eq!(sums, Some(ByteSums::UnsignedWeights));
    let sums = assert_converted_sums(false, library);
    assert_eq!(sums, Some(ByteSums::UnsignedWeights));
}

/// The library fails to rewrite the same zero point twice.
#[test]
fn operators_with_a_shared_zero_point_are_left_in_float32() {
    let Some(library) = library() else { return };
    let sums = assert_converted_sums(true, library);
    assert_eq!(sums, Some(ByteSums::Float32));
}

#[test]
fn signed_products_and_floats_are_left_alone() {
    let Some(library) = library() else { return };
    let signed = Graph::default()
        .input("a", INT8, &[Size::Of(3), Size::Of(K)])
        .output("y", INT32)
        .bytes_of("w", INT8, &[K, 32], &weights())
        .node("MatMulInteger", &["a", "w"], "y", &[]);
    let bytes = tensor(DType::Int8, &[3, K], -128.0);
    let sums = assert_sums(signed, library.clone(), &[bytes], -128.0 * 127.0 * 64.0);
    assert_eq!(sums, Some(ByteSums::Exact));
    let floats = Graph::default()
        .input("x", FLOAT, &[Size::Of(3)])
        .output("y", FLOAT)
        .node("Neg", &["x"], "y", &[]);
    let sums = assert_sums(floats, library, &[tensor(DType::Float32, &[3], 1.0)], -1.0);
    assert_eq!(sums, None);
}

/// No workaround makes these products exact, so another engine must run them.
#[test]
fn computed_weights_are_refused() {
    let Some(library) = library() else { return };
    let given = given();
    let computed = Graph::default()
        .input("a", UINT8, &[Size::Of(3), Size::Of(K)])
        .input("f", FLOAT, &[Size::Of(K), Size::Of(32)])
        .output("y", INT32)
        .number("one", 1.0)
        .bytes_of("zero", INT8, &[], &[0])
        .node("QuantizeLinear", &["f", "one", "zero"], "w", &[])
        .node("MatMulInteger", &["a", "w"], "y", &[]);
    let replaceable = whole().input("w", INT8, &[Size::Of(K), Size::Of(32)]);
    let left = Graph::default()
        .input("a", INT8, &[Size::Of(1), Size::Of(K), Size::Of(1)])
        .output("y", INT32)
        .bytes_of("w", UINT8, &[32, K, 1], &weights())
        .node("ConvInteger", &["a", "w"], "y", &[]);
    for (graph, operator) in [
        (given, "MatMulInteger"),
        (computed, "MatMulInteger"),
        (replaceable, "MatMulInteger"),
        (left, "ConvInteger"),
    ] {
        let error = load(graph, library.clone(), &[]).expect_err("the sums would saturate");
        assert!(error.is_about_the_engine(), "{error}");
        let text = error.to_string();
        assert!(text.contains(operator) && text.contains("VNNI"), "{text}");
    }
}

#[test]
fn options_of_the_user_go_over_ours_and_are_named_in_errors() {
    let Some(library) = library() else { return };
    let off = ["session.x64quantprecision=0", "unknown.key=1"];
    let mut session =
        load(whole(), library.clone(), &off).unwrap_or_else(|error| panic!("{error}"));
    let bytes = tensor(DType::Uint8, &[3, K], 255.0);
    session
        .run(&[bytes])
        .unwrap_or_else(|error| panic!("{error}"));
    let sums = session.placement().byte_sums;
    assert_eq!(sums, Some(ByteSums::Saturating));
    let wrong = ["optimization.minimal_build_optimizations=garbage"];
    let error =
        load(whole(), library.clone(), &wrong).expect_err("the value is invalid for this key");
    let text = error.to_string();
    assert!(
        text.contains("--ort-option") && text.contains("garbage"),
        "{text}"
    );
    let twice = ["a.b=1", "a.b=2"];
    let error = load(whole(), library, &twice).expect_err("a key is set twice");
    let text = error.to_string();
    assert!(
        text.contains("--ort-option") && text.contains("`a.b`"),
        "{text}"
    );
}

/// `run` and `compare` report how each engine computes such sums.
#[test]
fn answers_say_how_they_were_summed() {
    let Some(library) = library() else { return };
    let tree = Tree::new().file("m.onnx", whole().bytes());
    let library = library.display().to_string();
    let with = |command: &str, more: &[&str]| {
        let common = ["--cpu-features", "avx2", "--ort-lib", &library];
        let first = [command, "m.onnx"];
        pkgtool(first.iter().chain(&common).chain(more))
            .within(tree.root())
            .run()
    };
    let ones = ["--engine", "ort", "--input", "ones"];
    let json = with("run", &[&ones[..], &["--json"]].concat());
    let json = json.expect_code(0).json();
    assert_eq!(json["byte_sums"], "unsigned-weights");
    let ran = with("run", &ones).expect_code(0);
    assert!(
        ran.stdout.contains("session.x64quantprecision=1"),
        "{}",
        ran.stdout
    );
    let engines = ["--engine", "tract,ort"];
    let json = with("compare", &[&engines[..], &["--json"]].concat());
    let json = json.expect_code(0).json();
    assert_eq!(json["a"]["byte_sums"], "exact");
    assert_eq!(json["b"]["byte_sums"], "unsigned-weights");
    assert_eq!(json["exact_byte_sums"], "both");
    let off = ["--ort-option", "session.x64quantprecision=0"];
    let json = with("compare", &[&engines[..], &off, &["--json"]].concat()).json();
    assert_eq!(json["b"]["byte_sums"], "saturating");
    assert_eq!(json["exact_byte_sums"], "A");
    let series = with("bench", &[&ones[..], &["--runs", "1", "--json"]].concat());
    let series = series.expect_code(0).json();
    assert_eq!(series["series"][0]["byte_sums"], "unsigned-weights");
    let ran = with("run", &["--ort-option", "nothing"]).expect_code(2);
    assert!(
        ran.stderr.contains("--ort-option") && ran.stderr.contains("KEY=VALUE"),
        "{}",
        ran.stderr
    );
}

/// Without `--engine`, the best exact engine is used.
#[test]
fn what_would_saturate_runs_on_the_embedded_engine() {
    let Some(library) = library() else { return };
    let given = given();
    let tree = Tree::new().file("m.onnx", given.bytes());
    let library = library.display().to_string();
    let arguments = [
        "run",
        "m.onnx",
        "--cpu-features",
        "avx2",
        "--ort-lib",
        &library,
        "--input",
        "ones",
        "--json",
    ];
    let json = pkgtool(arguments).within(tree.root()).run();
    let json = json.expect_code(0).json();
    assert_eq!(json["engine"], "tract");
    assert_eq!(json["byte_sums"], "exact");
    let reason = json["passed_over"][0]["reason"]
        .as_str()
        .unwrap_or_default();
    assert!(reason.contains("VNNI"), "{reason}");
}
