//! Helpers of the tests of all crates: the test environment, fixtures, packages in temporary
//! directories, and bytes of model files.
//!
//! Nothing here starts the program; `tests/it/support` does.

#![expect(
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    clippy::new_without_default,
    reason = "tests call these functions, and fail where they panic"
)]

pub mod coreml;
pub mod environment;
pub mod files;
pub mod mutate;
pub mod numbers;
pub mod onnx;
pub mod program;
pub mod tree;

use std::path::PathBuf;

/// Returns a path below `tests/fixtures`.
pub fn fixture(path: &str) -> PathBuf {
    files::root().join("tests/fixtures").join(path)
}
