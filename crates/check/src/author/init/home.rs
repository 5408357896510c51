//! Finds the directories that get a config: those with model files that are named after a backend
//! or given by the caller.

use std::path::{Path, PathBuf};

use super::names;
use crate::policy::Policy;
use pkgtool_base::package::roots::depth_below;
use pkgtool_base::package::{
    Backend, LoadFault, LoadedFile, Roots, Skipped, config, foreign, model_file,
};

/// Maximum number of model files in one directory.
const MAX_FILES: usize = 1000;

/// A directory that gets a config.
#[derive(Debug)]
pub(super) struct ModelDirectory {
    /// The path, starting like the caller's path.
    pub(super) directory: PathBuf,
    /// The absolute path.
    pub(super) absolute: PathBuf,
    /// The package root, which references may not leave.
    pub(super) root: PathBuf,
    /// The backend after which the directory is named.
    pub(super) named: Option<Backend>,
    /// Names of the model files, sorted.
    pub(super) files: Vec<String>,
    /// The existing file at the config's path.
    pub(super) there: ExistingConfig,
}

/// The existing file at the config's path.
#[derive(Debug)]
pub(super) enum ExistingConfig {
    /// No file.
    Nothing,
    /// An empty file.
    Empty,
    /// A config, or another file with that name.
    Something(Box<LoadedFile>),
}

/// A directory that gets no config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedDirectory {
    /// The directory, or the config in it.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// The caller's request.
#[derive(Debug, Clone, Copy)]
pub(super) struct InitRequest<'a> {
    pub(super) directory: &'a Path,
    pub(super) backend: Option<Backend>,
    pub(super) force: bool,
}

impl ModelDirectory {
    /// Returns the directories that may contain files of the package: from its own up to the
    /// package's.
    pub(super) fn places(&self, in_size_directory: bool) -> impl Iterator<Item = &Path> {
        let levels = match (self.named, in_size_directory) {
            (None, _) => 0,
            (Some(_), false) => 1,
            (Some(_), true) => 2,
        };
        let levels = levels.min(depth_below(&self.absolute, &self.root));
        self.absolute.ancestors().take(levels + 1)
    }

    /// Returns the name of the directory `level` levels above, as a token. A directory that is not
    /// named after a backend is its own first level.
    pub(super) fn above(&self, level: usize) -> Option<String> {
        let level = level - usize::from(self.named.is_none());
        let name = self.absolute.ancestors().nth(level)?.file_name()?;
        Some(names::token(name.to_str()?))
    }

    /// Returns the path of its config.
    pub(super) fn config(&self) -> PathBuf {
        self.directory.join(config::FILE_NAME)
    }
}

/// The result of a search.
#[derive(Debug)]
pub(super) struct SearchResult {
    /// The directories that get a config.
    pub(super) homes: Vec<ModelDirectory>,
    /// Directories with model files that get no config.
    pub(super) passed_over: Vec<SkippedDirectory>,
    /// Files and directories that were not searched.
    pub(super) skipped: Vec<Skipped>,
}

/// Searches for the directories that get a config.
pub(super) fn find(wish: &InitRequest<'_>, policy: &Policy, roots: &Roots) -> SearchResult {
    let discovery = policy.discover(&[wish.directory.to_owned()]);
    let top = stripped(wish.directory);
    let found = discovery.walked.model_directories();
    let mut found: Vec<(&Path, &[String])> = found
        .filter(|(directory, _)| !is_inside_bundle(directory, &top))
        .collect();
    found.sort_unstable();
    let has_backends = found
        .iter()
        .any(|(directory, _)| named(&roots.absolute(directory)).is_some());
    let (mut homes, mut passed) = (Vec::new(), Vec::new());
    for (path, reason) in &discovery.unreadable {
        passed.push(SkippedDirectory {
            path: path.clone(),
            reason: format!("cannot be listed: {reason}"),
        });
    }
    let nameless = discovery.skipped.iter();
    let nameless =
        nameless.filter(|it| it.path.file_name().is_some_and(|it| it.to_str().is_none()));
    passed.extend(nameless.map(|skipped| SkippedDirectory {
        path: skipped.path.clone(),
        reason: skipped.reason.clone(),
    }));
    for (directory, files) in found {
        let mut files: Vec<String> = files
            .iter()
            .filter(|name| !model_file::is_shadow(name))
            .cloned()
            .collect();
        if files.is_empty() {
            continue;
        }
        let absolute = roots.absolute(directory);
        let backend = named(&absolute);
        let reason = if backend.is_none() && (has_backends || directory != top) {
            Some(format!(
                "its model files are not in a directory named after a backend: move them into one (`{}/`, …), \
                 or name the directory: `pkgtool init {}`",
                Backend::Xnnpack,
                directory.display()
            ))
        } else if backend.is_some() && wish.backend.is_some_and(|wish| Some(wish) != backend) {
            Some("another backend was requested".to_owned())
        } else if files.len() > MAX_FILES {
            Some(format!(
                "it has {} model files, the limit is {MAX_FILES}",
                files.len()
            ))
        } else {
            None
        };
        if let Some(reason) = reason {
            let path = directory.to_owned();
            passed.push(SkippedDirectory { path, reason });
            continue;
        }
        files.sort_unstable();
        let home = ModelDirectory {
            directory: directory.to_owned(),
            root: roots.package_root(&absolute),
            named: backend,
            there: ExistingConfig::look(directory),
            absolute,
            files,
        };
        match home.there.refusal(&home, wish.force) {
            Some(kept) => passed.push(kept),
            None => homes.push(home),
        }
    }
    SearchResult {
        homes,
        passed_over: passed,
        skipped: discovery.skipped,
    }
}

impl ExistingConfig {
    fn look(directory: &Path) -> Self {
        let path = directory.join(config::FILE_NAME);
        if path.symlink_metadata().is_err() {
            return Self::Nothing;
        }
        let loaded = LoadedFile::read(&path);
        match loaded.document {
            Err(LoadFault::Empty) => Self::Empty,
            _ => Self::Something(Box::new(loaded)),
        }
    }

    /// Returns the reason for not overwriting the existing file.
    fn refusal(&self, home: &ModelDirectory, force: bool) -> Option<SkippedDirectory> {
        let Self::Something(loaded) = self else {
            return misnamed(&home.directory).filter(|_| !force);
        };
        if force {
            return None;
        }
        let reason = match foreign::owner(loaded) {
            Some(owner) => format!("a config of {owner} already exists; --force overwrites it"),
            None => format!(
                "a config already exists: `pkgtool fix {}` updates it, --force replaces it",
                home.directory.join(config::FILE_NAME).display()
            ),
        };
        let path = home.config();
        Some(SkippedDirectory { path, reason })
    }
}

/// Detects a `Config.json`: probably the config, and on some systems the same file as
/// `config.json`.
fn misnamed(directory: &Path) -> Option<SkippedDirectory> {
    let listed = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let entries = std::fs::read_dir(listed).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let meant =
        |name: &String| name != config::FILE_NAME && name.eq_ignore_ascii_case(config::FILE_NAME);
    let name = names.into_iter().find(meant)?;
    Some(SkippedDirectory {
        path: directory.join(name),
        reason: format!(
            "it is most likely the config under a wrong name: rename it to {}, or write a new \
             one with --force",
            config::FILE_NAME
        ),
    })
}

fn named(absolute: &Path) -> Option<Backend> {
    Backend::from_name(absolute.file_name()?.to_str()?)
}

fn is_inside_bundle(directory: &Path, top: &Path) -> bool {
    let mut above = directory.ancestors().take_while(|path| *path != top);
    above.any(|path| path.to_str().is_some_and(model_file::is_bundle))
}

/// Returns the caller's directory spelled as in the paths of the walk.
fn stripped(directory: &Path) -> PathBuf {
    directory.strip_prefix(".").unwrap_or(directory).to_owned()
}
