//! Successive checks of a text in an editor, while the referenced files mostly stay the same.
//!
//! The language server holds a [`ValidationSession`]. Invariant: a check reports what
//! [`super::validate_bytes`] would report, but reads a model header again only if the file has
//! changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{FileCache, FileFacts};
use super::kept::FactCache;
use super::{Precisions, ProjectPolicy, ValidationOutcome, ValidationRun, collect};
use pkgtool_base::package::{Discovery, FoundFile, LoadedFile, PrecisionList, Roots, precision};

/// The state shared by successive checks.
#[derive(Debug)]
pub struct ValidationSession {
    open_models: bool,
    kept: Arc<FactCache<FileFacts>>,
}

impl ValidationSession {
    /// Creates an empty session. Without `open_models`, no model file is opened.
    pub fn new(open_models: bool) -> Self {
        Self {
            open_models,
            kept: Arc::new(FactCache::new()),
        }
    }

    /// Checks a text as the content of the file `found`. References are resolved relative to that
    /// file; the file itself is not read and need not exist. `ruling` supplies the project's
    /// requirements.
    pub fn check(
        &self,
        found: &FoundFile,
        loaded: &LoadedFile,
        ruling: &dyn ProjectPolicy,
    ) -> ValidationOutcome {
        let discovery = Discovery::default();
        let files = FileCache::with_fact_cache(self.open_models, Arc::clone(&self.kept));
        let run = ValidationRun::with(&discovery.walked, files, None, ruling);
        let checked = run.check_loaded(found, loaded);
        collect(vec![checked], &discovery, &run)
    }

    /// Returns whether model files are opened.
    pub fn opens_models(&self) -> bool {
        self.open_models
    }

    /// Returns the facts about the file at `path`, as a model if `as_model` is set and the session
    /// opens models.
    pub fn file(&self, path: &Path, as_model: bool) -> Arc<FileFacts> {
        let opens = as_model && self.open_models;
        self.kept
            .facts(path, opens, || FileFacts::look(path.to_owned(), opens))
    }

    /// Returns the precision list that applies to the config `found`, and its file; `None` for the
    /// built-in list.
    pub fn precisions(&self, found: &FoundFile) -> (PrecisionList, Option<PathBuf>) {
        let roots = Roots::new();
        let directory = roots.absolute(found.path.parent().unwrap_or(Path::new("")));
        let root = roots.package_root(&directory);
        let mut places = roots.list_places(&directory, &root, found.walked_from.as_deref());
        let file = places.find_map(|place| {
            let path = place.join(precision::FILE_NAME);
            path.symlink_metadata().is_ok().then_some(path)
        });
        match file {
            Some(path) => (Precisions::read(&LoadedFile::read(&path)).list, Some(path)),
            None => (PrecisionList::embedded(), None),
        }
    }

    /// Returns the inspected files that have changed since.
    pub fn changed(&self) -> Vec<PathBuf> {
        self.kept.changed()
    }

    /// Forgets the facts about `path` and everything below it.
    pub fn forget(&self, path: &Path) {
        self.kept.forget(path);
    }
}
