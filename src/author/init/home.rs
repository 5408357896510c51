//! Directories that get a config: those with model files, named after a backend or named by the caller.

use std::path::{Path, PathBuf};

use super::names;
use crate::package::roots::depth_below;
use crate::package::{Backend, LoadFault, Loaded, Roots, Skipped, config, foreign, model_file};
use crate::policy::Policy;

/// Most model files of one directory.
const MAX_FILES: usize = 1000;

/// A directory that gets a config.
#[derive(Debug)]
pub(super) struct Home {
    /// As the caller's path leads there.
    pub(super) directory: PathBuf,
    /// From the file system's root.
    pub(super) absolute: PathBuf,
    /// What its references may not leave.
    pub(super) root: PathBuf,
    /// The backend that it is named after.
    pub(super) named: Option<Backend>,
    /// Names of its model files, sorted.
    pub(super) files: Vec<String>,
    /// What stands at the config's path.
    pub(super) there: There,
}

/// What stands where the config will.
#[derive(Debug)]
pub(super) enum There {
    /// Nothing.
    Nothing,
    /// A file without content.
    Empty,
    /// A config, or something else of its name.
    Something(Box<Loaded>),
}

/// A directory that gets none, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// The directory or the config in it.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// What the caller asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) directory: &'a Path,
    pub(super) backend: Option<Backend>,
    pub(super) force: bool,
}

impl Home {
    /// The directories from its own up to the package's, in which files that belong to it are looked for.
    pub(super) fn places(&self, in_size_directory: bool) -> impl Iterator<Item = &Path> {
        let levels = match (self.named, in_size_directory) {
            (None, _) => 0,
            (Some(_), false) => 1,
            (Some(_), true) => 2,
        };
        let levels = levels.min(depth_below(&self.absolute, &self.root));
        self.absolute.ancestors().take(levels + 1)
    }

    /// The name of the directory so many levels above, as a token. A directory that is not a backend's is its own
    /// first level.
    pub(super) fn above(&self, level: usize) -> Option<String> {
        let level = level - usize::from(self.named.is_none());
        let name = self.absolute.ancestors().nth(level)?.file_name()?;
        Some(names::token(name.to_str()?))
    }

    /// The path of its config.
    pub(super) fn config(&self) -> PathBuf {
        self.directory.join(config::FILE_NAME)
    }
}

/// What a directory has.
#[derive(Debug)]
pub(super) struct Search {
    /// The directories that get a config.
    pub(super) homes: Vec<Home>,
    /// Those with model files that don't.
    pub(super) passed_over: Vec<PassedOver>,
    /// What was not looked into.
    pub(super) skipped: Vec<Skipped>,
}

/// Looks for the directories that get a config.
pub(super) fn find(wish: &Wish<'_>, policy: &Policy, roots: &Roots) -> Search {
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
        passed.push(PassedOver {
            path: path.clone(),
            reason: format!("cannot be listed: {reason}"),
        });
    }
    let nameless = discovery.skipped.iter();
    let nameless =
        nameless.filter(|it| it.path.file_name().is_some_and(|it| it.to_str().is_none()));
    passed.extend(nameless.map(|skipped| PassedOver {
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
                "its model files lie in no directory named after a backend: move them into one (`{}/`, …), \
                 or name the directory: `pkgtool init {}`",
                Backend::Xnnpack,
                directory.display()
            ))
        } else if backend.is_some() && wish.backend.is_some_and(|wish| Some(wish) != backend) {
            Some("another backend was asked for".to_owned())
        } else if files.len() > MAX_FILES {
            Some(format!(
                "it has {} model files, at most {MAX_FILES} are read",
                files.len()
            ))
        } else {
            None
        };
        if let Some(reason) = reason {
            let path = directory.to_owned();
            passed.push(PassedOver { path, reason });
            continue;
        }
        files.sort_unstable();
        let home = Home {
            directory: directory.to_owned(),
            root: roots.package_root(&absolute),
            named: backend,
            there: There::look(directory),
            absolute,
            files,
        };
        match home.there.keeps(&home, wish.force) {
            Some(kept) => passed.push(kept),
            None => homes.push(home),
        }
    }
    Search {
        homes,
        passed_over: passed,
        skipped: discovery.skipped,
    }
}

impl There {
    fn look(directory: &Path) -> Self {
        let path = directory.join(config::FILE_NAME);
        if path.symlink_metadata().is_err() {
            return Self::Nothing;
        }
        let loaded = Loaded::read(&path);
        match loaded.document {
            Err(LoadFault::Empty) => Self::Empty,
            _ => Self::Something(Box::new(loaded)),
        }
    }

    /// Why no config is written over what is there.
    fn keeps(&self, home: &Home, force: bool) -> Option<PassedOver> {
        let Self::Something(loaded) = self else {
            return misnamed(&home.directory).filter(|_| !force);
        };
        if force {
            return None;
        }
        let reason = match foreign::owner(loaded) {
            Some(owner) => format!("a config of {owner} is there; --force writes over it"),
            None => format!(
                "a config is there already: `pkgtool fix {}` brings it up to date, --force writes it anew",
                home.directory.join(config::FILE_NAME).display()
            ),
        };
        let path = home.config();
        Some(PassedOver { path, reason })
    }
}

/// A `Config.json`: most likely the config, and the same file on some systems.
fn misnamed(directory: &Path) -> Option<PassedOver> {
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
    Some(PassedOver {
        path: directory.join(name),
        reason: format!(
            "it is most likely the config, under a name that nobody looks for: rename it to {}, or write a new \
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

/// The caller's directory as the walk's paths begin.
fn stripped(directory: &Path) -> PathBuf {
    directory.strip_prefix(".").unwrap_or(directory).to_owned()
}
