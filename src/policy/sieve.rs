//! What a walk leaves out because a project says so: `exclude`, and what git ignores.
//!
//! Invariant: the directory that a walk begins with is walked, whatever covers it: to name it is to ask for
//! it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::Gitignore;

use super::globs::Glob;
use super::lookup::Lookup;
use super::settings::Settings;
use crate::package::Sieve;
use crate::package::sieve::SETTINGS_FILE;

/// The name of git's own files.
const GITIGNORE: &str = ".gitignore";

/// Largest `.gitignore` that is read, in bytes.
const MAX_GITIGNORE: u64 = 1024 * 1024;

/// The sieve of one validation.
pub(super) struct ProjectSieve<'p> {
    lookup: &'p Lookup,
    /// The directory that the walk began with.
    top: PathBuf,
    /// Settings that hold below directories, the nearest last.
    settings: HashMap<PathBuf, Option<Arc<Settings>>>,
    /// What git ignores below directories.
    ignored: HashMap<PathBuf, Gitignore>,
    /// The root of the checkout that the walk began in.
    checkout: Option<PathBuf>,
    here: PathBuf,
}

impl<'p> ProjectSieve<'p> {
    pub(super) fn new(lookup: &'p Lookup) -> Self {
        Self {
            lookup,
            top: PathBuf::new(),
            settings: HashMap::new(),
            ignored: HashMap::new(),
            checkout: None,
            here: lookup.roots().absolute(Path::new("")),
        }
    }

    /// The settings for what stands in a directory at or below the top.
    fn settings_of(&self, directory: &Path) -> Option<&Arc<Settings>> {
        let mut above = directory.ancestors();
        above.find_map(|one| self.settings.get(one))?.as_ref()
    }

    fn read_gitignore(&mut self, directory: &Path) {
        let file = directory.join(GITIGNORE);
        let is_small = |file: &Path| {
            file.metadata()
                .is_ok_and(|it| it.is_file() && it.len() <= MAX_GITIGNORE)
        };
        if is_small(&file) {
            // A line that git cannot read is passed over, as git does.
            let (matcher, _) = Gitignore::new(file);
            if !covers_all_of(&matcher, &self.top) {
                self.ignored.insert(directory.to_owned(), matcher);
            }
        }
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
            return Some(format!("left out by --exclude {glob}"));
        }
        let settings = self.settings_of(path.parent()?)?;
        let glob = matching(&settings.exclude, &settings.root)?;
        let file = settings
            .file
            .as_ref()
            .map_or("", |(_, source)| &source.path);
        Some(format!("left out by `exclude` in {file}: {glob}"))
    }

    fn is_git_ignored(&self, path: &Path, is_directory: bool) -> bool {
        let respects = |directory: &Path| {
            let said = self
                .settings_of(directory)
                .and_then(|it| it.respect_gitignore);
            said.unwrap_or(true) && !self.lookup.overrides().no_gitignore
        };
        if self.ignored.is_empty() || !path.parent().is_some_and(respects) {
            return false;
        }
        for directory in path.ancestors().skip(1) {
            match self
                .ignored
                .get(directory)
                .map(|it| it.matched(path, is_directory))
            {
                Some(Match::Ignore(_)) => return true,
                Some(Match::Whitelist(_)) => return false,
                _ => {}
            }
            if self.checkout.as_deref() == Some(directory) {
                break;
            }
        }
        false
    }
}

impl Sieve for ProjectSieve<'_> {
    fn begin(&mut self, top: &Path) {
        self.settings.clear();
        self.ignored.clear();
        top.clone_into(&mut self.top);
        let found = self.lookup.of(top);
        self.settings.insert(top.to_owned(), found);
        self.checkout = self.lookup.roots().checkout(top);
        if let Some(checkout) = &self.checkout {
            let checkout = checkout.clone();
            let above = top.ancestors().skip(1);
            for directory in above.take_while(|above| above.starts_with(&checkout)) {
                self.read_gitignore(directory);
            }
        }
    }

    fn learn(&mut self, directory: &Path, name: &OsStr) {
        if name == SETTINGS_FILE {
            let found = self.lookup.of(directory);
            self.settings.insert(directory.to_owned(), found);
        } else if self.checkout.is_some() || directory.join(".git").symlink_metadata().is_ok() {
            self.read_gitignore(directory);
        }
    }

    fn is_idle(&self) -> bool {
        let excludes = |settings: &Option<Arc<Settings>>| {
            settings
                .as_ref()
                .is_some_and(|settings| !settings.exclude.is_empty())
        };
        self.ignored.is_empty()
            && self.lookup.overrides().exclude.is_empty()
            && !self.settings.values().any(excludes)
    }

    fn leaves_out(&mut self, path: &Path, is_directory: bool) -> Option<String> {
        if self.is_git_ignored(path, is_directory) {
            return Some("git ignores it; --no-gitignore looks at it".to_owned());
        }
        self.excluding(path, is_directory)
    }
}

/// Whether git ignores all that is in a directory at or below that of the file.
fn covers_all_of(matcher: &Gitignore, directory: &Path) -> bool {
    let root = matcher.path();
    let is_ignored =
        |path: &Path, is_directory| matches!(matcher.matched(path, is_directory), Match::Ignore(_));
    let between = directory
        .ancestors()
        .take_while(|one| *one != root && one.starts_with(root));
    let mut between = between.peekable();
    between.any(|one| is_ignored(one, true) || is_ignored(&one.join("\u{1}"), false))
}
