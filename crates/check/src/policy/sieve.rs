//! Excludes paths from a walk: those that match the setting `exclude`, and those that Git ignores.
//!
//! Invariant: the start directory of a walk is never excluded, since the user named it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::globs::Glob;
use super::ignored::GitIgnored;
use super::lookup::Lookup;
use super::settings::PolicySettings;
use pkgtool_base::package::WalkFilter;
use pkgtool_base::package::sieve::SETTINGS_FILE;

/// The path filter of one validation.
pub(super) struct ProjectWalkFilter<'p> {
    lookup: &'p Lookup,
    /// The start directory of the walk.
    top: PathBuf,
    /// The settings in force by directory.
    settings: HashMap<PathBuf, Option<Arc<PolicySettings>>>,
    /// The paths that Git ignores.
    ignored: GitIgnored,
    here: PathBuf,
}

impl<'p> ProjectWalkFilter<'p> {
    pub(super) fn new(lookup: &'p Lookup) -> Self {
        Self {
            lookup,
            top: PathBuf::new(),
            settings: HashMap::new(),
            ignored: GitIgnored::default(),
            here: lookup.roots().absolute(Path::new("")),
        }
    }

    /// Returns the settings for the files in a directory at or below the top.
    fn settings_of(&self, directory: &Path) -> Option<&Arc<PolicySettings>> {
        let mut above = directory.ancestors();
        above.find_map(|one| self.settings.get(one))?.as_ref()
    }

    fn excluding(&self, path: &Path, is_directory: bool) -> Option<String> {
        let matching = |globs: &[Glob], root: &Path| {
            let below = path.strip_prefix(root).ok()?;
            let covers_top = |glob: &Glob| {
                let top = self.top.strip_prefix(root);
                top.is_ok_and(|top| glob.covers_all_of(top))
            };
            let mut globs = globs.iter();
            let glob = globs.find(|glob| glob.matches(below, is_directory) && !covers_top(glob))?;
            Some(glob.text().to_owned())
        };
        if let Some(glob) = matching(&self.lookup.overrides().exclude, &self.here) {
            return Some(format!("excluded by --exclude {glob}"));
        }
        let settings = self.settings_of(path.parent()?)?;
        let glob = matching(&settings.exclude, &settings.root)?;
        let file = settings
            .file
            .as_ref()
            .map_or("", |(_, source)| &source.path);
        Some(format!("excluded by `exclude` in {file}: {glob}"))
    }

    /// Returns whether paths that Git ignores are excluded in a directory.
    fn respects_git(&self, directory: &Path) -> bool {
        let said = self
            .settings_of(directory)
            .and_then(|it| it.respect_gitignore);
        said.unwrap_or(true) && !self.lookup.overrides().no_gitignore
    }
}

impl WalkFilter for ProjectWalkFilter<'_> {
    fn begin(&mut self, top: &Path) {
        self.settings.clear();
        top.clone_into(&mut self.top);
        let found = self.lookup.of(top);
        self.settings.insert(top.to_owned(), found);
        self.ignored.begin(top, self.lookup.roots());
    }

    fn learn(&mut self, directory: &Path, name: &OsStr) {
        if name == SETTINGS_FILE {
            let found = self.lookup.of(directory);
            self.settings.insert(directory.to_owned(), found);
        } else {
            self.ignored.read_patterns(directory, name);
        }
    }

    fn is_idle(&self) -> bool {
        let excludes = |settings: &Option<Arc<PolicySettings>>| {
            settings
                .as_ref()
                .is_some_and(|settings| !settings.exclude.is_empty())
        };
        self.ignored.is_empty()
            && self.lookup.overrides().exclude.is_empty()
            && !self.settings.values().any(excludes)
    }

    fn exclusion_reason(&mut self, path: &Path, is_directory: bool) -> Option<String> {
        let respects_git =
            !self.ignored.is_empty() && path.parent().is_some_and(|it| self.respects_git(it));
        if respects_git
            && let Some(reason) = self
                .ignored
                .leaves_out(path, is_directory, self.lookup.roots())
        {
            return Some(reason);
        }
        self.excluding(path, is_directory)
    }
}
