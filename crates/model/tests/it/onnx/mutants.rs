//! Compares the ONNX reader with ONNX Runtime on the broken models of `tests/mutants`.
//!
//! The reader must reject a model exactly when ONNX Runtime rejects it for a reason that is visible
//! in the model's header.

use std::fs;
use std::process::Command;

use serde::Deserialize;
use tempfile::TempDir;

use super::inspect;
use pkgtool_testing::environment::{EnvironmentPiece, say};

/// The random seed that CI uses.
const SEED: &str = "1";

/// Parts of the messages with which ONNX Runtime rejects models that the reader rightly accepts.
const BEYOND: [&str; 11] = [
    // Errors of shape inference, also inside graph attributes.
    "ShapeInferenceError",
    "Invalid attribute perm",
    // Result types of the model's own functions.
    "of output arg (y) of node (Relu_y)",
    "input parameter (f) of operator (Relu)",
    // Operators that an application may register, and kernels that are missing in some builds.
    "is not a registered function/op",
    "Could not find an implementation",
    "Exception during initialization",
    // Versions that only later releases of ONNX Runtime support.
    "for domain ai.onnx is till opset 26",
    "for domain ai.onnx.training is till opset",
    "max supported IR version: 13",
    // The long name of ONNX's default domain, only inside subgraphs.
    "No opset import for domain 'ai.onnx'",
];

/// A broken model and ONNX Runtime's verdict on it.
#[derive(Deserialize)]
struct Verdict {
    file: String,
    model: String,
    mutation: String,
    refusal: Option<String>,
}

#[test]
fn the_reader_refuses_what_onnx_runtime_refuses() {
    if EnvironmentPiece::Ort
        .or_skip("broken ONNX models")
        .is_none()
    {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let script = pkgtool_testing::files::root().join("tests/mutants/mutate_onnx.py");
    let seed = std::env::var("PKGTOOL_TEST_SEED").unwrap_or_else(|_| SEED.to_owned());
    let made = Command::new("python3")
        .arg(script)
        .args(["--seed", &seed])
        .arg(directory.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    assert!(made.status.success(), "{made:?}");
    let verdicts = fs::read(directory.path().join("verdicts.json")).expect("verdicts");
    let verdicts: Vec<Verdict> = serde_json::from_slice(&verdicts).expect("a list");
    let mut problems = Vec::new();
    let (mut refused, mut accepted, mut beyond) = (0, 0, 0);
    for verdict in &verdicts {
        let bytes = fs::read(directory.path().join(&verdict.file)).expect("a file");
        let ours = inspect(&bytes).err().map(|error| error.to_string());
        match (&verdict.refusal, &ours) {
            (Some(_), Some(_)) => refused += 1,
            (None, None) => accepted += 1,
            (Some(theirs), None) if BEYOND.iter().any(|part| theirs.contains(part)) => beyond += 1,
            _ => problems.push(format!(
                "{} {}: {}\n    ONNX Runtime: {:?}\n    here: {ours:?}",
                verdict.model, verdict.mutation, verdict.file, verdict.refusal
            )),
        }
    }
    say(&format!(
        "broken ONNX models: {refused} rejected by both, {accepted} accepted by both, {beyond} beyond the header"
    ));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(refused > 930 && accepted > 270, "{refused}, {accepted}");
}
