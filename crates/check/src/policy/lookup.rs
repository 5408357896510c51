//! Finds the settings that apply to a file: each `pkgtool.toml` from the file's directory up to the
//! root of its checkout.
//!
//! The outermost file belongs to the user if it is in the checkout's root or above a path that the
//! user named. Otherwise it belongs to a package. Files below only tighten it (`tighten.rs`).
//! Settings files that `pull` downloaded, or that are on a server, are ignored.
//!
//! Invariant: each directory is examined once, and each file is read once. The size of a settings
//! file is limited.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::read;
use super::settings::{Overrides, PolicySettings};
use super::tighten::tighten;
use crate::validate::FileLocation;
use pkgtool_base::package::sieve::{MAX_SETTINGS_BYTES, SETTINGS_FILE};
use pkgtool_base::package::{Roots, steps};
use pkgtool_base::source::hashed::Map;
use pkgtool_base::source::{self, elsewhere};

/// File in which `pull` records the downloaded files of a directory, by relative paths.
const PULL_RECORD: &str = ".pkgtool/pulled.json";
/// Maximum size of such a record, in bytes.
const MAX_RECORD_BYTES: u64 = 64 << 20;

/// The source of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Each `pkgtool.toml` from a file's directory up.
    Nearest,
    /// This file, for everything.
    File(PathBuf),
    /// No settings file.
    Nothing,
}

/// Finds settings and caches them.
#[derive(Debug)]
pub(super) struct Lookup {
    origin: Origin,
    overrides: Overrides,
    roots: Roots,
    /// The settings of the command line alone, for files without a settings file.
    bare: Option<Arc<PolicySettings>>,
    known: Mutex<Map<OsString, Option<Arc<PolicySettings>>>>,
    /// The settings in force below each directory with a settings file.
    settled: Mutex<Map<PathBuf, Arc<PolicySettings>>>,
    /// Absolute paths that the user named.
    named_paths: Mutex<BTreeSet<PathBuf>>,
    /// The settings of each file that was read, by path.
    read: Mutex<Map<PathBuf, Arc<PolicySettings>>>,
}

impl Lookup {
    pub(super) fn new(origin: Origin, overrides: Overrides) -> Self {
        let roots = Roots::new();
        let bare = (!overrides.is_silent()).then(|| {
            let here = PolicySettings {
                root: roots.absolute(Path::new("")),
                ..PolicySettings::default()
            };
            Arc::new(here.overridden(&overrides))
        });
        Self {
            origin,
            overrides,
            roots,
            bare,
            known: Mutex::default(),
            settled: Mutex::default(),
            named_paths: Mutex::default(),
            read: Mutex::default(),
        }
    }

    pub(super) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Returns the settings file that the caller named.
    pub(super) fn given(&self) -> Option<&Path> {
        match &self.origin {
            Origin::File(file) => Some(file),
            Origin::Nothing | Origin::Nearest => None,
        }
    }

    pub(super) fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Returns the settings that apply to the files in the absolute `directory`.
    pub(super) fn of(&self, directory: &Path) -> Option<Arc<PolicySettings>> {
        self.settings_at(FileLocation {
            directory,
            seen: None,
            roots: &self.roots,
        })
    }

    /// Like [`Self::of`], but uses what the walk has already seen instead of asking the disk again.
    pub(super) fn settings_at(&self, place: FileLocation<'_>) -> Option<Arc<PolicySettings>> {
        match &self.origin {
            Origin::Nothing => self.bare.clone(),
            Origin::File(file) => Some(self.file(&self.roots.absolute(file))),
            Origin::Nearest => self.nearest(place).or_else(|| self.bare.clone()),
        }
    }

    /// Returns all settings files that were read, ordered by path.
    pub(super) fn all_read(&self) -> Vec<Arc<PolicySettings>> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = read.iter().collect();
        all.sort_by_key(|(path, _)| *path);
        all.into_iter()
            .map(|(_, settings)| Arc::clone(settings))
            .collect()
    }

    /// Records the paths that the user named. Settings above them belong to the user.
    pub(super) fn record_named_paths(&self, paths: &[PathBuf]) {
        let mut typed = self
            .named_paths
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        typed.extend(paths.iter().map(|path| self.roots.absolute(path)));
    }

    fn nearest(&self, place: FileLocation<'_>) -> Option<Arc<PolicySettings>> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut passed = Vec::new();
        let mut settled = None;
        for ancestor in steps::upwards(place.directory) {
            let seen = place.seen.and_then(|seen| seen.has_settings(ancestor));
            // Looking up what the walk has seen is cheaper than caching it.
            if seen.is_none()
                && let Some(answer) = known().get(ancestor.as_os_str())
            {
                settled.clone_from(answer);
                break;
            }
            let exists = || ancestor.join(SETTINGS_FILE).symlink_metadata().is_ok();
            passed.push((ancestor, seen.unwrap_or_else(exists), seen.is_none()));
            if place.roots.is_checkout(ancestor, place.seen) {
                break;
            }
        }
        for (directory, has_file, is_asked) in passed.into_iter().rev() {
            if has_file {
                settled = self.settle(directory, settled);
            }
            if is_asked {
                known().insert(directory.as_os_str().to_owned(), settled.clone());
            }
        }
        settled
    }

    /// Returns the settings in force in a directory with a settings file, given the settings
    /// `above`.
    fn settle(
        &self,
        directory: &Path,
        above: Option<Arc<PolicySettings>>,
    ) -> Option<Arc<PolicySettings>> {
        let file = directory.join(SETTINGS_FILE);
        let settled = || self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = settled().get(&file) {
            return Some(Arc::clone(known));
        }
        if is_from_server(&file)
            || above
                .as_deref()
                .is_some_and(|above| is_file_of(above, &file))
        {
            return above;
        }
        let made = if above.is_none() && self.is_users(directory) {
            self.file(&file)
        } else {
            self.nested(&file, above.as_deref())
        };
        settled().insert(file, Arc::clone(&made));
        Some(made)
    }

    /// Returns whether a directory is a path that the user named, or above one.
    fn is_users(&self, directory: &Path) -> bool {
        let typed = self
            .named_paths
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let here = self.roots.absolute(Path::new(""));
        typed.is_empty()
            || here.starts_with(directory)
            || typed.iter().any(|path| path.starts_with(directory))
    }

    /// Tightens the settings above by a nested file. A package's outermost file tightens the
    /// defaults.
    fn nested(&self, file: &Path, above: Option<&PolicySettings>) -> Arc<PolicySettings> {
        let directory = file.parent().unwrap_or(file);
        let none = || PolicySettings {
            root: directory.to_owned(),
            ..PolicySettings::default()
        };
        let above = above.map_or_else(|| none().overridden(&self.overrides), PolicySettings::clone);
        let own = self.parse(file);
        let (merged, findings) = tighten(&above, &own);
        let reported = PolicySettings {
            file: own.file,
            root: own.root,
            findings,
            ..none()
        };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(
            file.to_owned(),
            Arc::new(reported.overridden(&self.overrides)),
        );
        Arc::new(merged.overridden(&self.overrides))
    }

    fn parse(&self, file: &Path) -> PolicySettings {
        let shown = self.roots.shown(file);
        match read_settings_text(file) {
            Ok(text) => read::read(file, shown, text),
            Err((reason, help)) => read::unreadable(file, shown, &reason, help),
        }
    }

    /// Returns the settings in the file at an absolute path.
    pub(super) fn file(&self, file: &Path) -> Arc<PolicySettings> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.get(file) {
            return Arc::clone(known);
        }
        let settings = Arc::new(self.parse(file).overridden(&self.overrides));
        read.insert(file.to_owned(), Arc::clone(&settings));
        settings
    }
}

/// Returns whether settings come from this file, which a link may lead to again.
fn is_file_of(settings: &PolicySettings, file: &Path) -> bool {
    let known = settings
        .file
        .as_ref()
        .and_then(|(known, _)| known.canonicalize().ok());
    known.is_some() && known == file.canonicalize().ok()
}

/// Returns whether a file came from a server: `pull` downloaded it, or it belongs to a mirror.
fn is_from_server(file: &Path) -> bool {
    let is_pulled = |directory: &Path| {
        let record = directory.join(PULL_RECORD);
        // Most directories have no record, and checking for it is cheaper than opening it.
        let is_there = record.symlink_metadata().is_ok();
        let text = is_there
            .then(|| source::read_text(&record, MAX_RECORD_BYTES).ok())
            .flatten();
        let record: Option<serde_json::Map<String, serde_json::Value>> =
            text.and_then(|text| serde_json::from_str(&text).ok());
        let target = file.strip_prefix(directory).map(Path::to_string_lossy);
        let target = target
            .unwrap_or_default()
            .replace(std::path::MAIN_SEPARATOR, "/");
        record.is_some_and(|record| record.contains_key(&target))
    };
    elsewhere::is_remote(file) || steps::upwards(file).skip(1).any(is_pulled)
}

/// Returns the text of a settings file, or a message and a remedy.
pub(super) fn read_settings_text(file: &Path) -> Result<String, (String, &'static str)> {
    const ELSE: &str = "its settings have no effect; fix it, or ignore it with --no-config";
    let cannot = |error: std::io::Error| (format!("cannot be read: {error}"), ELSE);
    let opened = source::open(file).map_err(cannot)?;
    opened
        .size()
        .map_err(|_| ("is not a file".to_owned(), ELSE))?;
    let mut bytes = Vec::new();
    let mut bounded = opened.take(MAX_SETTINGS_BYTES + 1);
    bounded.read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_SETTINGS_BYTES {
        let reason = "is too large: settings files of at most 1 MiB are supported";
        return Err((
            reason.to_owned(),
            "use a baseline for many known findings: --write-baseline",
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        (
            format!("is not UTF-8: invalid byte at offset {at}"),
            "TOML files must be UTF-8",
        )
    })
}
