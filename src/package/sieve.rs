//! What a walk leaves out beside what it always does, as somebody above says.
//!
//! Invariant: a sieve hears of the files that say what is to be left out (`.git`, `.gitignore`, settings
//! of projects) before anything else that stands in their directory.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::path::Path;

/// Names of files that say what is to be left out of the directory in which they stand.
const SAYING: [&str; 3] = [".git", ".gitignore", SETTINGS_FILE];

/// The file name under which a project keeps its settings.
pub const SETTINGS_FILE: &str = "pkgtool.toml";

/// Says what a walk leaves out. Paths are absolute.
pub trait Sieve {
    /// A walk begins at this directory, which is never left out.
    fn begin(&mut self, top: &Path);

    /// There is a file in `directory` that says what is to be left out.
    fn learn(&mut self, directory: &Path, name: &OsStr);

    /// Whether anything can be left out at all.
    fn is_idle(&self) -> bool;

    /// Why something is left out; `None` if it is not.
    fn leaves_out(&mut self, path: &Path, is_directory: bool) -> Option<String>;
}

/// Leaves nothing out.
#[derive(Debug, Clone, Copy)]
pub struct Open;

impl Sieve for Open {
    fn begin(&mut self, _: &Path) {}

    fn learn(&mut self, _: &Path, _: &OsStr) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn leaves_out(&mut self, _: &Path, _: bool) -> Option<String> {
        None
    }
}

/// Whether a file says what is to be left out.
pub(super) fn says(name: &OsStr) -> bool {
    SAYING.iter().any(|saying| name == *saying)
}

/// Names in their order, those first that say what is to be left out.
pub(super) fn order(a: &OsStr, b: &OsStr) -> Ordering {
    says(b).cmp(&says(a)).then_with(|| a.cmp(b))
}
