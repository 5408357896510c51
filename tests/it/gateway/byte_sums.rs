//! Tests of services with quantised models. Their descriptions report how sums of 8-bit products
//! are computed, and their settings pass options on to ONNX Runtime.

use serde_json::{Value, json};

use crate::support::engines;
use crate::support::gateway::{Gateway, Setup};
use crate::support::graph::{FLOAT, Graph, INT8, Size};
use crate::support::tree::Tree;

/// Returns a package that computes `y = x * w` in bytes between conversions: 64 times 255 times 127
/// for an `x` of 255.
fn package() -> Tree {
    let model = Graph::default()
        .input("x", FLOAT, &[Size::Of(1), Size::Of(64)])
        .output("y", FLOAT)
        .number("one", 1.0)
        .byte("zero", 0)
        .bytes_of("z", INT8, &[], &[0])
        .bytes_of("w", INT8, &[64, 4], &[127; 256])
        .node("QuantizeLinear", &["x", "one", "zero"], "q", &[])
        .node("DequantizeLinear", &["q", "one", "zero"], "a", &[])
        .node("DequantizeLinear", &["w", "one", "z"], "b", &[])
        .node("MatMul", &["a", "b"], "y", &[])
        .bytes();
    let tensor = |shape: [i64; 2]| json!({"shape": shape, "dtype": "float32"});
    let config = json!({
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": "sums",
        "family": "sums",
        "capabilities": ["classification"],
        "backend": "xnnpack",
        "license": "mit",
        "variants": [{
            "precision": "int8",
            "file": "sums_xnnpack_int8.onnx",
            "size_bytes": model.len(),
            "methods": {"forward": {"inputs": [tensor([1, 64])], "outputs": [tensor([1, 4])]}}
        }]
    });
    Tree::new()
        .json("sums/xnnpack/config.json", &config)
        .file("sums/xnnpack/sums_xnnpack_int8.onnx", model)
}

/// Returns the byte-sum mode from the model's description.
fn byte_sums(gateway: &Gateway) -> Value {
    let model = gateway.get("/api/mlpcore/providers/xnnpack/models/sums");
    let model = model.expect(200).json();
    let constants = model["parameters"]["constants"].as_array();
    let mut constants = constants.expect("constants").iter();
    let found = constants.find(|constant| constant["name"] == "byte_sums");
    found.map_or(Value::Null, |constant| constant["value"].clone())
}

fn predict(gateway: &Gateway) -> f64 {
    let body = json!({"inputs": [{"data": [vec![255; 64]]}]}).to_string();
    let path = "/api/mlpgateway/account/local/model/sums/predict";
    let answer = gateway.post(path, body).expect(200).json();
    let first = &answer["outputs"][0]["data"];
    let first = first.get(0).and_then(|it| it.get(0).or(Some(it)));
    first.and_then(Value::as_f64).expect("a number")
}

#[test]
fn descriptions_say_how_bytes_are_summed() {
    let Some(library) = engines::ort() else {
        return;
    };
    if !pkgtool_engine::instruction_sets().contains(&"AVX2") {
        return;
    }
    let packages = package();
    let library = json!(library.display().to_string());
    let start = |more: &str| {
        Setup::new()
            .packages(packages.root())
            .variable("PKGTOOL_CPU_FEATURES", "avx2")
            .settings(&format!("ort_library = {library}\n{more}"))
            .start()
    };
    let exact = start("");
    assert_eq!(byte_sums(&exact), Value::Null, "nothing has run yet");
    for _ in 0..3 {
        let sum = predict(&exact);
        assert!((sum - 2_072_640.0).abs() < 10.0, "{sum}");
    }
    exact.until(|| byte_sums(&exact) == "unsigned-weights");
    let option = "session.x64quantprecision=0";
    let told = start(&format!("[services.sums]\nort_options = [\"{option}\"]\n"));
    predict(&told);
    told.until(|| byte_sums(&told) == "saturating");
}

#[test]
fn options_of_another_form_are_no_setting() {
    use std::ffi::OsStr;

    use crate::support::run::pkgtool;

    for (options, words) in [
        ("[\"x\"]", "KEY=VALUE"),
        ("[\"a.b=1\", \"a.b=2\"]", "ort_options"),
    ] {
        let text = format!("[defaults]\nort_options = {options}\n");
        let tree = Tree::new().file("gateway.toml", &text);
        let config = tree.path("gateway.toml");
        let arguments = ["serve", "--print-config", "--config"].map(OsStr::new);
        let ran = pkgtool(arguments.iter().chain([&config.as_os_str()]));
        let ran = ran.run().expect_code(2);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}
