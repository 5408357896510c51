//! The [`WalkFilter`] trait, through which a project's settings and ignore files exclude entries from a
//! walk.
//!
//! A walk always skips some directories; a sieve excludes more. Invariant: a sieve sees the files
//! that define exclusions (`.git`, `.gitignore`, `pkgtool.toml`) before all other entries of their
//! directory.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::path::Path;

/// Names of files that define exclusions for their directory.
const EXCLUSION_FILES: [&str; 3] = [".git", ".gitignore", SETTINGS_FILE];

/// The file name of a project's settings.
pub const SETTINGS_FILE: &str = "pkgtool.toml";

/// Maximum size of a settings file, in bytes.
pub const MAX_SETTINGS_BYTES: u64 = 1 << 20;

/// Decides which entries a walk excludes. Paths are absolute.
pub trait WalkFilter {
    /// Begins a walk at this directory, which is never excluded.
    fn begin(&mut self, top: &Path);

    /// Learns that `directory` contains a file `name` that defines exclusions.
    fn learn(&mut self, directory: &Path, name: &OsStr);

    /// Returns true if nothing can be excluded.
    fn is_idle(&self) -> bool;

    /// Returns the reason for excluding a path; `None` if it is included.
    fn exclusion_reason(&mut self, path: &Path, is_directory: bool) -> Option<String>;
}

/// A sieve that excludes nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoFilter;

impl WalkFilter for NoFilter {
    fn begin(&mut self, _: &Path) {}

    fn learn(&mut self, _: &Path, _: &OsStr) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn exclusion_reason(&mut self, _: &Path, _: bool) -> Option<String> {
        None
    }
}

/// Returns whether a file of this name defines exclusions.
pub(super) fn defines_exclusions(name: &OsStr) -> bool {
    EXCLUSION_FILES.iter().any(|saying| name == *saying)
}

/// Orders names alphabetically, with files that define exclusions first.
pub(super) fn exclusions_first(a: &OsStr, b: &OsStr) -> Ordering {
    defines_exclusions(b)
        .cmp(&defines_exclusions(a))
        .then_with(|| a.cmp(b))
}
