//! Scans the package directories: finds packages and computes a fingerprint of each package's
//! files.
//!
//! Invariant: only configs are read; of other files only size and times are checked. Equal
//! fingerprints mean that no file was added, removed, replaced or written in between.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use walkdir::{DirEntry, WalkDir};

use super::options::{PackageDirectory, Unserved};
use crate::database::Timestamp;
use pkgtool_base::package::sieve::SETTINGS_FILE;
use pkgtool_base::package::{
    Config, Discovery, FoundFile, FoundKind, LoadedFile, Roots, config, model_file, precision,
    reference, roots,
};
use pkgtool_check::policy::Policy;

/// Maximum depth of the first config in a package directory: package, backend, config.
const CONFIG_DEPTH: usize = 3;

/// Maximum number of entries that are scanned behind a symbolic link.
const MAX_LINK_ENTRIES: usize = 10_000;

/// Maximum number of files of a model that is a folder.
const MAX_FOLDER_FILES: usize = 10_000;

/// Maximum number of files of a package that are looked for.
const MAX_PACKAGE_FILES: usize = 10_000;

/// Identity of a package: the index of its package directory in the catalog, and its own path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PackageKey {
    pub(super) directory: usize,
    pub(super) path: PathBuf,
}

/// A directory that contains a config, or backend directories with configs.
#[derive(Debug, Clone)]
pub(super) struct ServedPackage {
    pub(super) key: PackageKey,
    /// The package directory that it was found in.
    pub(super) home: PackageDirectory,
    pub(super) configs: Vec<FoundFile>,
    pub(super) fingerprint: Fingerprint,
}

/// The state of all files of a package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fingerprint(BTreeMap<PathBuf, Option<FileMark>>);

/// Size and times of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMark {
    size: u64,
    modified: Option<SystemTime>,
    created: Option<SystemTime>,
}

/// Result of a scan.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) packages: BTreeMap<PackageKey, ServedPackage>,
    /// Directories that could not be listed.
    pub(super) unreadable: Vec<Unserved>,
    /// Symbolic links to directories with packages, which are not followed.
    pub(super) links: Vec<Unserved>,
}

impl Survey {
    /// Scans all directories. A directory inside another one of the same owner is skipped.
    pub(super) fn of(directories: &[PackageDirectory]) -> Self {
        let mut survey = Self::default();
        let mut seen = HashSet::new();
        for (number, directory) in directories.iter().enumerate() {
            for package in survey.walk(number, directory) {
                let real = package.key.path.canonicalize();
                let real = real.unwrap_or_else(|_| package.key.path.clone());
                if seen.insert((directory.owner, real)) {
                    survey.packages.insert(package.key.clone(), package);
                }
            }
        }
        survey
    }

    /// Rescans a single package.
    pub(super) fn rescan_package(
        home: &PackageDirectory,
        key: &PackageKey,
    ) -> Option<ServedPackage> {
        let mut survey = Self::default();
        // If the package directory itself is named after a backend, the package is its parent.
        let part = if key.path.starts_with(&home.path) {
            &key.path
        } else {
            &home.path
        };
        let mut packages = survey.walk_part(key.directory, home, part).into_iter();
        packages.find(|package| package.key == *key)
    }

    fn walk(&mut self, number: usize, home: &PackageDirectory) -> Vec<ServedPackage> {
        self.walk_part(number, home, &home.path)
    }

    /// Finds the packages in `part` of a directory, as a scan of the whole directory would.
    fn walk_part(
        &mut self,
        number: usize,
        home: &PackageDirectory,
        part: &Path,
    ) -> Vec<ServedPackage> {
        // The walker treats a path that is not a directory as a config that the user named.
        if !part.is_dir() {
            return Vec::new();
        }
        let discovery = Discovery::walk(&[part.to_owned()]);
        for (path, reason) in discovery.unreadable {
            self.unreadable.push(Unserved { path, reason });
        }
        for skipped in discovery.skipped {
            let path = skipped.path;
            if path.is_symlink() && holds_config(&path) {
                let reason = format!(
                    "{}; copy the packages here, or configure the directory that the link points to",
                    skipped.reason
                );
                self.links.push(Unserved { path, reason });
            }
        }
        let mut found: BTreeMap<PathBuf, Vec<FoundFile>> = BTreeMap::new();
        for mut one in discovery.found {
            one.walked_from = Some(home.path.clone());
            if let Some(package) = home_of(&one) {
                found.entry(package).or_default().push(one);
            }
        }
        let (roots, policy) = (Roots::new(), Policy::nearest());
        let packages = found.into_iter().map(|(path, configs)| ServedPackage {
            key: PackageKey {
                directory: number,
                path,
            },
            home: home.clone(),
            fingerprint: Fingerprint::of(&configs, &roots, &policy),
            configs,
        });
        packages.collect()
    }
}

/// Returns whether a package's config is near the top of a directory; `false` in doubt.
fn holds_config(directory: &Path) -> bool {
    let walk = WalkDir::new(directory).max_depth(CONFIG_DEPTH).into_iter();
    let mut entries = walk.flatten().take(MAX_LINK_ENTRIES);
    entries.any(|entry| entry.file_name() == config::FILE_NAME)
}

/// Returns the package directory of a config.
fn home_of(found: &FoundFile) -> Option<PathBuf> {
    let directory = found.path.parent()?;
    match found.kind {
        FoundKind::PrecisionList => None,
        _ if !found.is_config(&LoadedFile::read(&found.path)) => None,
        FoundKind::Config => Some(directory.parent().unwrap_or(directory).to_owned()),
        FoundKind::MaybeConfig => Some(directory.to_owned()),
    }
}

/// Returns the candidate files of a config's precision list; the first existing one applies.
pub(super) fn precision_lists(found: &FoundFile, roots: &Roots) -> Vec<PathBuf> {
    let directory = roots.absolute(found.path.parent().unwrap_or(Path::new("")));
    let root = roots.package_root(&directory);
    let places = roots.list_places(&directory, &root, found.walked_from.as_deref());
    places
        .map(|place| place.join(precision::FILE_NAME))
        .collect()
}

impl ServedPackage {
    /// Returns the files of the package, those that its configs refer to, and precision lists. Hidden files and
    /// settings of projects are left out.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let is_hidden = |entry: &DirEntry| {
            let name = entry.file_name().to_string_lossy();
            entry.depth() > 0 && name.starts_with('.')
        };
        let walk = WalkDir::new(&self.key.path).into_iter();
        let below = walk.filter_entry(|entry| !is_hidden(entry)).flatten();
        let below = below.filter(|entry| entry.file_type().is_file());
        let below = below.take(MAX_PACKAGE_FILES + 1).map(DirEntry::into_path);
        let known = self.fingerprint.0.iter().filter(|(_, mark)| mark.is_some());
        let known = known.map(|(path, _)| path.clone());
        let is_settings = |path: &PathBuf| path.file_name().is_some_and(|it| it == SETTINGS_FILE);
        let all: BTreeSet<PathBuf> = below.chain(known).filter(|it| !is_settings(it)).collect();
        all.into_iter().collect()
    }
}

impl Fingerprint {
    fn of(configs: &[FoundFile], roots: &Roots, policy: &Policy) -> Self {
        let mut marks = BTreeMap::new();
        for found in configs {
            let directory = found.path.parent().unwrap_or(Path::new(""));
            // A config outside of a backend directory may have other packages below it.
            let depth = match found.kind {
                FoundKind::Config => usize::MAX,
                _ => 1,
            };
            let walk = WalkDir::new(directory).max_depth(depth).into_iter();
            for entry in walk.flatten().filter(|entry| !entry.file_type().is_dir()) {
                let path = entry.into_path();
                let mark = mark(&path);
                marks.insert(path, mark);
            }
            let others = references(found, directory, roots);
            let others = others.into_iter().flat_map(files_of);
            let settings = policy.settings_for(&found.path);
            let settings = settings.and_then(|settings| Some(settings.file.as_ref()?.0.clone()));
            let lists = precision_lists(found, roots);
            for path in others.chain(lists).chain(settings) {
                let mark = mark(&path);
                marks.insert(path, mark);
            }
        }
        Self(marks)
    }

    /// Returns the creation time of the oldest file, as far as the file system records it.
    pub(super) fn created_at(&self) -> Timestamp {
        let marks = self.0.values().flatten();
        let times = marks.filter_map(|mark| mark.created.or(mark.modified));
        times
            .min()
            .and_then(timestamp)
            .unwrap_or_else(Timestamp::now)
    }

    /// Returns the time of the last change.
    pub(super) fn updated_at(&self) -> Timestamp {
        let times = self.0.values().flatten().filter_map(|mark| mark.modified);
        times
            .max()
            .and_then(timestamp)
            .unwrap_or_else(Timestamp::now)
    }
}

/// Returns the files that a config refers to.
fn references(found: &FoundFile, directory: &Path, roots: &Roots) -> Vec<PathBuf> {
    let Ok(document) = LoadedFile::read(&found.path).document else {
        return Vec::new();
    };
    let absolute = roots.absolute(directory);
    let root = roots.package_root(&absolute);
    let depth = roots::depth_below(&absolute, &root);
    let config = Config::from_document(&document);
    let files = config.files();
    files
        .filter_map(|file| reference::resolve(directory, depth, &file.reference).ok())
        .collect()
}

/// Resolves a reference to a file, or to the files of a model that is a folder.
fn files_of(path: PathBuf) -> Vec<PathBuf> {
    if !model_file::is_bundle(&path.to_string_lossy()) || !path.is_dir() {
        return vec![path];
    }
    let entries = WalkDir::new(path).into_iter().take(MAX_FOLDER_FILES);
    let files = entries.flatten().filter(|it| !it.file_type().is_dir());
    files.map(DirEntry::into_path).collect()
}

fn mark(path: &Path) -> Option<FileMark> {
    let metadata = fs::metadata(path).ok()?;
    Some(FileMark {
        size: metadata.len(),
        modified: metadata.modified().ok(),
        created: metadata.created().ok(),
    })
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(Timestamp)
}
