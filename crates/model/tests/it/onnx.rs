//! Tests of the ONNX reader: fixtures of `tests/fixtures/models/onnx` (see `make.py`), hand-broken
//! files, large files and random ones.

mod broken;
mod fixtures;
mod large;
mod mutants;
mod random;
mod schemas;
mod types;

use std::fs;
use std::path::PathBuf;

use pkgtool_model::{FORMATS, ModelError, ModelFormat, ModelInfo};

/// All fixtures.
const FIXTURES: [&str; 8] = [
    "mlp",
    "dynamic",
    "initializer_inputs",
    "external",
    "subgraphs",
    "dtypes",
    "kinds",
    "shapes",
];

fn path(name: &str) -> PathBuf {
    pkgtool_testing::files::root()
        .join("tests/fixtures/models/onnx")
        .join(name)
        .with_extension("onnx")
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(path(name)).expect("a fixture")
}

fn format() -> &'static dyn ModelFormat {
    let found = FORMATS.iter().find(|format| format.name() == "onnx");
    *found.expect("a format")
}

fn inspect(bytes: &[u8]) -> Result<ModelInfo, ModelError> {
    format().inspect(&bytes.to_vec())
}
