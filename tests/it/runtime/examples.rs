//! Tests that every ONNX example runs on every target of this machine, and that the engines agree
//! on the outputs.

use std::path::{Path, PathBuf};

use pkgtool_base::package::Backend;
use serde_json::Value;

use crate::support::environment::EnvironmentPiece;
use crate::support::run::{Ran, pkgtool};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples")
}

/// Returns all ONNX files below the examples, as relative paths.
fn models() -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![examples()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("examples can be listed") {
            let path = entry.expect("examples can be listed").path();
            if path.is_dir() {
                directories.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "onnx")
            {
                let below = path.strip_prefix(examples()).expect("it is below");
                found.push(below.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    found.sort();
    assert!(found.len() >= 9, "the walk finds the examples");
    found
}

/// Runs the tool with the libraries of the test environment.
fn tool(arguments: &[&str], library: Option<&Path>) -> Ran {
    let mut all: Vec<&str> = arguments.to_vec();
    let library = library.map(|path| path.to_str().expect("UTF-8").to_owned());
    if let Some(library) = &library {
        all.extend(["--ort-lib", library]);
    }
    pkgtool(all).within(examples()).run()
}

fn run(model: &str, more: &[&str], library: Option<&Path>) -> Value {
    let arguments = [
        &[
            "run",
            model,
            "--input",
            "random:1",
            "--check-finite",
            "--json",
        ],
        more,
    ];
    tool(&arguments.concat(), library).expect_code(0).json()
}

#[test]
fn every_example_runs_on_tract() {
    for model in models() {
        let answer = run(&model, &["--engine", "tract"], None);
        assert_eq!(answer["engine"], "tract");
    }
}

#[test]
fn every_example_runs_on_the_cpu_and_engines_agree() {
    let Some(library) = EnvironmentPiece::Ort.or_skip("examples on ONNX Runtime") else {
        return;
    };
    for model in models() {
        let answer = run(&model, &["--engine", "ort"], Some(&library));
        assert_eq!(answer["provider"], "cpu", "{model}");
        assert_eq!(answer["placement"][0]["node_share"], 1.0, "{model}");
        let limit = if model.contains("fp16") {
            // Four steps of float16.
            "4e-3"
        } else if model.ends_with("int8.onnx") && saturates() {
            // Two steps of the output's grid.
            "2e-2"
        } else {
            "1e-4"
        };
        let engines = [
            "compare",
            &model,
            "--engine",
            "ort,tract",
            "--max-rel",
            limit,
        ];
        tool(&engines, Some(&library)).expect_code(0);
    }
}

/// Returns true if ONNX Runtime adds products of bytes in 16 bits, where they may overflow. It does
/// so on x86-64 without instructions for 32-bit sums; its option `session.x64quantprecision` gives
/// the right numbers there, too.
fn saturates() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        !is_x86_feature_detected!("avx512vnni") && !is_x86_feature_detected!("avxvnni")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Examples run wholly on a provider, or partly with the rest on the CPU; the report shows which.
#[test]
fn every_example_runs_on_the_provider_of_qnn_and_vulkan() {
    let targets = [
        (
            Backend::Qnn,
            "qnn",
            EnvironmentPiece::Qnn,
            EnvironmentPiece::Ort,
        ),
        (
            Backend::Vulkan,
            "webgpu",
            EnvironmentPiece::WebGpu,
            EnvironmentPiece::WebGpu,
        ),
    ];
    for (backend, provider, piece, library) in targets {
        let test = format!("examples on {provider}");
        if piece.or_skip(&test).is_none() {
            continue;
        }
        let library = library.path();
        let mut on_target = 0;
        for model in models() {
            let answer = run(&model, &["--backend", backend.name()], library.as_deref());
            let shares = answer["placement"].as_array().expect("it is observed");
            let nodes: f64 = shares
                .iter()
                .filter_map(|share| share["node_share"].as_f64())
                .sum();
            assert!((nodes - 1.0).abs() < 1e-9, "{model}: {answer}");
            if answer["fallback"] == false {
                assert_eq!(answer["provider"], provider, "{model}");
                on_target += 1;
            }
        }
        if on_target == 0 {
            piece.skip(&test, "its provider takes no example");
        }
    }
}
