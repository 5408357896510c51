//! Tests of the gateway (the HTTP server of `pkgtool serve`) through its HTTP API.

mod access;
pub(crate) mod adapters;
mod attach;
mod bodies;
mod browser;
#[cfg(feature = "ort")]
mod byte_sums;
mod chats;
mod cluster;
mod connections;
mod console;
mod contract;
mod core_ml;
mod cut;
mod failing;
mod fairness;
mod hostile;
mod limits;
mod logs;
mod metrics;
mod objects;
mod openapi;
mod pictures;
mod predict;
mod proxies;
mod published;
mod quotas;
mod readiness;
mod readings;
mod records;
mod registry;
mod reload;
mod rude;
mod seeing;
mod stopping;
mod streams;
mod tasks;
mod texts;
mod tls;
mod training;
mod unread;
mod visible;
mod webhooks;
mod workers;

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, Setup};
use crate::support::onnx;
use crate::support::tree::Tree;

/// Accepted spellings of the path prefix.
const PREFIXES: [&str; 3] = ["/api/mlpgateway", "/api/mlpgate", "/api/mlpcore"];

/// Returns the directory of the example packages.
fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("packages-examples")
}

/// Adds a package of one ONNX model with an input `x` and an output `y`, for `xnnpack`.
pub(crate) fn package(tree: Tree, name: &str, operator: &str) -> Tree {
    let model = onnx::unary(operator, "float32", Some(&[3]));
    let tensor = json!({"shape": [3], "dtype": "float32"});
    let methods = json!({"forward": {"inputs": [tensor], "outputs": [tensor]}});
    of_model(tree, name, model, &methods)
}

/// Adds a package of an ONNX model, for `xnnpack`.
pub(crate) fn of_model(tree: Tree, name: &str, model: Vec<u8>, methods: &Value) -> Tree {
    let file = format!("{name}_xnnpack_fp32.onnx");
    let config = json!({
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": name,
        "family": name,
        "capabilities": ["classification"],
        "backend": "xnnpack",
        "license": "mit",
        "variants": [{
            "precision": "fp32",
            "file": file,
            "size_bytes": model.len(),
            "methods": methods
        }]
    });
    tree.json(&format!("{name}/xnnpack/config.json"), &config)
        .file(&format!("{name}/xnnpack/{file}"), model)
}

/// Starts a server with the services `negate` and `relu`.
pub(crate) fn with_models(setup: Setup) -> (Gateway, Tree) {
    let tree = package(package(Tree::new(), "negate", "Neg"), "relu", "Relu");
    (setup.packages(tree.root()).start(), tree)
}

/// Returns the body of a request with one input of three elements.
pub(crate) fn three(values: [f32; 3]) -> String {
    json!({"inputs": [{"data": values}]}).to_string()
}

/// Returns the elements of the first output.
#[track_caller]
pub(crate) fn first_output(body: &Value) -> Vec<f64> {
    let data = body["outputs"][0]["data"].as_array();
    let data = data.unwrap_or_else(|| panic!("no output: {body}"));
    data.iter()
        .map(|value| value.as_f64().expect("a number"))
        .collect()
}

/// Runs tests a second time, with a variable, except those whose names contain a text of `skipped`.
#[track_caller]
fn pass_again(variable: &str, tests: &[&str], skipped: &[&str], least: usize) {
    let program = std::env::current_exe().expect("these tests");
    let ran = Command::new(program)
        .args(tests)
        .args(skipped.iter().flat_map(|test| ["--skip", test]))
        .args(["--test-threads", "2"])
        .env(variable, "1")
        .output()
        .expect("they run");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    let passed = said
        .lines()
        .filter(|line| line.starts_with("test ") && line.ends_with("... ok"));
    assert!(passed.count() >= least, "{said}");
}
