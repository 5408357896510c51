//! Which settings rule a file: the nearest `pkgtool.toml`, from the file's directory up to the root of its
//! checkout.
//!
//! Invariant: each directory is looked at once, each file read once; a file of settings is read in bounds.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::read;
use super::settings::{Overrides, Settings};
use crate::package::sieve::SETTINGS_FILE;
use crate::package::{Roots, steps};
use crate::source::hashed::Map;
use crate::validate::Place;

/// Largest file of settings, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Where settings come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The nearest `pkgtool.toml` of each file.
    Nearest,
    /// This file, for everything.
    File(PathBuf),
    /// No file.
    Nothing,
}

/// Looks settings up, and remembers them.
#[derive(Debug)]
pub(super) struct Lookup {
    origin: Origin,
    overrides: Overrides,
    roots: Roots,
    /// Settings of those that have no file.
    bare: Option<Arc<Settings>>,
    known: Mutex<Map<OsString, Option<Arc<Settings>>>>,
    /// Files that were read, by their paths.
    read: Mutex<Map<PathBuf, Arc<Settings>>>,
}

impl Lookup {
    pub(super) fn new(origin: Origin, overrides: Overrides) -> Self {
        let roots = Roots::new();
        let bare = (!overrides.is_silent()).then(|| {
            let here = Settings {
                root: roots.absolute(Path::new("")),
                ..Settings::default()
            };
            Arc::new(here.overridden(&overrides))
        });
        Self {
            origin,
            overrides,
            roots,
            bare,
            known: Mutex::default(),
            read: Mutex::default(),
        }
    }

    pub(super) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// The file that the caller named.
    pub(super) fn given(&self) -> Option<&Path> {
        match &self.origin {
            Origin::File(file) => Some(file),
            Origin::Nothing | Origin::Nearest => None,
        }
    }

    pub(super) fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The settings that rule what is in the absolute `directory`.
    pub(super) fn of(&self, directory: &Path) -> Option<Arc<Settings>> {
        self.of_place(Place {
            directory,
            seen: None,
            roots: &self.roots,
        })
    }

    /// The same; the disk is not asked for what was seen or is known of checkouts.
    pub(super) fn of_place(&self, place: Place<'_>) -> Option<Arc<Settings>> {
        match &self.origin {
            Origin::Nothing => self.bare.clone(),
            Origin::File(file) => Some(self.file(&self.roots.absolute(file))),
            Origin::Nearest => self.nearest(place).or_else(|| self.bare.clone()),
        }
    }

    /// All files that were read, in the order of their paths.
    pub(super) fn all_read(&self) -> Vec<Arc<Settings>> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = read.iter().collect();
        all.sort_by_key(|(path, _)| *path);
        all.into_iter()
            .map(|(_, settings)| Arc::clone(settings))
            .collect()
    }

    fn nearest(&self, place: Place<'_>) -> Option<Arc<Settings>> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut passed = Vec::new();
        let mut found = None;
        for ancestor in steps::upwards(place.directory) {
            let file = || ancestor.join(SETTINGS_FILE);
            let seen = place.seen.and_then(|seen| seen.has_settings(ancestor));
            // What was seen costs less to ask than to remember.
            if seen.is_none() {
                if let Some(answer) = known().get(ancestor.as_os_str()) {
                    found.clone_from(answer);
                    break;
                }
                passed.push(ancestor.as_os_str().to_owned());
            }
            if seen.unwrap_or_else(|| file().symlink_metadata().is_ok()) {
                found = Some(self.file(&file()));
                break;
            }
            if place.roots.is_checkout(ancestor, place.seen) {
                break;
            }
        }
        known().extend(passed.into_iter().map(|ancestor| (ancestor, found.clone())));
        found
    }

    /// The settings in a file, which is from the file system's root.
    pub(super) fn file(&self, file: &Path) -> Arc<Settings> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.get(file) {
            return Arc::clone(known);
        }
        let shown = self.roots.shown(file);
        let settings = match text_of(file) {
            Ok(text) => read::read(file, shown, text),
            Err((reason, help)) => read::unreadable(file, shown, &reason, help),
        };
        let settings = Arc::new(settings.overridden(&self.overrides));
        read.insert(file.to_owned(), Arc::clone(&settings));
        settings
    }
}

/// The text of a file of settings; else why not, and what to do.
pub(super) fn text_of(file: &Path) -> Result<String, (String, &'static str)> {
    const ELSE: &str = "what it says does not hold; mend it, or leave it out with --no-config";
    let cannot = |error: std::io::Error| (format!("cannot be read: {error}"), ELSE);
    // A pipe of this name would be waited for.
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() {
        return Err(("is no file".to_owned(), ELSE));
    }
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(cannot)?;
    let mut bounded = opened.take(MAX_FILE + 1);
    bounded.read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE {
        let reason = "has more than 1 MiB, which is more than is read of settings";
        return Err((
            reason.to_owned(),
            "a baseline holds many known findings: --write-baseline",
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        (
            format!("is not UTF-8: byte {at}"),
            "TOML files are in UTF-8",
        )
    })
}
