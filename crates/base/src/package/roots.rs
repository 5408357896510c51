//! Computes absolute paths, package roots, and paths as reports show them.
//!
//! The working directory is read once per run, and each directory is inspected once.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::reference::normalize;
use super::walked::RecordedDirectories;
use super::{Backend, steps};
use crate::source::bounds;
use crate::source::hashed::Map;

/// The working directory, and a cache of repository roots.
#[derive(Debug, Default)]
pub struct Roots {
    here: PathBuf,
    checkouts: AncestorCache,
    downloads: AncestorCache,
}

/// The nearest matching ancestor of each directory that was looked up. Keys are hashed as text,
/// which is faster than hashing the components of a path.
type AncestorCache = Mutex<Map<OsString, Option<PathBuf>>>;

impl Roots {
    /// Creates an empty cache; relative paths start at the working directory.
    pub fn new() -> Self {
        Self {
            here: std::env::current_dir().unwrap_or_default(),
            checkouts: Mutex::default(),
            downloads: Mutex::default(),
        }
    }

    /// Returns the absolute path without `.` and `..`; links are not resolved.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        normalize(&self.here.join(path))
    }

    /// Returns the directory that references of a config in the absolute `directory` may not leave.
    /// It is the nearest ancestor that is a repository's root, else two levels above the config's
    /// directory. The spelling of the caller's path does not matter.
    pub fn package_root(&self, directory: &Path) -> PathBuf {
        self.package_root_seen(directory, None)
    }

    /// Like [`Self::package_root`], using the directory contents that a walk recorded.
    pub fn package_root_seen(
        &self,
        directory: &Path,
        seen: Option<RecordedDirectories<'_>>,
    ) -> PathBuf {
        match self.repository_seen(directory, seen) {
            Some(root) => root,
            None => bounds::max_package_root(directory).to_owned(),
        }
    }

    /// Returns the repository of a config in the absolute `directory`: a checkout, or a download
    /// from a hub.
    pub fn repository(&self, directory: &Path) -> Option<PathBuf> {
        self.repository_seen(directory, None)
    }

    /// Returns the nearest ancestor of the absolute `directory` with a `.git`.
    pub fn checkout(&self, directory: &Path) -> Option<PathBuf> {
        self.checkout_seen(directory, None)
    }

    /// Returns whether the absolute `directory` itself has a `.git`.
    pub fn is_checkout(&self, directory: &Path, seen: Option<RecordedDirectories<'_>>) -> bool {
        let known = seen.and_then(|seen| seen.has(directory, ".git"));
        known.unwrap_or_else(|| self.checkout(directory).as_deref() == Some(directory))
    }

    fn checkout_seen(
        &self,
        directory: &Path,
        seen: Option<RecordedDirectories<'_>>,
    ) -> Option<PathBuf> {
        nearest(&self.checkouts, directory, seen, |ancestor| {
            has(ancestor, ".git", seen)
        })
    }

    /// Returns the directories that may contain the precision list for a config in the absolute
    /// `directory`, nearest first: those from its own up to the package `root`, then the one that
    /// the caller gave.
    pub fn list_places<'a>(
        &'a self,
        directory: &'a Path,
        root: &Path,
        walked_from: Option<&'a Path>,
    ) -> impl Iterator<Item = Cow<'a, Path>> {
        let own = steps::upwards(directory).take(depth_below(directory, root) + 1);
        let given = walked_from.into_iter().map(|given| self.absolute(given));
        own.map(Cow::Borrowed).chain(given.map(Cow::Owned))
    }

    /// Returns the path as reports show it: relative to the working directory if it is below it,
    /// and with `/` as separator.
    pub fn shown(&self, path: &Path) -> String {
        let text = steps::below(path, &self.here).unwrap_or(path);
        let text = text.to_string_lossy();
        if std::path::MAIN_SEPARATOR == '\\' {
            text.replace('\\', "/")
        } else {
            text.into_owned()
        }
    }

    fn repository_seen(
        &self,
        directory: &Path,
        seen: Option<RecordedDirectories<'_>>,
    ) -> Option<PathBuf> {
        let directory = match steps::above(directory) {
            Some(above) if is_backend(directory) => above,
            _ => directory,
        };
        self.checkout_seen(directory, seen).or_else(|| {
            nearest(&self.downloads, directory, seen, |ancestor| {
                bounds::is_download(ancestor, |name| has(ancestor, name, seen))
            })
        })
    }
}

/// Returns whether the absolute `directory` contains `name`, from the recorded contents if
/// possible.
fn has(directory: &Path, name: &str, seen: Option<RecordedDirectories<'_>>) -> bool {
    let known = seen.and_then(|seen| seen.has(directory, name));
    known.unwrap_or_else(|| directory.join(name).symlink_metadata().is_ok())
}

/// Returns the nearest ancestor that matches, possibly the directory itself.
fn nearest(
    known: &AncestorCache,
    directory: &Path,
    seen: Option<RecordedDirectories<'_>>,
    is_it: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    // The lock is released during I/O, so two threads may inspect the same directory.
    let known = || known.lock().unwrap_or_else(PoisonError::into_inner);
    let mut passed = Vec::new();
    let mut found = None;
    for ancestor in steps::upwards(directory) {
        // The recorded contents need no lock and no cache entry.
        if seen.is_some_and(|seen| seen.covers(ancestor)) {
            if is_it(ancestor) {
                return Some(ancestor.to_owned());
            }
            continue;
        }
        if let Some(answer) = known().get(ancestor.as_os_str()) {
            found.clone_from(answer);
            break;
        }
        passed.push(ancestor.as_os_str().to_owned());
        if is_it(ancestor) {
            found = Some(ancestor.to_owned());
            break;
        }
    }
    known().extend(passed.into_iter().map(|ancestor| (ancestor, found.clone())));
    found
}

/// Returns whether this is a backend directory: such a directory is inside a repository, never its
/// root.
fn is_backend(directory: &Path) -> bool {
    steps::name(directory)
        .and_then(Backend::from_name)
        .is_some()
}

/// Returns the number of levels of `directory` below `root`; 0 if it is not below.
pub fn depth_below(directory: &Path, root: &Path) -> usize {
    steps::below(directory, root).map_or(0, |below| below.components().count())
}
