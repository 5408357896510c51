//! Tests of `pkgtool compare --all`, which compares every variant of a package with one reference
//! variant. They also cover how portable readings (delegated programs run without their device) are
//! reported and judged.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples");
const OF_CORE_ML: &str = "portable reading of a Core ML program: computed as written, without the rounding of the Neural Engine";

fn compare(directory: impl AsRef<Path>, arguments: &[&str]) -> Ran {
    let all = ["compare", "--engine", "tract", "--seeds", "2"];
    pkgtool(all.iter().chain(arguments)).within(directory).run()
}

fn all(directory: impl AsRef<Path>, arguments: &[&str]) -> Ran {
    compare(directory, &[&["--all"], arguments].concat())
}

/// Returns the rows of a document.
fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().expect("rows")
}

/// Returns `label status` of each row.
fn summary(document: &Value) -> Vec<String> {
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let rows = rows(document).iter();
    rows.map(|row| format!("{} {}", word(&row["label"]), word(&row["status"])))
        .collect()
}

/// Copies an example, so that a test may change it.
fn copied(example: &str) -> (Tree, PathBuf) {
    let tree = Tree::new();
    let to = tree.path(example);
    copy(&Path::new(EXAMPLES).join(example), &to);
    (tree, to)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("an example") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a file");
        }
    }
}

#[test]
fn every_variant_is_held_against_the_least_quantised() {
    let document = all(EXAMPLES, &["glimpse", "--json"]).expect_code(0).json();
    assert_eq!(document["agrees"], true);
    assert_eq!(document["reference"], "glimpse fp32 for xnnpack");
    assert_eq!(
        summary(&document),
        [
            "fp16 for xnnpack compared",
            "int8 for xnnpack compared",
            "fp16 for coreml compared",
            "fp32 for vulkan compared",
            "fp16 for vulkan compared",
            "int8 for qnn compared",
            "fp32 for mlx compared",
        ]
    );
    let of = |place: usize| &rows(&document)[place]["result"];
    assert_eq!(of(2)["b"]["reading"], OF_CORE_ML);
    assert_eq!(of(1)["b"]["reading"], Value::Null);
    // Two readings on the same engine have tighter tolerances than two engines.
    assert_eq!(of(0)["tolerances"]["max_rel"], 1e-2);
    assert_eq!(of(2)["tolerances"]["max_rel"], 5e-3);
    assert_eq!(of(3)["tolerances"]["max_rel"], 1e-5);
    for row in rows(&document) {
        assert!(row["worst"]["cosine"].as_f64() > Some(0.999), "{row}");
        assert_eq!(
            row["result"]["a"]["label"],
            "glimpse fp32 for xnnpack, tract (cpu)"
        );
    }
}

/// All rows share one loaded reference. Each row must equal a separate comparison, even for a
/// program that keeps state between runs.
#[test]
fn rows_are_what_two_sides_alone_are() {
    for package in ["glimpse", "pebble/0_6b"] {
        // Several variants run on the same engine: each gets a row.
        let document = all(EXAMPLES, &[package, "--engine", "tract", "--json"]);
        let document = document.expect_code(0).json();
        assert!(rows(&document).len() >= 3, "{:?}", summary(&document));
        for row in rows(&document) {
            let config = row["config"].as_str().expect("a config");
            let precision = row["precision"].as_str().expect("a precision");
            let model = row["result"]["b"]["model"].as_str().expect("a model");
            let reference = row["result"]["a"]["model"].as_str().expect("a model");
            assert!(Path::new(EXAMPLES).join(config).exists(), "{config}");
            let alone = compare(EXAMPLES, &[reference, model, "--json"]).json();
            assert_eq!(
                alone["outputs"], row["result"]["outputs"],
                "{package} {precision}"
            );
        }
    }
}

#[test]
fn the_reference_is_the_one_that_is_named() {
    let reference = |name: &str| {
        let document = all(EXAMPLES, &["glimpse", "--reference", name, "--json"]);
        document.expect_code(0).json()["reference"].clone()
    };
    assert_eq!(reference("vulkan/fp16"), "glimpse fp16 for vulkan");
    assert_eq!(reference("coreml"), "glimpse fp16 for coreml");
    // Of several matching variants, the least quantised one is the reference.
    assert_eq!(reference("vulkan"), "glimpse fp32 for vulkan");
    for name in ["int4", "coreml/int8", "nosuch/fp32"] {
        let ran = all(EXAMPLES, &["glimpse", "--reference", name]).expect_code(2);
        let told = format!("--reference {name}: no such variant; available: fp32 for xnnpack, ");
        assert!(ran.stderr.contains(&told), "{}", ran.stderr);
    }
}

#[test]
fn what_differs_is_found_in_its_config_and_what_cannot_be_read_is_a_failure() {
    let (tree, package) = copied("glimpse");
    fs::write(package.join("mlx/glimpse_mlx_fp32.pte"), b"no program").expect("written");
    let report = tree.path("report.txt");
    let table = tree.path("table.md");
    let to = format!("--report=github={}", report.display());
    let markdown = format!("--markdown={}", table.display());
    let arguments = [
        "glimpse",
        "--max-rel",
        "1e-3",
        "--root",
        ".",
        &to,
        &markdown,
    ];
    let ran = all(tree.root(), &arguments).expect_code(1);
    assert!(
        ran.stdout.ends_with("4 agree, 2 differ, 1 failed\n"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout
            .contains("2: seed 0: output `output_0`: max rel is"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("glimpse_mlx_fp32.pte"),
        "{}",
        ran.stdout
    );
    let found = fs::read_to_string(report).expect("a report");
    let at = |config: &str, code: &str| {
        let mut lines = found.lines();
        lines.any(|line| line.contains(&format!("file={config},")) && line.contains(code))
    };
    assert!(at("glimpse/xnnpack/config.json", "CMP001"), "{found}");
    assert!(at("glimpse/qnn/config.json", "CMP001"), "{found}");
    assert!(at("glimpse/mlx/config.json", "CMP002"), "{found}");
    assert!(!at("glimpse/coreml/config.json", "CMP"), "{found}");
    let table = fs::read_to_string(table).expect("a table");
    assert!(
        table.starts_with("Compared with glimpse fp32 for xnnpack, tract (cpu):\n\n| # |"),
        "{table}"
    );
    assert!(
        table.contains("| int8 for xnnpack | forward | tract (cpu) | 2 |"),
        "{table}"
    );
    assert!(table.contains("| failed |"), "{table}");
    assert_eq!(
        table.lines().filter(|line| line.starts_with("| ")).count(),
        2 + 7,
        "{table}"
    );
}

#[test]
fn what_was_not_compared_is_told_and_counts_where_that_is_asked() {
    // One variant has several components, the other one program with several methods.
    let ran = all(EXAMPLES, &["scribe-tiny-en"]).expect_code(2);
    assert!(
        ran.stdout.ends_with("0 agree, 4 not compared\n"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("the variant has no `decode`"),
        "{}",
        ran.stdout
    );
    all(EXAMPLES, &["scribe-tiny-en", "--require-all"]).expect_code(1);
    for (arguments, told) in [
        (&["glimpse", "hush-sentence"][..], "expected one path"),
        (
            &["glimpse/coreml/glimpse_coreml_fp16.pte"],
            "is not a package",
        ),
        (&["glimpse/coreml"], "compare needs two sides"),
        (
            &["glimpse", "--precision", "int5"],
            "compare needs two sides",
        ),
        (
            &["glimpse", "--method", "nosuch"],
            "no variant can run as the reference",
        ),
        (&["pebble"], "contains several packages"),
    ] {
        let ran = all(EXAMPLES, arguments).expect_code(2);
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
    // Only the selected backends are compared.
    let document = all(EXAMPLES, &["glimpse", "--backend", "coreml,mlx", "--json"]);
    let document = document.expect_code(0).json();
    assert_eq!(document["reference"], "glimpse fp32 for mlx");
    assert_eq!(summary(&document), ["fp16 for coreml compared"]);
}

#[test]
fn two_backends_are_compared_as_two_precisions_are() {
    let ran = compare(
        EXAMPLES,
        &["glimpse", "--backend", "coreml,xnnpack", "--json"],
    );
    let document = ran.expect_code(0).json();
    assert_eq!(document["a"]["backend"], "coreml");
    assert_eq!(document["b"]["backend"], "xnnpack");
    assert_eq!(document["a"]["reading"], OF_CORE_ML);
    let ran = compare(EXAMPLES, &["glimpse", "--backend", "coreml,xnnpack,mlx"]).expect_code(2);
    assert!(
        ran.stderr.contains("--all compares more than two"),
        "{}",
        ran.stderr
    );
    let bench = [
        "bench",
        "glimpse",
        "--backend",
        "coreml,mlx,vulkan",
        "--runs",
        "2",
        "--rounds",
    ];
    let ran = pkgtool(bench.iter().chain(&["1", "--json"]))
        .within(EXAMPLES)
        .run();
    let series = ran.expect_code(0).json();
    let backends = series["series"].as_array().expect("series").iter();
    let backends: Vec<&Value> = backends.map(|one| &one["backend"]).collect();
    assert_eq!(backends, ["coreml", "mlx", "vulkan"]);
}

/// Core ML's exporter computes in float16 by default, whatever precision the package declares.
#[test]
fn a_program_is_judged_by_what_it_computes_in() {
    let (tree, package) = copied("glimpse");
    let path = package.join("coreml/config.json");
    let config = fs::read_to_string(&path).expect("a config");
    let claimed = config.replace("\"precision\": \"fp16\"", "\"precision\": \"fp32\"");
    assert_ne!(claimed, config);
    fs::write(&path, claimed).expect("written");
    let ran = compare(tree.root(), &["glimpse", "--backend", "xnnpack,coreml"]).expect_code(0);
    let told = "judged as fp16, as B is: its delegate for Core ML computes in float16";
    assert!(ran.stdout.contains(told), "{}", ran.stdout);
    assert!(ran.stdout.contains("(max rel 0.005)"), "{}", ran.stdout);
}

#[test]
fn answers_of_a_reading_say_so() {
    let run = |backend: &str, json: bool| {
        let mut arguments = vec!["run", "glimpse", "--backend", backend, "--engine", "tract"];
        arguments.extend(["--input", "random:1", "--once"]);
        arguments.extend(json.then_some("--json"));
        pkgtool(arguments).within(EXAMPLES).run().expect_code(0)
    };
    assert_eq!(run("coreml", true).json()["reading"], OF_CORE_ML);
    assert_eq!(run("xnnpack", true).json()["reading"], Value::Null);
    assert!(run("coreml", false).stdout.contains(OF_CORE_ML));
    assert!(
        run("mlx", false)
            .stdout
            .contains("portable reading of an MLX program: ")
    );
    assert!(!run("xnnpack", false).stdout.contains("portable reading"));
}
