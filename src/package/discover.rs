//! Finding configs and precision lists in directory trees.
//!
//! Invariant: only names are looked at, no file is opened. Symbolic links to files are followed,
//! links to directories are not, so a walk always ends. Hidden directories and `node_modules` are
//! left out unless named.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use super::config::SCHEMA_ID;
use super::{Backend, Loaded, config, precision};
use crate::source::json::Node;

/// What a walk found.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Files to check, sorted by path, each once.
    pub found: Vec<Found>,
    /// Directories that could not be listed, and why.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// A file to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path, beginning as the caller's path begins.
    pub path: PathBuf,
    /// What it is taken for.
    pub kind: FoundKind,
    /// The directory the caller named, if it was found by walking.
    pub walked_from: Option<PathBuf>,
}

/// What a found file is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundKind {
    /// A config: named by the caller, or `config.json` in a backend's directory.
    Config,
    /// A `config.json` elsewhere: a config only if [`is_package_config`] says so.
    MaybeConfig,
    /// A precision list.
    PrecisionList,
}

/// A file that a walk met and passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

impl Found {
    /// A file that the caller named.
    pub fn named(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            kind: named_kind(path),
            walked_from: None,
        }
    }
}

impl Discovery {
    /// Looks at `paths`: a file is taken as it is, a directory is walked.
    pub fn walk(paths: &[PathBuf]) -> Self {
        let mut discovery = Self::default();
        for path in paths {
            if path.is_dir() {
                discovery.walk_directory(path);
            } else {
                discovery.found.push(Found::named(path));
            }
        }
        if paths.len() > 1 {
            discovery.keep_each_once();
        }
        discovery
    }

    /// Adds a precision list that the caller named, unless it was found already.
    pub fn add_list(&mut self, path: &Path) {
        self.found.push(Found {
            path: path.to_owned(),
            kind: FoundKind::PrecisionList,
            walked_from: None,
        });
        self.keep_each_once();
    }

    fn walk_directory(&mut self, directory: &Path) {
        let walk = WalkDir::new(directory)
            .sort_by_file_name()
            .into_iter()
            .filter_entry(|entry| entry.depth() == 0 || !is_left_out(entry));
        for entry in walk {
            match entry {
                Ok(entry) => {
                    let Some(kind) = walked_kind(entry.path()) else {
                        continue;
                    };
                    // A directory in a config's place is no other thing: its check says so.
                    if entry.file_type().is_dir() && kind != FoundKind::Config {
                        continue;
                    }
                    self.found.push(Found {
                        path: strip_current_dir(entry.path()),
                        kind,
                        walked_from: Some(directory.to_owned()),
                    });
                }
                Err(error) => {
                    let path = error.path().unwrap_or(directory).to_owned();
                    let reason = error
                        .io_error()
                        .map_or_else(|| error.to_string(), std::string::ToString::to_string);
                    self.unreadable.push((path, reason));
                }
            }
        }
    }

    /// Drops what an earlier path already gave. A file named by itself wins over the same file met
    /// on a walk, because naming it asks for a strict check.
    fn keep_each_once(&mut self) {
        self.found.sort_by_key(|found| found.walked_from.is_some());
        let mut seen = HashSet::new();
        self.found.retain(|found| {
            let real = found.path.canonicalize();
            seen.insert(real.unwrap_or_else(|_| found.path.clone()))
        });
        self.found.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

/// Whether a `config.json` outside a backend's directory is a package config: an object with
/// `backend` or `variants` or our `$schema`; if it does not parse, a text that speaks of both.
pub fn is_package_config(loaded: &Loaded) -> bool {
    match &loaded.document {
        Ok(document) => {
            let root = &document.root;
            root.get("backend").is_some()
                || root.get("variants").is_some()
                || root.get("$schema").and_then(Node::as_str) == Some(SCHEMA_ID)
        }
        Err(_) => ["\"backend\"", "\"variants\""]
            .iter()
            .all(|key| loaded.text.contains(key)),
    }
}

fn named_kind(path: &Path) -> FoundKind {
    if path.file_name() == Some(OsStr::new(precision::FILE_NAME)) {
        FoundKind::PrecisionList
    } else {
        FoundKind::Config
    }
}

fn walked_kind(path: &Path) -> Option<FoundKind> {
    let name = path.file_name()?;
    if name == precision::FILE_NAME {
        return Some(FoundKind::PrecisionList);
    }
    if name != config::FILE_NAME {
        return None;
    }
    let directory = path.parent().and_then(Path::file_name);
    let in_backend = directory
        .and_then(OsStr::to_str)
        .is_some_and(|name| Backend::from_name(name).is_some());
    Some(if in_backend {
        FoundKind::Config
    } else {
        FoundKind::MaybeConfig
    })
}

fn is_left_out(entry: &DirEntry) -> bool {
    let name = entry.file_name().as_encoded_bytes();
    entry.file_type().is_dir() && (name.starts_with(b".") || name == b"node_modules")
}

fn strip_current_dir(path: &Path) -> PathBuf {
    path.strip_prefix(".").unwrap_or(path).to_owned()
}
