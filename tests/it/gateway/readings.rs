//! Tests of programs for devices that this machine lacks. Their services are active, describe how
//! they run, and round numbers as configured.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::examples;
use crate::support::gateway::{Gateway, Setup};
use crate::support::run::pkgtool;
use crate::support::tree::{Tree, config};

const PREDICT: &str = "/api/mlpgateway/account/local/model/glimpse/predict-with-config";

/// Returns the description of how a provider's programs run here.
fn reading(gateway: &Gateway, provider: &str) -> Value {
    let path = format!("/api/mlpcore/providers/{provider}/models/glimpse");
    let model = gateway.get(&path).expect(200).json();
    assert_eq!(model["isActive"], true, "{provider}");
    let constants = model["parameters"]["constants"].as_array();
    let mut constants = constants.expect("constants").iter();
    let found = constants.find(|constant| constant["name"] == "reading");
    found.map_or(Value::Null, |constant| constant["value"].clone())
}

/// Returns the answer to a fixed picture, by the variant of a backend.
fn answer(gateway: &Gateway, backend: &str) -> Vec<f64> {
    let pixels = 3 * 32 * 32;
    let values: Vec<f64> = (0..pixels).map(|at| f64::from(at % 17) / 16.0).collect();
    let input = json!({ "data": values, "shape": [1, 3, 32, 32] });
    let config = json!({ "backend": backend });
    let body = json!({ "data": { "inputs": [input] }, "config": config });
    let answer = gateway.post(PREDICT, body.to_string()).expect(200).json();
    let values = answer["outputs"][0]["data"].as_array().expect("values");
    values
        .iter()
        .map(|value| value.as_f64().expect("a number"))
        .collect()
}

/// Returns the largest difference, relative to the largest number.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let most = a.iter().fold(0.0, |most, a| f64::max(most, a.abs()));
    let pairs = a.iter().zip(b);
    pairs.fold(0.0, |difference, (a, b)| {
        f64::max(difference, (a - b).abs())
    }) / most
}

#[test]
fn what_is_read_here_says_so_and_rounds_as_it_is_told() {
    let wide = Setup::new().packages(examples()).start();
    let half = Setup::new()
        .packages(examples())
        .settings("[services.glimpse]\nrounding = \"half\"")
        .start();
    for gateway in [&wide, &half] {
        for provider in ["coreml", "mlx", "vulkan"] {
            let told = reading(gateway, provider);
            let told = told.as_str().unwrap_or_default();
            // Before the first run, Apple systems may still use a native engine.
            let is_told = told.starts_with("portable reading of ");
            assert_eq!(
                is_told,
                !cfg!(target_vendor = "apple"),
                "{provider}: {told}"
            );
        }
        for provider in ["xnnpack", "qnn"] {
            assert_eq!(reading(gateway, provider), Value::Null, "{provider}");
        }
    }
    // The loop checks that state kept from a first answer does not affect rounding.
    for _ in 0..3 {
        let exact = answer(&wide, "xnnpack");
        let (read, rounded) = (answer(&wide, "coreml"), answer(&half, "coreml"));
        assert!(distance(&exact, &read) < 1e-3, "{exact:?} {read:?}");
        assert!(distance(&read, &rounded) > 0.0, "{read:?}");
        assert!(distance(&read, &rounded) < 1e-2, "{read:?} {rounded:?}");
        // A float32 program has nothing to round.
        assert_eq!(answer(&wide, "vulkan"), answer(&half, "vulkan"));
    }
    assert!(
        reading(&wide, "coreml")
            .as_str()
            .is_some_and(|told| told.contains("Core ML"))
    );
}

/// Unsupported content of a delegate's payload is detected before any program starts.
#[test]
fn what_cannot_be_read_is_inactive_from_the_start() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = root.join("tests/fixtures/payloads/mlx_refused_mlx_fp32.pte");
    let program = fs::read(program).expect("a program");
    let mut config = config();
    config["backend"] = json!("mlx");
    config["model"] = json!("opaque");
    config["variants"] = json!([{ "precision": "fp32", "file": "opaque_mlx_fp32.pte" }]);
    let tree = Tree::new()
        .file("opaque/mlx/opaque_mlx_fp32.pte", program)
        .json("opaque/mlx/config.json", &config);
    let ran = pkgtool(["inspect", "opaque/mlx/opaque_mlx_fp32.pte", "--json"]);
    let said = ran.within(tree.root()).run().expect_code(0).json();
    let forward = &said["methods"]["forward"];
    assert_eq!(forward["portable"], false, "{forward}");
    let missing = forward["missing"].as_array().expect("names");
    assert!(missing.contains(&json!("MetalKernel")), "{missing:?}");
    if cfg!(target_vendor = "apple") {
        // A native engine may run it there.
        return;
    }
    let gateway = Setup::new().packages(tree.root()).start();
    let path = "/api/mlpgateway/account/local/model/opaque";
    assert_eq!(gateway.get(path).expect(200).json()["isActive"], false);
    for _ in 0..3 {
        let body = json!({ "inputs": [{ "data": [[0, 0, 0], [0, 0, 0]] }] });
        let reply = gateway.post(&format!("{path}/predict"), body.to_string());
        assert!(reply.text().contains("MetalKernel"), "{}", reply.text());
        reply.expect_error(400, "NO_ACTIVE_INSTANCES");
    }
}

#[test]
fn another_rounding_is_no_setting() {
    let tree = Tree::new().file("gateway.toml", "[defaults]\nrounding = \"nearest\"\n");
    let config = tree.path("gateway.toml");
    let ran = pkgtool(
        ["serve", "--print-config", "--config"]
            .map(OsStr::new)
            .iter()
            .chain([&config.as_os_str()]),
    );
    let ran = ran.run().expect_code(2);
    assert!(
        ran.stderr.contains("nearest") && ran.stderr.contains("half"),
        "{}",
        ran.stderr
    );
}
