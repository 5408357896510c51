//! Watches files for `--watch`, which validates again after each change.
//!
//! Named directories are watched recursively. For a named file, its directory is watched, and so
//! are the directories of files that configs name elsewhere. Changes in quick succession count as
//! one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use crate::cli::exit::Failure;
use pkgtool_base::package::reference::resolve;
use pkgtool_base::package::{Config, Discovery, LoadedFile, Roots, roots};

/// Time without changes after which a change is handled.
const QUIET_PERIOD: Duration = Duration::from_millis(150);
/// Maximum delay of a change while further changes arrive.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// A watcher and the directories that it watches.
pub(super) struct FileWatch {
    watcher: RecommendedWatcher,
    events: Receiver<notify::Result<Event>>,
    /// Absolute directories that are watched recursively (`deep`) and without their subdirectories
    /// (`flat`).
    deep: HashSet<PathBuf>,
    flat: HashSet<PathBuf>,
}

impl FileWatch {
    /// Starts watching the given paths.
    pub(super) fn start(paths: &[PathBuf]) -> Result<Self, Failure> {
        let (sender, events) = channel();
        let send = move |event| {
            // The receiver is gone when the command has ended.
            let _ = sender.send(event);
        };
        let watcher = notify::recommended_watcher(send).map_err(|error| failed(&error))?;
        let mut watch = Self {
            watcher,
            events,
            deep: HashSet::new(),
            flat: HashSet::new(),
        };
        watch.follow(paths)?;
        Ok(watch)
    }

    /// Also watches the directories of files that configs name now.
    pub(super) fn follow(&mut self, paths: &[PathBuf]) -> Result<(), Failure> {
        let roots = Roots::new();
        for path in paths {
            let absolute = roots.absolute(path);
            if path.is_dir() {
                self.add(absolute, true)?;
            } else if let Some(parent) = absolute.parent().filter(|parent| parent.is_dir()) {
                self.add(parent.to_owned(), false)?;
            }
        }
        for found in Discovery::walk(paths).found {
            let directory = roots.absolute(found.path.parent().unwrap_or(Path::new("")));
            let depth = roots::depth_below(&directory, &roots.package_root(&directory));
            let Ok(document) = LoadedFile::read(&found.path).document else {
                continue;
            };
            for file in Config::from_document(&document).files() {
                let path = resolve(&directory, depth, &file.reference).ok();
                let parent = path.as_deref().and_then(Path::parent);
                if let Some(parent) = parent.filter(|parent| parent.is_dir()) {
                    self.add(parent.to_owned(), false)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, directory: PathBuf, is_deep: bool) -> Result<(), Failure> {
        let mut above = directory.ancestors();
        if above.any(|above| self.deep.contains(above))
            || self.flat.contains(&directory) && !is_deep
        {
            return Ok(());
        }
        let mode = if is_deep {
            RecursiveMode::Recursive
        } else {
            RecursiveMode::NonRecursive
        };
        let watched = self.watcher.watch(&directory, mode);
        watched.map_err(|error| failed(&error))?;
        if is_deep {
            self.deep.insert(directory);
        } else {
            self.flat.insert(directory);
        }
        Ok(())
    }

    /// Waits for a change and the silence after it, and returns one changed path. Returns `None` if
    /// watching has failed.
    pub(super) fn next(&self) -> Option<PathBuf> {
        let path = loop {
            let event = self.events.recv().ok()?;
            if let Some(path) = event.ok().and_then(|event| changed(&event)) {
                break path;
            }
        };
        let begun = Instant::now();
        while begun.elapsed() < MAX_DELAY {
            match self.events.recv_timeout(QUIET_PERIOD) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        Some(path)
    }
}

/// Returns the changed path of an event. Read accesses and changes of Git's own files are ignored.
fn changed(event: &Event) -> Option<PathBuf> {
    let counts = match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    };
    let is_git = |path: &&PathBuf| path.components().any(|part| part.as_os_str() == ".git");
    let mut paths = event.paths.iter().filter(|path| !is_git(path));
    counts.then(|| paths.next().cloned()).flatten()
}

fn failed(error: &notify::Error) -> Failure {
    Failure::Other(format!("cannot watch for changes: {error}"))
}
