//! Standalone Core ML models, run without Core ML.
//!
//! The answers in `tests/fixtures/coreml` are those of the original networks
//! (`tests/programs/standalone.py`).

use std::fmt::Write as _;

use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_engine::{EngineError, LoadOptions, LoadRequest, Rounding, Session, engine};
use pkgtool_model as model;
use serde_json::Value;

use super::payloads::{difference, fitted};
use super::program::{Arrays, load};
use pkgtool_testing::coreml::path;
use pkgtool_testing::coreml::{Folder, MODEL, WEIGHTS};

/// Returns the maximum difference relative to the largest magnitude of the output, by the precision
/// of a model.
fn tolerance(name: &str) -> f64 {
    match name {
        "mlp_fp16" | "halves" | "counter" => 5e-3,
        _ => 1e-5,
    }
}

fn cases() -> Value {
    let text = std::fs::read_to_string(path("cases.json")).expect("fixtures can be read");
    serde_json::from_str(&text).expect("the text is JSON")
}

fn inputs(case: &Value, signature: &Signature, arrays: &mut Arrays) -> Vec<Tensor> {
    let inputs = case["inputs"].as_array().expect("inputs").iter();
    inputs
        .zip(&signature.inputs)
        .map(|(described, spec)| fitted(arrays.tensor(described), spec.dtype))
        .collect()
}

/// Runs the cases of a method in order, appends differences to the report, and returns the number
/// of cases.
fn run(name: &str, method: &str, cases: &[Value], report: &mut String) -> usize {
    let file = path(&format!("{name}.mlpackage"));
    let (mut session, signature) = load("tract", &file, method).expect("the model loads");
    let mut arrays = Arrays::open(&path(&format!("{name}.npz")));
    // State persists within a round and is reset after it.
    for round in 0..2 {
        for (number, case) in cases.iter().enumerate() {
            let inputs = inputs(case, &signature, &mut arrays);
            let answer = session.run(&inputs).expect("the run succeeds");
            let outputs = case["outputs"].as_array().expect("outputs");
            assert_eq!(answer.outputs.len(), outputs.len());
            for (found, described) in answer.outputs.iter().zip(outputs) {
                let apart = difference(found, &arrays.tensor(described));
                if !apart.as_ref().is_ok_and(|apart| *apart <= tolerance(name)) {
                    let _ = writeln!(report, "{name} {method} {number} ({round}): {apart:?}");
                }
            }
        }
        session.reset_state().expect("the state is reset");
    }
    cases.len()
}

#[test]
fn core_ml_models_answer_as_their_networks() {
    let (mut ran, mut report) = (0, String::new());
    for (name, methods) in cases()["models"].as_object().expect("models") {
        for (method, cases) in methods.as_object().expect("methods") {
            ran += run(name, method, cases.as_array().expect("cases"), &mut report);
        }
    }
    assert!(report.is_empty(), "\n{report}");
    assert!(ran >= 20, "{ran} cases");
}

fn load_rounded(name: &str, rounding: Rounding) -> (Box<dyn Session>, Signature) {
    let file = path(&format!("{name}.mlpackage"));
    let (info, _) = model::open(&file).expect("fixtures can be read");
    let signature = Signature::of(&info.methods[0], None).expect("tensors");
    let request = LoadRequest {
        model: file,
        signature: signature.clone(),
        options: LoadOptions {
            threads: Some(1),
            rounding,
            ..LoadOptions::default()
        },
    };
    let session = engine("tract").expect("an engine").load(&request);
    (session.expect("the model loads"), signature)
}

#[test]
fn declared_roundings_are_done_when_asked_for() {
    let case = &cases()["models"]["mlp_fp16"]["forward"][0];
    let mut arrays = Arrays::open(&path("mlp_fp16.npz"));
    let mut answers = Vec::new();
    for rounding in [Rounding::default(), Rounding::Half] {
        let (mut session, signature) = load_rounded("mlp_fp16", rounding);
        assert_eq!(signature.outputs[0].dtype, DType::Float16);
        let inputs = inputs(case, &signature, &mut arrays);
        let outputs = session.run(&inputs).expect("the run succeeds").outputs;
        let expected = arrays.tensor(&case["outputs"][0]);
        let apart = difference(&outputs[0], &expected).expect("the same shape");
        assert!(apart <= 5e-3, "{apart}");
        answers.push(outputs);
    }
    assert_ne!(answers[0], answers[1]);
}

/// Returns the error of loading a model.
fn refusal(file: &str) -> EngineError {
    let file = path(file);
    let (info, _) = model::open(&file).expect("fixtures can be read");
    let signature = Signature {
        method: info.methods[0].name.clone(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let request = LoadRequest {
        model: file,
        signature,
        options: LoadOptions::default(),
    };
    let loaded = engine("tract").expect("an engine").load(&request);
    loaded.err().expect("the model is rejected")
}

#[test]
fn what_is_no_program_is_refused_by_name() {
    for (file, expected) in [
        (
            "network.mlmodel",
            "kind neuralNetwork (`neuralNetwork::activation`, `neuralNetwork::innerProduct`) is not an ML Program; Core ML runs it, on Apple's systems",
        ),
        (
            "custom.mlmodel",
            "kind neuralNetwork (`neuralNetwork::custom`) is not an ML Program",
        ),
        (
            "pipeline.mlmodel",
            "kind pipeline (`pipeline::neuralNetwork`) is not an ML Program",
        ),
    ] {
        let error = refusal(file);
        assert!(matches!(error, EngineError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{file}: {error}");
    }
}

/// Loads and runs the method of a modified folder.
fn load_changed(folder: &Folder) -> Result<(), EngineError> {
    let (info, _) = model::open(&path("counter.mlpackage")).expect("fixtures can be read");
    let signature = Signature::of(&info.methods[0], None).expect("tensors");
    let request = LoadRequest {
        model: folder.root(),
        signature,
        options: LoadOptions::default(),
    };
    let loaded = engine("tract").expect("an engine").load(&request);
    let inputs =
        [Tensor::from_f64(DType::Float16, vec![1, 4], [0.0; 4]).expect("the tensor is valid")];
    loaded?.run(&inputs).map(|_| ())
}

#[test]
fn states_of_other_sizes_than_their_reads_are_told() {
    let folder = Folder::of("counter");
    load_changed(&folder).expect("the model is valid");
    // The wrapped tensor of the state among the function's inputs: rank 2, sizes 1 and 4.
    let mut bytes = folder.bytes(MODEL);
    let sizes = [0x1a, 4, 0x0a, 2, 0x08, 1, 0x1a, 4, 0x0a, 2, 0x08, 4];
    let places: Vec<usize> = (0..bytes.len() - sizes.len())
        .filter(|at| bytes[*at..].starts_with(&sizes))
        .collect();
    assert!(!places.is_empty(), "the encoded sizes must occur");
    let mut refused = 0;
    for place in places {
        let at = place + sizes.len() - 1;
        bytes[at] = 5;
        folder.write(MODEL, &bytes);
        // A changed size fails the program if it belongs to the state; other matches have no
        // effect.
        refused += usize::from(load_changed(&folder).is_err());
        bytes[at] = 4;
    }
    assert!(refused > 0, "the size of the state must matter");
}

#[test]
fn weights_that_change_after_they_were_read_are_told() {
    let folder = Folder::of("mlp_fp32");
    let (info, _) = model::open(&folder.root()).expect("the model is valid");
    let signature = Signature::of(&info.methods[0], None).expect("tensors");
    let bytes = folder.bytes(WEIGHTS);
    folder.write(WEIGHTS, &bytes[..200]);
    let request = LoadRequest {
        model: folder.root(),
        signature,
        options: LoadOptions::default(),
    };
    let loaded = engine("tract").expect("an engine").load(&request);
    let error = loaded.err().expect("weights are missing").to_string();
    assert!(error.contains("weight.bin"), "{error}");
}
