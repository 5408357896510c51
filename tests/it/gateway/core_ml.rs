//! Tests of a self-contained Core ML model that is served on a machine without Core ML.

use serde_json::{Value, json};

use super::first_output;
use crate::engine::program::Arrays;
use crate::support::gateway::Setup;
use crate::support::tree::Tree;
use pkgtool_testing::coreml::copy;
use pkgtool_testing::coreml::path;

/// Adds a package around the fixture `ranged`.
fn package(tree: Tree) -> Tree {
    let config = json!({
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": "ranged",
        "family": "ranged",
        "capabilities": ["classification"],
        "backend": "coreml",
        "license": "mit",
        "variants": [{
            "precision": "fp32",
            "file": "ranged_coreml_fp32.mlpackage",
            "methods": {"forward": {
                "inputs": [{"shape": [-1, -1, 8], "dtype": "float32"}],
                "outputs": [{"shape": [-1, -1], "dtype": "float32"}],
            }},
        }],
    });
    let tree = tree.json("ranged/coreml/config.json", &config);
    let to = tree.path("ranged/coreml/ranged_coreml_fp32.mlpackage");
    copy(&path("ranged.mlpackage"), &to);
    tree
}

#[test]
fn a_folder_is_served_and_replaced_when_its_files_change() {
    let tree = package(Tree::new());
    let gateway = Setup::new().packages(tree.root()).start();
    let text = std::fs::read_to_string(path("cases.json")).expect("fixtures can be read");
    let cases: Value = serde_json::from_str(&text).expect("JSON");
    let mut arrays = Arrays::open(&path("ranged.npz"));
    for case in cases["models"]["ranged"]["forward"]
        .as_array()
        .expect("cases")
    {
        let input = arrays.tensor(&case["inputs"][0]);
        let expected = arrays.tensor(&case["outputs"][0]);
        let data: Vec<f64> = input.to_f64().collect();
        let body = json!({"inputs": [
            {"name": "x", "dtype": "float32", "shape": input.shape(), "data": data},
        ]});
        let reply = gateway
            .post("/p/local/ranged", body.to_string())
            .expect(200);
        let found = first_output(&reply.json());
        assert_eq!(found.len(), expected.to_f64().count());
        let apart = found.iter().zip(expected.to_f64());
        let apart = apart.map(|(found, expected)| (found - expected).abs());
        assert!(apart.fold(0.0, f64::max) < 1e-4);
    }
    // The server notices a change deep in the folder and does not serve a broken model.
    let weights = tree
        .path("ranged/coreml/ranged_coreml_fp32.mlpackage")
        .join("Data/com.apple.CoreML/weights/weight.bin");
    std::fs::write(weights, b"cut off").expect("a file");
    gateway.until(|| {
        gateway
            .post("/p/local/ranged", "{}")
            .text()
            .contains("NOT_FOUND")
    });
}
