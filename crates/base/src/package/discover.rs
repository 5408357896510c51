//! Finds configs and precision lists in directory trees.
//!
//! Invariant: only names are inspected; no file is opened. Symbolic links to files are followed and
//! links to directories are not, so a walk always ends. Hidden directories and `node_modules` are
//! skipped unless given explicitly.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use super::bare::{BackendDirectories, BareDirectory};
use super::config::SCHEMA_ID;
use super::sieve::{self, NoFilter, WalkFilter};
use super::walked::{self, WalkRecord, strip_current_dir};
use super::{LoadedFile, Roots, config, foreign, model_file, precision};
use crate::source::hashed::{Map, Set};
use crate::source::json::Node;
use crate::source::spread::parallel_map;

/// Minimum number of paths for which several threads are used.
const MIN_PATHS_FOR_THREADS: usize = 200;

/// Reason for skipping a model file whose name is not UTF-8.
const NOT_UTF8: &str = "a model file whose name is not UTF-8: no config can name it; rename it";

/// The result of a walk.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Files to check, sorted by path, each once.
    pub found: Vec<FoundFile>,
    /// Directories that could not be listed, with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Skipped files and directories, with the reason.
    pub skipped: Vec<Skipped>,
    /// Given paths that do not exist, or are broken links.
    pub absent: Vec<PathBuf>,
    /// Backend directories with a missing or misnamed config.
    pub bare: Vec<BareDirectory>,
    /// Directory contents recorded during the walk.
    pub walked: WalkRecord,
}

/// A file to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// The path, starting like the path that the caller gave.
    pub path: PathBuf,
    /// The kind that its name indicates.
    pub kind: FoundKind,
    /// The given directory in which the walk found it; `None` for a path given explicitly.
    pub walked_from: Option<PathBuf>,
    /// Size in bytes, if it is known to be a regular file.
    pub size: Option<u64>,
}

/// The kind of a found file, as its name indicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundKind {
    /// A config: given explicitly, or `config.json` in a backend directory.
    Config,
    /// A `config.json` elsewhere: a config only if [`is_package_config`] accepts it.
    MaybeConfig,
    /// A precision list.
    PrecisionList,
}

/// A file or directory that a walk skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

impl FoundFile {
    /// Creates an entry for an explicitly given file.
    pub fn named(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            kind: named_kind(path),
            walked_from: None,
            size: None,
        }
    }

    /// Returns whether the file is a package config. A file found in a backend directory may belong
    /// to another library; an explicitly given file is always a config.
    pub fn is_config(&self, loaded: &LoadedFile) -> bool {
        match self.kind {
            FoundKind::Config => self.walked_from.is_none() || foreign::owner(loaded).is_none(),
            FoundKind::MaybeConfig => is_package_config(loaded),
            FoundKind::PrecisionList => false,
        }
    }
}

impl Discovery {
    /// Inspects `paths`: files are taken as they are, directories are walked.
    pub fn walk(paths: &[PathBuf]) -> Self {
        Self::walk_filtered(paths, &mut NoFilter, 1)
    }

    /// Like [`Self::walk`], with a sieve that excludes entries, and with this number of threads; 0
    /// means one for each core.
    pub fn walk_filtered(paths: &[PathBuf], sieve: &mut dyn WalkFilter, threads: usize) -> Self {
        let mut discovery = Self::default();
        let mut named = Vec::new();
        // Starting threads is not worthwhile for a few paths.
        let threads = if paths.len() < MIN_PATHS_FOR_THREADS {
            1
        } else {
            threads
        };
        let looked = parallel_map(paths.len(), threads, |number| paths[number].metadata().ok());
        for (path, metadata) in paths.iter().zip(looked) {
            if metadata.as_ref().is_some_and(Metadata::is_dir) {
                discovery.walk_directory(path, sieve);
                continue;
            }
            if metadata.is_none() {
                discovery.absent.push(path.clone());
            }
            let file = metadata.as_ref().filter(|metadata| metadata.is_file());
            discovery.found.push(FoundFile {
                size: file.map(Metadata::len),
                ..FoundFile::named(path)
            });
            named.push(metadata.as_ref().and_then(FileId::of));
        }
        if paths.len() > 1 {
            discovery.remove_duplicates(named);
        }
        discovery
    }

    /// Adds an explicitly given precision list, unless it was found already.
    pub fn add_list(&mut self, path: &Path) {
        self.found.push(FoundFile {
            path: path.to_owned(),
            kind: FoundKind::PrecisionList,
            walked_from: None,
            size: None,
        });
        self.remove_duplicates(Vec::new());
    }

    fn walk_directory(&mut self, directory: &Path, sieve: &mut dyn WalkFilter) {
        let mut homes = BackendDirectories::new(directory);
        let top = Roots::new().absolute(directory);
        sieve.begin(&top);
        let walk = WalkDir::new(directory);
        let mut walk = walk
            .sort_by(|a, b| sieve::exclusions_first(a.file_name(), b.file_name()))
            .into_iter();
        while let Some(entry) = walk.next() {
            match entry {
                Ok(entry) => {
                    let name = entry.file_name();
                    if entry.depth() > 0 && self.is_filtered(&entry, (directory, &top), sieve) {
                        // An excluded config still exists, so its models are not reported as
                        // lacking one.
                        if entry.file_type().is_dir() {
                            walk.skip_current_dir();
                        } else if name == config::FILE_NAME {
                            homes.record(&entry, name);
                        }
                        continue;
                    }
                    let in_backend = homes.record(&entry, name);
                    if walked::is_mark(name) {
                        self.remember_mark(&entry, directory, &top);
                    }
                    if entry.depth() > 0 && self.skips_directory(&entry, name) {
                        walk.skip_current_dir();
                    } else if let Some(kind) = walked_kind(name, in_backend) {
                        self.take(&entry, directory, kind);
                    } else if entry.path_is_symlink() && entry.path().is_dir() {
                        self.skip(&entry, "links to directories are not followed");
                    }
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
        let nameless = homes.take_nameless().into_iter();
        self.skipped.extend(nameless.map(|path| Skipped {
            path,
            reason: NOT_UTF8.to_owned(),
        }));
        self.bare.extend(homes.finish(&mut self.walked));
        self.walked.add_top(directory, top);
    }

    /// Returns whether a sieve excludes an entry. The sieve learns from ignore files and settings.
    fn is_filtered(
        &mut self,
        entry: &DirEntry,
        (directory, top): (&Path, &Path),
        sieve: &mut dyn WalkFilter,
    ) -> bool {
        let says = sieve::defines_exclusions(entry.file_name());
        if !says && sieve.is_idle() {
            return false;
        }
        let Ok(below) = entry.path().strip_prefix(directory) else {
            return false;
        };
        let path = top.join(below);
        if says {
            sieve.learn(path.parent().unwrap_or(top), entry.file_name());
            return false;
        }
        let Some(reason) = sieve.exclusion_reason(&path, entry.file_type().is_dir()) else {
            return false;
        };
        // Excluded entries are recorded only if they would otherwise have been inspected.
        if entry.file_type().is_dir() || is_inspected(entry.file_name()) {
            self.skip(entry, &reason);
        }
        true
    }

    fn remember_mark(&mut self, entry: &DirEntry, directory: &Path, top: &Path) {
        if let Ok(below) = entry.path().strip_prefix(directory) {
            self.walked.add_mark(top.join(below));
        }
    }

    fn take(&mut self, entry: &DirEntry, directory: &Path, kind: FoundKind) {
        // A directory named like a config is kept, because its check reports the problem.
        if entry.file_type().is_dir() && kind != FoundKind::Config {
            self.skip(entry, "a directory named like a config");
            return;
        }
        self.found.push(FoundFile {
            path: strip_current_dir(entry.path()),
            kind,
            walked_from: Some(directory.to_owned()),
            size: None,
        });
    }

    /// Returns whether a directory is always skipped.
    fn skips_directory(&mut self, entry: &DirEntry, name: &OsStr) -> bool {
        let name = name.as_encoded_bytes();
        let reason = match name {
            _ if !entry.file_type().is_dir() => return false,
            b"node_modules" => "npm packages are skipped unless given explicitly",
            [b'.', ..] => "hidden directories are skipped unless given explicitly",
            _ => return false,
        };
        // Every checkout has a `.git`, so recording it would be noise.
        if name != b".git" {
            self.skip(entry, reason);
        }
        true
    }

    fn skip(&mut self, entry: &DirEntry, reason: &str) {
        self.skipped.push(Skipped {
            path: strip_current_dir(entry.path()),
            reason: reason.to_owned(),
        });
    }

    /// Drops files that an earlier path already gave. An explicitly given file takes precedence
    /// over the same file found by a walk, because it is checked more strictly. `ids` are those of
    /// the first explicitly given files, in order, as far as they are known.
    fn remove_duplicates(&mut self, mut ids: Vec<Option<FileId>>) {
        self.found.sort_by_key(|found| found.walked_from.is_some());
        let rest = self.found.iter().skip(ids.len());
        let rest = rest.map(|found| FileId::of(&found.path.metadata().ok()?));
        ids.extend(rest);
        let mut files: Map<Option<FileId>, usize> = Map::default();
        files.reserve(ids.len());
        for id in &ids {
            *files.entry(*id).or_default() += 1;
        }
        // Resolving a path costs a system call for each parent directory. Hard links of one file
        // count as different files.
        let mut ids = ids.into_iter();
        let mut seen = Set::default();
        self.found.retain(|found| {
            let id = ids.next().flatten();
            if id.is_some() && files.get(&id) == Some(&1) {
                return true;
            }
            let real = found.path.canonicalize();
            seen.insert(real.unwrap_or_else(|_| found.path.clone()))
        });
        self.found.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

/// The identity of a file under any path: device and inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileId(u64, u64);

impl FileId {
    /// Returns `None` on systems without file numbers.
    #[cfg(unix)]
    #[expect(
        clippy::unnecessary_wraps,
        reason = "not every system has file numbers"
    )]
    fn of(metadata: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        Some(Self(metadata.dev(), metadata.ino()))
    }

    /// Returns `None` on systems without file numbers.
    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Option<Self> {
        None
    }
}

/// Returns whether a `config.json` outside a backend directory is a package config: an object with
/// `backend`, `variants` or our `$schema`. Text that does not parse counts if it contains both
/// keys.
pub fn is_package_config(loaded: &LoadedFile) -> bool {
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

/// Returns whether a walk inspects a file of this name: a config, a precision list or a model.
pub fn is_inspected(name: &OsStr) -> bool {
    walked_kind(name, false).is_some() || name.to_str().is_some_and(model_file::has_extension)
}

fn walked_kind(name: &OsStr, in_backend: bool) -> Option<FoundKind> {
    if name == precision::FILE_NAME {
        return Some(FoundKind::PrecisionList);
    }
    if name != config::FILE_NAME {
        return None;
    }
    Some(if in_backend {
        FoundKind::Config
    } else {
        FoundKind::MaybeConfig
    })
}
