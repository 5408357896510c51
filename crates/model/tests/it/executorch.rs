//! Tests of the reader of ExecuTorch programs, with real, hand-made and broken programs.
//!
//! Programs too large for the repository are stored as headers (`*.head.pte`): the bytes before the
//! first segment. The reader never reads the segments, so the tests append a hole of the right
//! size.

mod broken;
mod calls;
mod contents;
mod coreml;
mod data_file;
mod delegates;
mod dynamism;
pub(crate) mod hostile;
mod package;
mod payloads;
mod programs;
mod xnnpack;

use std::path::PathBuf;

use pkgtool_base::source::ReadAt;
use pkgtool_model::executorch::ExecuTorchFormat;
use pkgtool_model::{FormatError, ModelError, ModelFormat, ModelInfo};

/// The programs stored as headers, with their full lengths.
const HEADERS: [(&str, u64); 3] = [
    ("llama_tiny_kv_xnnpack_fp32", 579_584),
    ("minilm_l2_xnnpack_8da4w", 3_030_016),
    ("mobilenet_v3_small_xnnpack_int8", 2_751_136),
];

fn fixture(name: &str) -> PathBuf {
    pkgtool_testing::files::root()
        .join("tests/fixtures/models")
        .join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).expect("the fixture is there")
}

fn inspect(source: &dyn ReadAt) -> Result<ModelInfo, FormatError> {
    ExecuTorchFormat
        .inspect(source)
        .map_err(|error| match error {
            ModelError::Broken(error) => error,
            ModelError::Io(error) => panic!("{error}"),
        })
}

fn read(bytes: &[u8]) -> ModelInfo {
    inspect(&bytes.to_vec()).expect("a sound program")
}

fn error(bytes: &[u8]) -> FormatError {
    inspect(&bytes.to_vec()).expect_err("a broken program")
}
