//! Where files stand: absolute paths, package roots, and paths as reports show them.
//!
//! Asks the system for the working directory once a run, and looks at each directory once.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::reference::normalize;
use super::walked::Seen;
use super::{Backend, steps};
use crate::source::bounds;
use crate::source::hashed::Map;

/// The working directory, and the repositories found so far.
#[derive(Debug, Default)]
pub struct Roots {
    here: PathBuf,
    checkouts: Nearest,
    downloads: Nearest,
}

/// The nearest ancestor of a kind, for each directory that was asked for.
/// Keys are hashed as text: a path would be taken apart each time.
type Nearest = Mutex<Map<OsString, Option<PathBuf>>>;

impl Roots {
    /// Nothing found yet; relative paths begin at the working directory.
    pub fn new() -> Self {
        Self {
            here: std::env::current_dir().unwrap_or_default(),
            checkouts: Mutex::default(),
            downloads: Mutex::default(),
        }
    }

    /// The path from the file system's root, without `.` and `..`; links are not resolved.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        normalize(&self.here.join(path))
    }

    /// The directory that references of a config in the absolute `directory` may not leave: the
    /// nearest ancestor that is a repository's root, else two levels above the config's directory.
    /// How the caller named the config makes no difference.
    pub fn package_root(&self, directory: &Path) -> PathBuf {
        self.package_root_seen(directory, None)
    }

    /// The same, the disk not asked for what a walk has seen.
    pub fn package_root_seen(&self, directory: &Path, seen: Option<Seen<'_>>) -> PathBuf {
        match self.repository_seen(directory, seen) {
            Some(root) => root,
            None => bounds::above(directory).to_owned(),
        }
    }

    /// The repository of a config in the absolute `directory`: a checkout, or a download from a hub.
    pub fn repository(&self, directory: &Path) -> Option<PathBuf> {
        self.repository_seen(directory, None)
    }

    /// The nearest ancestor of the absolute `directory` with a `.git`.
    pub fn checkout(&self, directory: &Path) -> Option<PathBuf> {
        self.checkout_seen(directory, None)
    }

    /// Whether the absolute `directory` has a `.git` itself.
    pub fn is_checkout(&self, directory: &Path, seen: Option<Seen<'_>>) -> bool {
        let known = seen.and_then(|seen| seen.has(directory, ".git"));
        known.unwrap_or_else(|| self.checkout(directory).as_deref() == Some(directory))
    }

    fn checkout_seen(&self, directory: &Path, seen: Option<Seen<'_>>) -> Option<PathBuf> {
        nearest(&self.checkouts, directory, seen, |ancestor| {
            has(ancestor, ".git", seen)
        })
    }

    /// Directories in which the precision list of a config in the absolute `directory` is looked
    /// for, the nearest first: those from its own up to the package `root`, then the one the caller
    /// named.
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

    /// The path as reports show it: relative to the working directory where it lies below it, with
    /// `/` between its parts.
    pub fn shown(&self, path: &Path) -> String {
        let text = steps::below(path, &self.here).unwrap_or(path);
        let text = text.to_string_lossy();
        if std::path::MAIN_SEPARATOR == '\\' {
            text.replace('\\', "/")
        } else {
            text.into_owned()
        }
    }

    fn repository_seen(&self, directory: &Path, seen: Option<Seen<'_>>) -> Option<PathBuf> {
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

/// Whether something that a walk would have remembered is in the absolute `directory`.
fn has(directory: &Path, name: &str, seen: Option<Seen<'_>>) -> bool {
    let known = seen.and_then(|seen| seen.has(directory, name));
    known.unwrap_or_else(|| directory.join(name).symlink_metadata().is_ok())
}

/// The nearest ancestor that is of the kind, itself included.
fn nearest(
    known: &Nearest,
    directory: &Path,
    seen: Option<Seen<'_>>,
    is_it: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    // The lock is not held while the disk is asked: at worst two threads ask the same.
    let known = || known.lock().unwrap_or_else(PoisonError::into_inner);
    let mut passed = Vec::new();
    let mut found = None;
    for ancestor in steps::upwards(directory) {
        // To know it costs nothing: no lock, no entry.
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

/// Whether a directory is a backend's: it is in a repository, never its root.
fn is_backend(directory: &Path) -> bool {
    steps::name(directory)
        .and_then(Backend::from_name)
        .is_some()
}

/// How many directories `directory` lies below `root`; 0 if it does not.
pub fn depth_below(directory: &Path, root: &Path) -> usize {
    steps::below(directory, root).map_or(0, |below| below.components().count())
}
