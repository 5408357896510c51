//! Tests of `pkgtool compare`: agreement, differences, and its reports for CI.

use std::fs;

use crate::support::onnx::{graph_node, graph_value, initializer, model as onnx_model, unary};
use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples");

fn compare(arguments: &[&str]) -> Ran {
    let all = ["compare", "--engine", "tract"].iter().chain(arguments);
    pkgtool(all).within(EXAMPLES).run()
}

#[test]
fn two_precisions_are_judged_by_what_suits_them() {
    let json = compare(&["glimpse/xnnpack", "--precision", "fp32,fp16", "--json"]);
    let json = json.expect_code(0).json();
    assert_eq!(json["agrees"], true);
    assert_eq!(json["tolerances"]["max_rel"], 1e-2);
    assert_eq!(json["cases"].as_array().expect("four seeds").len(), 4);
    assert_eq!(json["outputs"][0]["name"], "output_0");
    assert!(json["outputs"][0]["cosine"].as_f64() > Some(0.999));
}

#[test]
fn what_differs_is_reported_on_the_variant_in_the_config() {
    let tree = Tree::new();
    let report = |format: &str| tree.path(&format!("report.{format}"));
    let mut arguments = vec![
        "glimpse/xnnpack",
        "--precision",
        "fp32,fp16",
        "--max-abs",
        "1e-9",
    ];
    arguments.extend(["--seeds", "1"]);
    let targets: Vec<String> = ["junit", "sarif", "github"]
        .iter()
        .map(|format| format!("--report={format}={}", report(format).display()))
        .collect();
    arguments.extend(targets.iter().map(String::as_str));
    let ran = compare(&arguments).expect_code(1);
    assert!(
        ran.stdout
            .contains("A and B differ on 1 set of inputs (max abs 1.00e-9)")
    );
    let read = |format| fs::read_to_string(report(format)).expect("a report");
    let github = read("github");
    let line = github.lines().next().expect("an annotation");
    assert!(
        line.starts_with("::error file=packages-examples/glimpse/xnnpack/config.json,line="),
        "{line}"
    );
    assert!(
        line.contains("CMP001") && line.contains("max abs is"),
        "{line}"
    );
    assert!(read("junit").contains("CMP001"));
    let sarif: serde_json::Value = serde_json::from_str(&read("sarif")).expect("it is JSON");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "CMP001");
    assert_eq!(
        sarif["runs"][0]["tool"]["driver"]["rules"][0]["helpUri"],
        "https://pkgtool.dev/docs/compare/"
    );
    // `--root` sets the base directory of paths, as for `validate`.
    arguments.extend(["--root", "packages-examples"]);
    compare(&arguments).expect_code(1);
    let line = fs::read_to_string(report("github")).expect("a report");
    assert!(
        line.starts_with("::error file=glimpse/xnnpack/config.json,line="),
        "{line}"
    );
}

#[test]
fn dynamic_dimensions_are_run_at_two_sizes() {
    let model = "hush-sentence/mlx/hush_sentence_mlx_fp32.onnx";
    let json = compare(&[model, model, "--seeds", "1", "--json"])
        .expect_code(0)
        .json();
    let cases = json["cases"].as_array().expect("two sizes");
    let labels: Vec<&str> = cases
        .iter()
        .filter_map(|case| case["label"].as_str())
        .collect();
    assert_eq!(
        labels,
        ["batch=1, sequence=1, seed 0", "batch=3, sequence=3, seed 0"]
    );
    assert!(json["outputs"][0]["snr_db"].is_null(), "no noise expected");
}

#[test]
fn what_takes_other_shapes_is_no_comparison() {
    let tree = Tree::new()
        .file("row.onnx", unary("Exp", "float32", Some(&[4])))
        .file("wide.onnx", unary("Exp", "float32", Some(&[5])))
        .file("flat.onnx", unary("Exp", "float32", Some(&[2, 2])));
    for (other, shape) in [("wide.onnx", "float32[5]"), ("flat.onnx", "float32[2, 2]")] {
        let ran = pkgtool(["compare", "--engine", "tract", "row.onnx", other])
            .within(tree.root())
            .run()
            .expect_code(2);
        let expected = format!(
            "of A is float32[4], input `x` of B is {shape}: they cannot run on the same inputs"
        );
        assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
    }
}

#[test]
fn a_directory_of_inputs_is_a_set_a_file() {
    let model = unary("Exp", "float32", Some(&[2]));
    let tree = Tree::new()
        .file("a.onnx", &model)
        .file("b.onnx", unary("Sigmoid", "float32", Some(&[2])))
        .file("inputs/one.json", "[0, 1]")
        .file("inputs/two.json", "[-1, 5]");
    let run = |b: &str| {
        let arguments = [
            "compare",
            "--engine",
            "tract",
            "a.onnx",
            b,
            "--inputs-dir",
            "inputs",
        ];
        pkgtool(arguments).within(tree.root()).run()
    };
    let same = run("a.onnx").expect_code(0);
    assert!(
        same.stdout.contains("agree on 2 sets of inputs"),
        "{}",
        same.stdout
    );
    let other = run("b.onnx").expect_code(1);
    assert!(
        other.stdout.contains("two.json: output `y`: max rel is"),
        "{}",
        other.stdout
    );
}

#[test]
fn what_cannot_be_compared_is_refused() {
    for (arguments, reason) in [
        (&["spotter"][..], "compare needs two sides, got 1"),
        (
            &["spotter", "hush-sentence/mlx"],
            "different numbers of outputs, 3 and 1",
        ),
        (
            &["murmur-vad/qnn", "parlor-tts"],
            "different numbers of inputs, 1 and 3: they cannot run",
        ),
        (&["spotter", "spotter", "--seeds", "0"], "--seeds"),
    ] {
        let ran = compare(arguments).expect_code(2);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    }
}

#[test]
fn a_tolerance_is_a_number_that_can_be_met() {
    for (option, values) in [
        ("--max-abs", &["nan", "-1", "-0.1", "x"][..]),
        ("--max-rel", &["NaN", "-1e-9"]),
        ("--min-cosine", &["nan", "1.01", "-2"]),
        ("--min-snr", &["nan", "high"]),
        ("--min-top1", &["nan", "-0.5", "50"]),
    ] {
        for value in values {
            let ran = compare(&["glimpse/xnnpack", "--precision", "fp32,fp16", option, value]);
            let ran = ran.expect_code(2);
            assert!(ran.stderr.contains(option), "{value}: {}", ran.stderr);
        }
    }
    let given = [
        "--max-abs",
        "inf",
        "--min-snr",
        "-inf",
        "--min-cosine",
        "-1",
    ];
    let all = [
        &[
            "glimpse/xnnpack",
            "--precision",
            "fp32,fp16",
            "--seeds",
            "1",
        ],
        &given[..],
    ]
    .concat();
    compare(&all).expect_code(0);
}

const SENTENCE: &str = "hush-sentence/mlx/hush_sentence_mlx_fp32.onnx";

#[test]
fn a_sweep_compares_at_each_size_and_names_the_worst() {
    let json = compare(&[SENTENCE, SENTENCE, "--sizes", "--json"]);
    let json = json.expect_code(0).json();
    let each = json["sizes"]["each"].as_array().expect("sizes");
    let sizes: Vec<&str> = each.iter().filter_map(|it| it["sizes"].as_str()).collect();
    assert_eq!(sizes[0], "batch=1, sequence=1");
    for expected in [
        "batch=1, sequence=65",
        "batch=129, sequence=1",
        "batch=7, sequence=7",
    ] {
        assert!(sizes.contains(&expected), "{sizes:?}");
    }
    // The model has about 24 positions, so neither side runs longer sequences.
    let (compared, others): (Vec<_>, Vec<_>) = each.iter().partition(|it| it["agrees"] == true);
    assert!(compared.iter().all(|it| it["figures"]["max_abs"] == 0.0));
    assert!(others.iter().all(|it| it["problem"].is_string()));
    assert!(sizes.contains(&json["sizes"]["worst"].as_str().expect("one of them")));
    assert_eq!(json["cases"].as_array().map(Vec::len), Some(sizes.len()));
}

#[test]
fn sizes_that_are_named_are_the_only_ones() {
    let named = [
        SENTENCE, SENTENCE, "--sizes", "1,7", "--dim", "batch=2", "--seeds", "2",
    ];
    let ran = compare(&named).expect_code(0);
    let row = |size: &str| format!("  sequence={size}        0        0");
    for line in [
        row("1"),
        row("7"),
        "worst at sequence=".to_owned(),
        "on 4 sets".to_owned(),
    ] {
        assert!(ran.stdout.contains(&line), "{line}\n{}", ran.stdout);
    }
    // Without the option, the document has no `sizes`.
    let json = compare(&[SENTENCE, SENTENCE, "--seeds", "1", "--json"])
        .expect_code(0)
        .json();
    assert!(json.get("sizes").is_none());
    for (arguments, reason) in [
        (&["--sizes", "0"][..], "invalid size `0`"),
        (&["--sizes", "1,x"], "invalid size `x`"),
        (
            &["--sizes", "--dim", "batch=1", "--dim", "sequence=4"],
            "--sizes needs a dynamic dimension",
        ),
        (&["--sizes", "--inputs-dir", "."], "cannot be used with"),
    ] {
        let all: Vec<&str> = [SENTENCE, SENTENCE]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        let ran = compare(&all).expect_code(2);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    }
}

#[test]
fn a_size_that_only_one_side_runs_is_a_difference() {
    let model = |size: &str| {
        // A size that differs from the other operand's makes one side fail.
        let add = graph_node("Add", &["x", "c"], "y", &[]);
        let count = size.parse().unwrap_or(1);
        onnx_model(&[
            &add,
            &initializer(
                "c",
                "float32",
                &[count],
                &vec![0; 4 * usize::try_from(count).expect("small")],
            ),
            &graph_value(11, "x", "float32", &["n"]),
            &graph_value(12, "y", "float32", &["n"]),
        ])
    };
    let tree = Tree::new()
        .file("a.onnx", model("1"))
        .file("b.onnx", model("3"));
    let ran = pkgtool([
        "compare", "--engine", "tract", "a.onnx", "b.onnx", "--sizes", "3,4",
    ])
    .within(tree.root())
    .run()
    .expect_code(1);
    assert!(
        ran.stdout.contains("n=4, seed 0: A runs, B does not"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("worst at n=4"), "{}", ran.stdout);
    assert!(ran.stdout.contains("  n=4"), "{}", ran.stdout);
}
