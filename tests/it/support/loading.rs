//! Writes and loads models for tests of engines.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::Signature;
use pkgtool_engine::{LoadOptions, LoadRequest};
use pkgtool_model as model;
use tempfile::TempDir;

/// A model file in a directory of its own, which lives as long as this value.
pub(crate) struct WrittenModel {
    _directory: TempDir,
    pub(crate) path: PathBuf,
}

/// Writes a model file.
pub(crate) fn written(name: &str, bytes: &[u8]) -> WrittenModel {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join(name);
    fs::write(&path, bytes).expect("a file");
    WrittenModel {
        _directory: directory,
        path,
    }
}

/// Returns a request to load the first method of a model, on one thread.
pub(crate) fn request(path: &Path) -> LoadRequest {
    let (info, _) = model::open(path).expect("the file is a model");
    LoadRequest {
        model: path.to_owned(),
        signature: Signature::of(&info.methods[0], None).expect("the method takes tensors"),
        options: LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        },
    }
}

/// Returns a launcher of workers of the tested binary, without a limit of their memory.
pub(crate) fn launcher(timeout: Option<Duration>) -> Launcher {
    Launcher {
        program: PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
        timeout,
        memory_limit: None,
        in_background: false,
        device: None,
    }
}
