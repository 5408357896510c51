//! Tests of open dimensions at which a model does not run. The tool tries sizes that the graph
//! suggests and reports those that it used; if none works, the error says what to give.

use crate::support::graph::{Attribute, FLOAT, Graph, Size};
use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

fn run(model: &[u8], arguments: &[&str]) -> Ran {
    let tree = Tree::new().file("m.onnx", model);
    let all = ["run", "--engine", "tract", "m.onnx"]
        .iter()
        .chain(arguments);
    pkgtool(all).within(tree.root()).run()
}

/// Runs a model with open sizes; returns the shape of its first input and the message about the
/// sizes.
#[track_caller]
fn found(model: &[u8]) -> (String, String) {
    let ran = run(model, &["--input", "zeros", "--once", "--json"]).expect_code(0);
    let shape = ran.json()["inputs"][0]["shape"].to_string();
    (shape, ran.stderr)
}

fn rows(label: &'static str) -> Graph {
    Graph::default().input("x", FLOAT, &[Size::Open("batch"), Size::Open(label)])
}

#[test]
fn weights_say_how_many_features_there_are() {
    let matrix = rows("features")
        .ones("w", &[6, 2])
        .node("Relu", &["x"], "r", &[])
        .node("MatMul", &["r", "w"], "y", &[])
        .output("y", FLOAT);
    let (shape, told) = found(&matrix.bytes());
    assert_eq!(shape, "[1,6]");
    assert!(
        told.contains("it runs with `features` = 6 (the weights of a `MatMul` have 6 rows)"),
        "{told}"
    );
    assert!(
        told.contains("set other sizes with `--dim NAME=SIZE`"),
        "{told}"
    );
    let transposed = rows("features")
        .ones("w", &[2, 5])
        .node("Gemm", &["x", "w"], "y", &[Attribute::Int("transB", 1)])
        .output("y", FLOAT);
    assert_eq!(found(&transposed.bytes()).0, "[1,5]");
}

#[test]
fn a_target_says_how_many_elements_there_are() {
    let graph = rows("length")
        .integers("target", &[1, 7, 4])
        .node("Reshape", &["x", "target"], "y", &[])
        .output("y", FLOAT);
    let (shape, told) = found(&graph.bytes());
    assert_eq!(shape, "[1,28]");
    assert!(told.contains("a `Reshape` makes it [1, 7, 4]"), "{told}");
}

/// Two poolings and one upsampling, joined with the input: its sides must be multiples of four.
#[test]
fn strides_say_what_sides_are_divided_by() {
    let sides = [Size::Of(1), Size::Of(1), Size::Open("h"), Size::Open("w")];
    let pool = || {
        [
            Attribute::Ints("kernel_shape", &[2, 2]),
            Attribute::Ints("strides", &[2, 2]),
        ]
    };
    let graph = Graph::default()
        .input("x", FLOAT, &sides)
        .ones("up", &[1, 1, 4, 4])
        .node("MaxPool", &["x"], "half", &pool())
        .node("MaxPool", &["half"], "quarter", &pool())
        .node(
            "ConvTranspose",
            &["quarter", "up"],
            "back",
            &[Attribute::Ints("strides", &[4, 4])],
        )
        .node("Concat", &["back", "x"], "y", &[Attribute::Int("axis", 1)])
        .output("y", FLOAT);
    let (shape, told) = found(&graph.bytes());
    assert_eq!(shape, "[1,1,4,4]");
    assert!(told.contains("strides divide it by 4"), "{told}");
}

#[test]
fn a_flattened_picture_has_the_side_that_its_weights_say() {
    let sides = [Size::Of(1), Size::Of(3), Size::Open("h"), Size::Open("w")];
    let graph = Graph::default()
        .input("x", FLOAT, &sides)
        .ones("filters", &[2, 3, 1, 1])
        .ones("weights", &[2 * 25, 4])
        .node(
            "Conv",
            &["x", "filters"],
            "c",
            &[Attribute::Ints("strides", &[2, 2])],
        )
        .node("Flatten", &["c"], "f", &[])
        .node("Gemm", &["f", "weights"], "y", &[])
        .output("y", FLOAT);
    let (shape, told) = found(&graph.bytes());
    // Only the strides constrain the other side: 5 by 5 after them.
    assert!(
        told.contains("the weights of a `Gemm` have 50 rows"),
        "{told}"
    );
    assert_eq!(shape, "[1,3,10,10]");
}

#[test]
fn what_is_given_is_kept_and_what_runs_at_one_runs_at_one() {
    let graph = || {
        rows("features")
            .ones("w", &[6, 2])
            .node("MatMul", &["x", "w"], "y", &[])
            .output("y", FLOAT)
            .bytes()
    };
    let ran = run(
        &graph(),
        &["--input", "zeros", "--dim", "batch=3", "--json"],
    )
    .expect_code(0);
    assert_eq!(ran.json()["inputs"][0]["shape"].to_string(), "[3,6]");
    let given = ["--input", "zeros", "--dim", "features=5"];
    let ran = run(&graph(), &given).expect_code(2);
    assert!(
        ran.stderr
            .starts_with("error: m.onnx: the tract engine failed at `MatMul`")
    );
    // If an input has no value, no sizes are tried.
    let ran = run(&graph(), &[]).expect_code(2);
    assert!(
        ran.stderr.starts_with("error: no value for input 0 `x`"),
        "{}",
        ran.stderr
    );
    let plain = rows("features")
        .node("Relu", &["x"], "y", &[])
        .output("y", FLOAT);
    let (shape, told) = found(&plain.bytes());
    assert_eq!((shape.as_str(), told.as_str()), ("[1,1]", ""));
}

/// The error names the operator and node, the mismatch and the remedy, and contains no dump of the
/// library.
#[test]
fn a_failure_that_no_size_helps_says_what_to_give() {
    // The joined dimension is always twice as large as the other one.
    let graph = rows("length")
        .node("Concat", &["x", "x"], "twice", &[Attribute::Int("axis", 1)])
        .node("Concat", &["x", "twice"], "y", &[Attribute::Int("axis", 0)])
        .output("y", FLOAT);
    let ran = run(&graph.bytes(), &["--input", "zeros"]).expect_code(2);
    let said = &ran.stderr;
    assert!(
        said.starts_with("error: m.onnx: the tract engine failed at `Concat`: node `y`: "),
        "{said}"
    );
    assert!(
        said.contains("set their sizes with --dim batch=SIZE --dim length=SIZE"),
        "{said}"
    );
    for dump in ["Applying rule", "Val(", "node #", ".rs", "Fact"] {
        assert!(!said.contains(dump), "{said}");
    }
}

#[test]
fn bench_and_compare_find_sizes_too() {
    let graph = rows("features")
        .ones("w", &[6, 2])
        .node("MatMul", &["x", "w"], "y", &[])
        .output("y", FLOAT);
    let tree = Tree::new().file("m.onnx", graph.bytes());
    for arguments in [
        &["bench", "--engine", "tract", "--runs", "2", "m.onnx"][..],
        &["compare", "--engine", "tract", "m.onnx", "m.onnx"],
    ] {
        let ran = pkgtool(arguments).within(tree.root()).run().expect_code(0);
        assert!(ran.stderr.contains("`features` = 6"), "{}", ran.stderr);
    }
}
