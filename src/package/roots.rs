//! Where files stand: absolute paths, package roots, and paths as reports show them.
//!
//! Asks the system for the working directory once a run, and looks for each `.git` once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::reference::normalize;

/// The working directory, and the repositories found so far.
#[derive(Debug, Default)]
pub struct Roots {
    here: PathBuf,
    repositories: Mutex<HashMap<PathBuf, Option<PathBuf>>>,
}

impl Roots {
    /// Nothing found yet; relative paths begin at the working directory.
    pub fn new() -> Self {
        Self {
            here: std::env::current_dir().unwrap_or_default(),
            repositories: Mutex::default(),
        }
    }

    /// The path from the file system's root, without `.` and `..`; links are not resolved.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        normalize(&self.here.join(path))
    }

    /// The directory that references of a config in the absolute `directory` may not leave: the
    /// nearest ancestor with a `.git`, else the directory the caller named, else two levels above
    /// the config's directory.
    pub fn package_root(&self, directory: &Path, walked_from: Option<&Path>) -> PathBuf {
        if let Some(root) = self.repository(directory) {
            return root;
        }
        match walked_from {
            Some(given) => self.absolute(given),
            None => directory.ancestors().nth(2).unwrap_or(directory).to_owned(),
        }
    }

    /// The path as reports show it: relative to the working directory where it lies below it, with
    /// `/` between its parts.
    pub fn shown(&self, path: &Path) -> String {
        let text = path.strip_prefix(&self.here).unwrap_or(path);
        let text = text.to_string_lossy();
        if std::path::MAIN_SEPARATOR == '\\' {
            text.replace('\\', "/")
        } else {
            text.into_owned()
        }
    }

    fn repository(&self, directory: &Path) -> Option<PathBuf> {
        // The lock is not held while the disk is asked: at worst two threads ask the same.
        let repositories = &self.repositories;
        let known = || repositories.lock().unwrap_or_else(PoisonError::into_inner);
        let mut passed = Vec::new();
        let mut found = None;
        for ancestor in directory.ancestors() {
            if let Some(answer) = known().get(ancestor) {
                found.clone_from(answer);
                break;
            }
            passed.push(ancestor.to_owned());
            if ancestor.join(".git").symlink_metadata().is_ok() {
                found = Some(ancestor.to_owned());
                break;
            }
        }
        known().extend(passed.into_iter().map(|ancestor| (ancestor, found.clone())));
        found
    }
}

/// How many directories `directory` lies below `root`; 0 if it does not.
pub fn depth_below(directory: &Path, root: &Path) -> usize {
    directory
        .strip_prefix(root)
        .map_or(0, |below| below.components().count())
}
