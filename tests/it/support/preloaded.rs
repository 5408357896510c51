//! A library that programs of a test are started with (`LD_PRELOAD`): it shifts their clock, or fills up their disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The built library, in a directory that every user can read.
pub(crate) struct Preloaded(tempfile::TempDir);

impl Preloaded {
    /// Builds the library.
    pub(crate) fn build() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("it is ours");
        let built = Self(directory);
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/preload/library.rs");
        let mut compiler =
            Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        compiler.args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "-C",
            "panic=abort",
            "-o",
        ]);
        let output = compiler.arg(built.library()).arg(source).output();
        let output = output.expect("the compiler that compiled this test is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        // Tests that open a data directory keep new files of this process from others.
        fs::set_permissions(built.library(), Permissions::from_mode(0o755)).expect("it is ours");
        built
    }

    /// Returns the path of the library.
    pub(crate) fn library(&self) -> PathBuf {
        self.0.path().join("library.so")
    }

    /// Returns the path of the file whose presence fills up the disk.
    pub(crate) fn full(&self) -> PathBuf {
        self.0.path().join("full")
    }

    /// Fills up the disk, or makes room.
    pub(crate) fn fill(&self, is_full: bool) {
        if is_full {
            fs::write(self.full(), "").expect("a file");
        } else {
            fs::remove_file(self.full()).expect("it is there");
        }
    }
}
