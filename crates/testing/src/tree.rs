//! Builds packages in temporary directories, and valid configs for tests to modify.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture;

/// The name of the model file in [`config`].
pub const MODEL: &str = "tiny_xnnpack_fp32.pte";

/// A temporary directory, deleted on drop.
pub struct Tree {
    directory: TempDir,
}

impl Tree {
    /// Creates an empty directory.
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// Creates a directory with one valid package, `xnnpack/`.
    pub fn with_package() -> Self {
        Self::new().package("xnnpack", &config())
    }

    /// Writes a file and creates its parent directories.
    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path(path);
        let parent = path.parent().expect("a path below the root");
        fs::create_dir_all(parent).expect("directories");
        fs::write(path, content).expect("a file");
        self
    }

    /// Writes a JSON file.
    pub fn json(self, path: &str, value: &Value) -> Self {
        self.file(path, format!("{value:#}\n"))
    }

    /// Writes `config` and, beside it, the model file that [`config`] names.
    pub fn package(self, directory: &str, config: &Value) -> Self {
        let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
        self.json(&format!("{directory}/config.json"), config)
            .file(&format!("{directory}/{MODEL}"), program)
    }

    /// Returns the directory.
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of an entry of this directory.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }
}

/// Returns a valid config for the package that [`Tree::package`] writes.
pub fn config() -> Value {
    json!({
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": "tiny",
        "family": "tiny",
        "capabilities": ["classification"],
        "backend": "xnnpack",
        "license": "MIT",
        "variants": [{
            "precision": "fp32",
            "file": MODEL,
            "methods": { "forward": signature() },
        }],
    })
}

/// Returns the signature of that package's model.
pub fn signature() -> Value {
    let tensor = |shape: [i64; 2]| json!({ "shape": shape, "dtype": "float32" });
    json!({ "inputs": [tensor([2, 8]), tensor([2, 4])], "outputs": [tensor([2, 4])] })
}
