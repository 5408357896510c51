//! Tests that a project's settings also apply to generated configs.

use std::fs;

use super::{SAID, init, read};
use crate::support::fixture;
use crate::support::tree::Tree;

const EXTRA: &str = "[extra-precisions]\nnon-quantized = [\"tf32\"]\n";

fn tree(settings: &str) -> Tree {
    let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    Tree::new()
        .file("pkgtool.toml", settings)
        .file("m/xnnpack/m_xnnpack_tf32.pte", program)
        .file(".git/HEAD", "")
}

fn said<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SAID.iter().copied().chain(more.iter().copied()).collect()
}

fn precision(tree: &Tree) -> String {
    let config = read(&tree.path("m/xnnpack/config.json"));
    let precision = config["variants"][0]["precision"].as_str();
    precision.expect("a text").to_owned()
}

#[test]
fn precisions_of_a_project_are_known() {
    let named = tree(EXTRA);
    let told = init(&named.path("m"), &SAID).expect_code(0).json();
    assert_eq!(precision(&named), "tf32", "{told:#}");
    let given = tree(EXTRA).file("m/xnnpack/other.pte", [0; 9]);
    let more = ["--precision", "other.pte=tf32", "--dry-run"];
    let told = init(&given.path("m"), &said(&more)).json();
    assert!(
        told["configs"]
            .to_string()
            .contains("/variants/1/precision"),
        "{told:#}"
    );
    let without = tree(EXTRA);
    init(&without.path("m"), &said(&["--no-config"])).expect_code(0);
    assert_eq!(precision(&without), "fp32");
    let elsewhere = tree("").file("other.toml", EXTRA);
    let path = elsewhere.path("other.toml");
    let more = ["--config", path.to_str().expect("a path in UTF-8")];
    init(&elsewhere.path("m"), &said(&more)).expect_code(0);
    assert_eq!(precision(&elsewhere), "tf32");
}

#[test]
fn what_a_project_leaves_out_gets_no_config() {
    let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    let tree = tree("exclude = [\"m/old/\"]\n[extra-precisions]\nnon-quantized = [\"tf32\"]\n")
        .file("m/old/xnnpack/m_xnnpack_fp32.pte", &program)
        .file("m/built/xnnpack/m_xnnpack_fp32.pte", &program)
        .file(".gitignore", "built/\n");
    let told = init(&tree.path("m"), &SAID).expect_code(0).json();
    let configs = told["configs"].as_array().expect("a list");
    assert_eq!(configs.len(), 1, "{told:#}");
    assert!(tree.path("m/xnnpack/config.json").exists());
    // A directory named on the command line is included.
    init(&tree.path("m/old"), &SAID).expect_code(0);
    assert!(tree.path("m/old/xnnpack/config.json").exists());
}
