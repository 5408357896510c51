//! Packages with formats that have no methods, with TensorFlow Lite files, and evidence in unusual
//! packages.

use std::fs;

use serde_json::{Value, json};

use crate::support::fixture;
use crate::support::run::{Found, pkgtool, validate};
use crate::support::tree::Tree;

/// A package with one variant, whose file is a copy of the fixture `from`.
fn package(precision: &str, file: &str, from: &str, methods: Option<Value>) -> Tree {
    let mut variant = json!({ "precision": precision, "file": file });
    if let Some(methods) = methods {
        variant["methods"] = methods;
    }
    let config = json!({
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": "tiny", "family": "tiny", "capabilities": ["classification"],
        "backend": "xnnpack", "license": "MIT", "variants": [variant],
    });
    let content = fs::read(fixture(from)).expect("a fixture");
    Tree::new()
        .json("xnnpack/config.json", &config)
        .file(&format!("xnnpack/{file}"), content)
}

fn found(tree: &Tree) -> Vec<Found> {
    validate(tree.root(), ".").findings()
}

fn codes(tree: &Tree) -> Vec<String> {
    found(tree).into_iter().map(|found| found.code).collect()
}

fn tensor(shape: &Value, dtype: &str) -> Value {
    json!({ "shape": shape, "dtype": dtype })
}

fn dense(dtype: &str, method: &str) -> Value {
    json!({ method: {
        "inputs": [tensor(&json!([-1, 8]), dtype)], "outputs": [tensor(&json!([-1, 4]), dtype)],
    } })
}

#[test]
fn formats_without_methods_ask_for_none_and_contradict_none() {
    for (precision, file, from) in [
        ("int8", "tiny_xnnpack_int8.gguf", "formats/small.gguf"),
        (
            "fp32",
            "tiny_xnnpack_fp32.safetensors",
            "formats/small.safetensors",
        ),
    ] {
        assert_eq!(
            codes(&package(precision, file, from, None)),
            [""; 0],
            "{file}"
        );
        let declared = Some(dense("float32", "forward"));
        assert_eq!(
            codes(&package(precision, file, from, declared)),
            [""; 0],
            "{file}"
        );
    }
}

#[test]
fn types_of_gguf_are_evidence() {
    let tree = package("fp32", "tiny_xnnpack_fp32.gguf", "formats/small.gguf", None);
    let found = found(&tree);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].code, "PKG050");
    let said = "holds weights of 8-bit (55 %), 4-bit (27 %), float16 (13 %), float32 (3 %)";
    assert!(found[0].message.contains(said), "{found:?}");
}

#[test]
fn broken_files_of_every_format_are_errors_with_a_place() {
    for (name, said) in [
        ("tiny_xnnpack_fp32.gguf", "magic at offset 0"),
        ("tiny_xnnpack_fp32.safetensors", "header length at offset 0"),
        ("tiny_xnnpack_fp32.tflite", "identifier at offset 4"),
    ] {
        let tree = package("fp32", name, "formats/make.py", None);
        let found = found(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].code.as_str(), found[0].severity.as_str()),
            ("PKG027", "error")
        );
        assert!(found[0].message.contains(said), "{found:?}");
    }
}

#[test]
fn signatures_of_tflite_are_held_against_the_config() {
    let file = "tiny_xnnpack_fp32.tflite";
    let float = "formats/dense_float.tflite";
    for name in ["forward", "serving_default"] {
        let tree = package("fp32", file, float, Some(dense("float32", name)));
        assert_eq!(
            codes(&tree),
            [""; 0],
            "{name}: the only method matches any name"
        );
    }
    assert_eq!(codes(&package("fp32", file, float, None)), ["PKG013"]);
    let int8 = "formats/dense_int8.tflite";
    let tree = package("fp32", file, int8, Some(dense("float32", "forward")));
    assert_eq!(codes(&tree), ["PKG032", "PKG032"]);
    let fixed = json!({ "forward": {
        "inputs": [tensor(&json!([1, 8]), "float32")], "outputs": [tensor(&json!([-1, 4]), "float32")],
    } });
    assert_eq!(
        codes(&package("fp32", file, float, Some(fixed))),
        ["PKG035"]
    );
    let signatures = "formats/signatures.tflite";
    let tree = package("fp32", file, signatures, Some(dense("float32", "encode")));
    assert_eq!(codes(&tree), ["PKG030"], "`lookup` is not declared");
}

#[test]
fn models_named_on_the_command_line_are_sent_to_their_config() {
    let tree = package("fp32", "tiny_xnnpack_fp32.gguf", "formats/small.gguf", None);
    let ran = pkgtool(["validate", "xnnpack/tiny_xnnpack_fp32.gguf"])
        .within(tree.root())
        .run()
        .expect_code(2);
    assert!(
        ran.stderr.contains("a model file, not a config"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_broken_component_silences_evidence() {
    let good = fs::read(fixture(
        "rules/PKG050/bad/int8/xnnpack/tiny_xnnpack_int8.onnx",
    ))
    .expect("the file exists");
    let config = |components: Value| {
        json!({
            "$schema": "https://pkgtool.dev/schemas/config.schema.json",
            "model": "tiny", "family": "tiny", "capabilities": ["classification"],
            "backend": "xnnpack", "license": "MIT",
            "variants": [{ "precision": "int8", "file": null, "components": components }],
        })
    };
    let (encoder, decoder) = (
        "tiny_encoder_xnnpack_int8.onnx",
        "tiny_decoder_xnnpack_int8.onnx",
    );
    let both = config(json!({ "encoder": encoder, "decoder": decoder }));
    let tree = Tree::new()
        .json("xnnpack/config.json", &both)
        .file(&format!("xnnpack/{encoder}"), &good)
        .file(&format!("xnnpack/{decoder}"), &good[..good.len() - 9]);
    let of_both = codes(&tree);
    assert!(!of_both.contains(&"PKG050".to_owned()), "{of_both:?}");
    // With the other file readable as well, both together contain only floats.
    let mut other = good.clone();
    other.extend([0x72, 0]);
    let tree = tree.file(&format!("xnnpack/{decoder}"), &other);
    let told = found(&tree);
    let told: Vec<&Found> = told.iter().filter(|found| found.code == "PKG050").collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0]
            .message
            .contains("together hold float32 weights only"),
        "{told:?}"
    );
    assert_eq!(told[0].pointer, "/variants/0/precision");
}

#[test]
fn evidence_is_not_looked_for_without_models() {
    let ran = pkgtool(["validate", "--no-model", "--format", "json", "PKG050/bad"])
        .within(fixture("rules"))
        .run();
    let codes = ran.codes();
    assert!(!codes.iter().any(|code| code == "PKG050"), "{codes:?}");
}
