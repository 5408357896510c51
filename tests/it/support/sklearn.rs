//! Runs scikit-learn, for comparison.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs a Python script that reads `given` from standard input and writes JSON, with the
/// scikit-learn in the directory `packages`.
pub(crate) fn scikit_learn(packages: &Path, script: &str, given: &Value) -> Value {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("given.json");
    fs::write(&file, given.to_string()).expect("a file");
    let ran = Command::new("python3")
        .args(["-c", script])
        .env("PYTHONPATH", packages)
        .stdin(fs::File::open(&file).expect("it is there"))
        .output()
        .expect("python3 runs");
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&ran.stderr)))
}
