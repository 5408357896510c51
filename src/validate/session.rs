//! Checks that follow one another: of texts that somebody is writing, while the files they name mostly stay.
//!
//! Invariant: a check says what [`super::validate_bytes`] would say; the header of a model is read again only
//! if the file was changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{FileCache, FileFacts};
use super::kept::Kept;
use super::{Outcome, Precisions, Ruling, Run, collect};
use crate::package::{Discovery, Found, Loaded, PrecisionList, Roots, precision};

/// What checks share.
#[derive(Debug)]
pub struct Session {
    open_models: bool,
    kept: Arc<Kept<FileFacts>>,
}

impl Session {
    /// Nothing seen yet. Without `open_models` no model file is opened.
    pub fn new(open_models: bool) -> Self {
        Self {
            open_models,
            kept: Arc::new(Kept::new()),
        }
    }

    /// Checks a text as if it were the file `found`: what it refers to is looked for beside it, but the file
    /// itself is not read and need not exist. `ruling` is what a project asks.
    pub fn check(&self, found: &Found, loaded: &Loaded, ruling: &dyn Ruling) -> Outcome {
        let discovery = Discovery::default();
        let files = FileCache::keeping(self.open_models, Arc::clone(&self.kept));
        let run = Run::with(&discovery.walked, files, None, ruling);
        let checked = run.check_loaded(found, loaded);
        collect(vec![checked], &discovery, &run)
    }

    /// Whether model files are opened.
    pub fn opens_models(&self) -> bool {
        self.open_models
    }

    /// What is known of the file at `path`; as a model only if it is wanted as one.
    pub fn file(&self, path: &Path, as_model: bool) -> Arc<FileFacts> {
        let opens = as_model && self.open_models;
        self.kept
            .facts(path, opens, || FileFacts::look(path.to_owned(), opens))
    }

    /// The precision list that rules the config `found`, and its file; no file for the built-in list.
    pub fn precisions(&self, found: &Found) -> (PrecisionList, Option<PathBuf>) {
        let roots = Roots::new();
        let directory = roots.absolute(found.path.parent().unwrap_or(Path::new("")));
        let root = roots.package_root(&directory);
        let mut places = roots.list_places(&directory, &root, found.walked_from.as_deref());
        let file = places.find_map(|place| {
            let path = place.join(precision::FILE_NAME);
            path.symlink_metadata().is_ok().then_some(path)
        });
        match file {
            Some(path) => (Precisions::read(&Loaded::read(&path)).list, Some(path)),
            None => (PrecisionList::embedded(), None),
        }
    }

    /// Files that were looked at and are no longer as they were.
    pub fn changed(&self) -> Vec<PathBuf> {
        self.kept.changed()
    }

    /// Forgets what was seen at `path` and below.
    pub fn forget(&self, path: &Path) {
        self.kept.forget(path);
    }
}
