//! Folders that are models, to be changed: copies of fixtures in a temporary directory.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::path;

/// Where the model is in a folder.
pub(crate) const MODEL: &str = "Data/com.apple.CoreML/model.mlmodel";
/// Where its weights are.
pub(crate) const WEIGHTS: &str = "Data/com.apple.CoreML/weights/weight.bin";

/// A copy of a fixture.
pub(crate) struct Folder {
    directory: TempDir,
}

impl Folder {
    /// A copy of the fixture of this name.
    pub(crate) fn of(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = Self { directory };
        copy(&path(&format!("{name}.mlpackage")), &folder.root());
        folder
    }

    /// The folder.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("m.mlpackage")
    }

    /// A file in it.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root().join(below)
    }

    /// The bytes of a file in it.
    pub(crate) fn bytes(&self, below: &str) -> Vec<u8> {
        fs::read(self.path(below)).expect("it is there")
    }

    /// Writes a file in it.
    pub(crate) fn write(&self, below: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(below), bytes).expect("it can be written");
    }

    /// Replaces a text in its manifest.
    pub(crate) fn change_manifest(&self, from: &str, to: &str) {
        let text = String::from_utf8(self.bytes("Manifest.json")).expect("JSON");
        assert!(text.contains(from), "{text}");
        self.write("Manifest.json", text.replace(from, to));
    }
}

/// Copies a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a fixture") {
        let entry = entry.expect("a fixture");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("it can be copied");
        }
    }
}
