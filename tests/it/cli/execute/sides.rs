//! Tests of inputs in `bench` and `compare`: all sides run on the same inputs. Fixed sizes bind
//! open ones, inputs and outputs are matched by name, the lower precision sets the tolerance, and
//! each set of inputs starts a new session.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::environment::EnvironmentPiece;
use crate::support::onnx::{graph_node, graph_value, half_inside, initializer, quantized, unary};
use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/programs");

fn run(directory: impl AsRef<Path>, command: &str, arguments: &[&str]) -> Ran {
    let all = [command, "--engine", "tract"];
    pkgtool(all.iter().chain(arguments)).within(directory).run()
}

fn bench(directory: impl AsRef<Path>, arguments: &[&str]) -> Ran {
    let quick = ["--runs=2", "--rounds=1", "--warm-up=0"];
    run(directory, "bench", &[&quick, arguments].concat())
}

fn compare(directory: impl AsRef<Path>, arguments: &[&str]) -> Ran {
    run(directory, "compare", arguments)
}

/// Returns the model `y = x` with these dimensions.
fn identity(name: &str, dtype: &str, dims: &[&str]) -> Vec<u8> {
    pkgtool_testing::onnx::model(&[
        &graph_node("Identity", &[name], "y", &[]),
        &graph_value(11, name, dtype, dims),
        &graph_value(12, "y", dtype, dims),
    ])
}

/// Returns the input shape of each series of a benchmark.
fn bench_shapes(document: &Value) -> Vec<Value> {
    let series = document["series"].as_array().expect("series").iter();
    series
        .map(|one| one["inputs"][0]["shape"].clone())
        .collect()
}

/// The batch of the fp32 variant is open up to 8; that of the int8 variant is fixed to 1.
#[test]
fn a_fixed_size_binds_the_open_ones_of_all_sides() {
    let page = Tree::new();
    let page = page.path("bench.html");
    for precisions in ["fp32,int8", "int8,fp32"] {
        let precision = ["glimpse/xnnpack", "--precision", precisions];
        let html = format!("--html={}", page.display());
        let more = ["--json", &html];
        std::fs::create_dir_all(page.parent().expect("a directory")).expect("it can be made");
        let ran = bench(EXAMPLES, &[&precision[..], &more].concat()).expect_code(0);
        let one = json!([1, 3, 32, 32]);
        assert_eq!(bench_shapes(&ran.json()), [one.clone(), one]);
        let html = std::fs::read_to_string(&page).expect("a page");
        assert_eq!(
            html.matches("on input_0 float32[1, 3, 32, 32]").count(),
            2,
            "{html}"
        );
        let text = bench(EXAMPLES, &precision).expect_code(0).stdout;
        assert_eq!(
            text.matches("   on input_0 float32[1, 3, 32, 32]\n")
                .count(),
            2,
            "{text}"
        );
        let ran = compare(
            EXAMPLES,
            &[&precision[..], &["--seeds=2", "--json"]].concat(),
        );
        let document = ran.expect_code(0).json();
        assert_eq!(document["judged"]["precision"], "int8", "{precisions}");
        let side = if precisions.starts_with("int8") {
            "A"
        } else {
            "B"
        };
        assert_eq!(document["judged"]["side"], side);
        for case in document["cases"].as_array().expect("cases") {
            for inputs in case["inputs"].as_array().expect("both sides") {
                assert_eq!(inputs[0]["shape"], json!([1, 3, 32, 32]));
            }
        }
        let text = compare(EXAMPLES, &precision).expect_code(0).stdout;
        assert!(
            text.contains(&format!("judged as int8, as {side} is: its config says so")),
            "{text}"
        );
        assert_eq!(
            text.matches("   on input_0 float32[1, 3, 32, 32]\n")
                .count(),
            2,
            "{text}"
        );
    }
}

#[test]
fn a_size_says_where_it_has_nothing_to_do() {
    let both = ["glimpse/xnnpack", "--precision", "fp32,int8", "--json"];
    let ran = bench(EXAMPLES, &[&both[..], &["--dim", "input_0[0]=1"]].concat()).expect_code(0);
    let note = "`--dim input_0[0]=1` has no effect in glimpse int8 for xnnpack, where the size is always 1";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert!(!ran.stderr.contains("in glimpse fp32"), "{}", ran.stderr);
    let ran = bench(EXAMPLES, &[&both[..], &["--dim", "0=4"]].concat()).expect_code(2);
    let error = "dimension 0 of input `input_0` is always 1 in glimpse int8 for xnnpack";
    assert!(ran.stderr.contains(error), "{}", ran.stderr);
    let ran = bench(EXAMPLES, &[&both[..3], &["--dim", "batch=4"]].concat()).expect_code(2);
    assert!(
        ran.stderr.contains("unknown dimension `batch`"),
        "{}",
        ran.stderr
    );
    // A symbol of either side names the dimension for both.
    let tree = Tree::new()
        .file("n.onnx", identity("x", "float32", &["n", "2"]))
        .file("rows.onnx", identity("x", "float32", &["rows", "m"]));
    for (first, second) in [("n.onnx", "rows.onnx"), ("rows.onnx", "n.onnx")] {
        for name in ["n", "rows", "x[0]", "0"] {
            let dim = format!("--dim={name}=5");
            let ran = bench(tree.root(), &[first, second, &dim, "--json"]).expect_code(0);
            assert_eq!(bench_shapes(&ran.json()), [json!([5, 2]), json!([5, 2])]);
            assert!(ran.stderr.is_empty(), "{}", ran.stderr);
        }
    }
}

#[test]
fn sides_without_a_common_shape_are_refused_by_the_dimension() {
    let tree = Tree::new()
        .file("four.onnx", identity("x", "float32", &["n", "4"]))
        .file("five.onnx", identity("x", "float32", &["n", "5"]))
        .file("square.onnx", identity("x", "float32", &["n", "n"]))
        .file("wide.onnx", identity("x", "float32", &["2", "3"]))
        .file("cube.onnx", identity("x", "float32", &["1", "1", "4"]))
        .file("whole.onnx", identity("x", "int64", &["n", "4"]))
        .file("two.onnx", {
            pkgtool_testing::onnx::model(&[
                &graph_node("Add", &["x", "z"], "y", &[]),
                &graph_value(11, "x", "float32", &["n", "4"]),
                &graph_value(11, "z", "float32", &["n", "4"]),
                &graph_value(12, "y", "float32", &["n", "4"]),
            ])
        });
    for (a, b, reason) in [
        (
            "four.onnx",
            "five.onnx",
            "dimension 1 of `x` is 4 in four.onnx and dimension 1 of `x` is 5 in five.onnx",
        ),
        (
            "square.onnx",
            "wide.onnx",
            "dimension 0 of `x` is 2 in wide.onnx and dimension 1 of `x` is 3 in wide.onnx, but they must be equal",
        ),
        ("four.onnx", "cube.onnx", "2 dimensions and 3"),
        (
            "four.onnx",
            "whole.onnx",
            "float32 and int64 are incompatible",
        ),
        (
            "four.onnx",
            "two.onnx",
            "four.onnx and two.onnx take different numbers of inputs, 1 and 2",
        ),
    ] {
        let ran = bench(tree.root(), &[a, b]).expect_code(2);
        assert!(ran.stderr.contains(reason), "{a} {b}: {}", ran.stderr);
        assert!(ran.stdout.is_empty());
        compare(tree.root(), &[a, b]).expect_code(2);
    }
}

/// The sides name and order their inputs and outputs differently and use another width of numbers.
#[test]
fn inputs_and_outputs_are_matched_by_name() {
    let model = |first: &str, second: &str, dtype: &str, swapped: bool| {
        let mut outputs = [
            graph_value(12, "sum", dtype, &["2"]),
            graph_value(12, "difference", dtype, &["2"]),
        ];
        if swapped {
            outputs.reverse();
        }
        pkgtool_testing::onnx::model(&[
            &graph_node("Add", &["a", "b"], "sum", &[]),
            &graph_node("Sub", &["a", "b"], "difference", &[]),
            &graph_value(11, first, dtype, &["2"]),
            &graph_value(11, second, dtype, &["2"]),
            &outputs[0],
            &outputs[1],
        ])
    };
    let tree = Tree::new()
        .file("ab.onnx", model("a", "b", "float32", false))
        .file("ba.onnx", model("b", "a", "float32", true))
        .file("half.onnx", model("b", "a", "float16", false))
        .file("whole.onnx", model("a", "b", "int32", false))
        .file("long.onnx", model("b", "a", "int64", true));
    for (a, b) in [
        ("ab.onnx", "ba.onnx"),
        ("ba.onnx", "ab.onnx"),
        ("ba.onnx", "half.onnx"),
        ("half.onnx", "ab.onnx"),
        ("whole.onnx", "long.onnx"),
        ("long.onnx", "whole.onnx"),
    ] {
        compare(tree.root(), &[a, b]).expect_code(0);
    }
    let ran = compare(
        tree.root(),
        &[
            "long.onnx",
            "whole.onnx",
            "--input=a=[5000000000,1]",
            "--input=ones",
        ],
    );
    let stderr = ran.expect_code(2).stderr;
    assert!(
        stderr.contains("5000000000 is out of range for int32"),
        "{stderr}"
    );
}

/// The data types in a bare model file set the tolerance, on either side.
#[test]
fn bare_files_are_judged_by_what_they_hold() {
    let tree = Tree::new()
        .file("plain.onnx", unary("Identity", "float32", Some(&[2])))
        .file("quantized.onnx", quantized("2"))
        .file("half.onnx", half_inside());
    for (file, precision, because) in [
        (
            "quantized.onnx",
            "int8",
            "it holds 1 node `DequantizeLinear`",
        ),
        ("half.onnx", "fp16", "it holds float16 weights"),
    ] {
        for (a, b, side) in [("plain.onnx", file, "B"), (file, "plain.onnx", "A")] {
            let document = compare(tree.root(), &[a, b, "--json"])
                .expect_code(0)
                .json();
            let judged = json!({ "precision": precision, "side": side, "because": because });
            assert_eq!(document["judged"], judged);
            assert!(
                document["outputs"][0]["max_rel"].as_f64() > Some(1e-4),
                "fp32 would not do"
            );
        }
    }
    let document = compare(tree.root(), &["plain.onnx", "plain.onnx", "--json"])
        .expect_code(0)
        .json();
    let nothing =
        json!({ "precision": "fp32", "side": "both", "because": "nothing in it is less precise" });
    assert_eq!(document["judged"], nothing);
    let given = compare(
        tree.root(),
        &["plain.onnx", "plain.onnx", "--max-rel=1", "--json"],
    );
    assert!(given.expect_code(0).json()["judged"].is_null());
    for (file, precision, because) in [
        ("dynamic_int4_linear.pte", "int4", "4-bit weights"),
        ("dynamic_int8_linear.pte", "int8", "8-bit values"),
        (
            "embedding_4_bits.pte",
            "int4",
            "quantized_decomposed::embedding_4bit",
        ),
        ("dynamic_batch_xnnpack.pte", "fp32", "nothing"),
        ("bfloat16.pte", "bf16", "bfloat16"),
    ] {
        let ran = compare(
            PROGRAMS,
            &[file, file, "--seeds=1", "--json", "--input=ones"],
        );
        let judged = ran.json()["judged"].clone();
        assert_eq!(judged["precision"], precision, "{file}: {judged}");
        assert!(
            judged["because"]
                .as_str()
                .expect("a text")
                .contains(because),
            "{file}: {judged}"
        );
    }
}

/// A counter and a running mean are compared with a stateless model, which they match only in their
/// first run.
#[test]
fn each_set_of_inputs_is_a_first_run() {
    let stateless = pkgtool_testing::onnx::model(&[
        &graph_node("Identity", &["x"], "y", &[]),
        &graph_node("Identity", &["one"], "n", &[]),
        &initializer("one", "int64", &[1], &1_i64.to_le_bytes()),
        &graph_value(11, "x", "float32", &["3"]),
        &graph_value(12, "y", "float32", &["3"]),
        &graph_value(12, "n", "int64", &["1"]),
    ]);
    let tree = Tree::new().file("stateless.onnx", stateless);
    let counter = format!("{PROGRAMS}/counter.pte");
    let mut engines = vec!["tract"];
    if cfg!(feature = "executorch")
        && EnvironmentPiece::ExecuTorch
            .or_skip("fresh states")
            .is_some()
    {
        engines.push("auto");
    }
    for engine in engines {
        for (a, b) in [
            ("stateless.onnx", counter.as_str()),
            (counter.as_str(), "stateless.onnx"),
        ] {
            let compare = |more: &[&str]| {
                let all = ["compare", "--engine", engine, a, b, "--seeds=3", "--json"];
                pkgtool(all.iter().chain(more)).within(tree.root()).run()
            };
            compare(&[]).expect_code(0);
            let document = compare(&["--keep-state"]).expect_code(1).json();
            let agree = |case: &Value| {
                let outputs = case["outputs"].as_array().expect("outputs").iter();
                outputs
                    .clone()
                    .all(|output| output["violations"] == json!([]))
            };
            let cases = document["cases"].as_array().expect("three");
            let agree: Vec<bool> = cases.iter().map(agree).collect();
            assert_eq!(agree, [true, false, false], "{engine}");
        }
    }
}
