//! Copies of Core ML fixture folders in temporary directories, for tests to modify.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::fixture;

/// Path of the model inside an `.mlpackage` folder.
pub const MODEL: &str = "Data/com.apple.CoreML/model.mlmodel";
/// Path of its weights inside an `.mlpackage` folder.
pub const WEIGHTS: &str = "Data/com.apple.CoreML/weights/weight.bin";

/// A copy of a fixture.
pub struct Folder {
    directory: TempDir,
}

impl Folder {
    /// Copies the fixture with this name.
    pub fn of(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = Self { directory };
        copy(&path(&format!("{name}.mlpackage")), &folder.root());
        folder
    }

    /// Returns the path of the folder.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("m.mlpackage")
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, below: &str) -> PathBuf {
        self.root().join(below)
    }

    /// Reads a file in the folder.
    pub fn bytes(&self, below: &str) -> Vec<u8> {
        fs::read(self.path(below)).expect("the file exists")
    }

    /// Writes a file in the folder.
    pub fn write(&self, below: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(below), bytes).expect("the file is written");
    }

    /// Replaces text in the manifest.
    pub fn change_manifest(&self, from: &str, to: &str) {
        let text = String::from_utf8(self.bytes("Manifest.json")).expect("JSON");
        assert!(text.contains(from), "{text}");
        self.write("Manifest.json", text.replace(from, to));
    }
}

/// Copies a folder recursively.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a fixture") {
        let entry = entry.expect("a fixture");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("the file is copied");
        }
    }
}

/// Returns the path of a Core ML fixture.
pub fn path(name: &str) -> PathBuf {
    fixture("coreml").join(name)
}
