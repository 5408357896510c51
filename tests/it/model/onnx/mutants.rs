//! Broken models of `tests/mutants`: what ONNX Runtime refuses for a reason that a header tells, the reader refuses,
//! and nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use tempfile::TempDir;

use super::inspect;
use crate::support::environment::{Piece, say};

/// What CI runs.
const SEED: &str = "1";

/// Why ONNX Runtime refuses what the reader has no reason to refuse; parts of its messages.
const BEYOND: [&str; 11] = [
    // What follows from shapes, also inside graphs of attributes.
    "ShapeInferenceError",
    "Invalid attribute perm",
    // Types of what functions of the model return.
    "of output arg (y) of node (Relu_y)",
    "input parameter (f) of operator (Relu)",
    // Operators that an application may register, and kernels that a build may lack.
    "is not a registered function/op",
    "Could not find an implementation",
    "Exception during initialization",
    // Versions that later releases of ONNX Runtime know.
    "for domain ai.onnx is till opset 26",
    "for domain ai.onnx.training is till opset",
    "max supported IR version: 13",
    // The longer name of ONNX's own domain, inside subgraphs alone.
    "No opset import for domain 'ai.onnx'",
];

/// A broken model, and what ONNX Runtime says to it.
#[derive(Deserialize)]
struct Verdict {
    file: String,
    model: String,
    mutation: String,
    refusal: Option<String>,
}

#[test]
fn the_reader_refuses_what_onnx_runtime_refuses() {
    if Piece::Ort.or_skip("broken ONNX models").is_none() {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutants/mutate_onnx.py");
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
        "broken ONNX models: {refused} refused by both, {accepted} accepted by both, {beyond} beyond the header"
    ));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(refused > 930 && accepted > 270, "{refused}, {accepted}");
}
