//! Decides whether a file may be renamed: only if every reference to its old name gets updated.

use std::path::{Path, PathBuf};

use super::FixOptions;
use pkgtool_base::package::{Discovery, Mention, ReferenceSearch, Roots};

/// Maximum number of directory entries inspected for references.
const MAX_ENTRIES: usize = 500_000;

/// Searches for references outside the given paths.
pub(super) struct ReferenceGuard<'d> {
    pub(super) discovery: &'d Discovery,
    pub(super) roots: Roots,
    named: Vec<PathBuf>,
    surroundings: ReferenceSearch,
}

impl<'d> ReferenceGuard<'d> {
    /// Prepares the search for the given configs and the files to be renamed.
    pub(super) fn new<'p>(
        options: &FixOptions,
        discovery: &'d Discovery,
        places: impl Iterator<Item = [&'p Path; 2]>,
    ) -> Self {
        let roots = Roots::new();
        let mut surroundings = ReferenceSearch::new(MAX_ENTRIES);
        let mut is_needed = false;
        for place in places.flatten() {
            surroundings.add_around(place.parent().unwrap_or(Path::new("")), &roots);
            is_needed = true;
        }
        let named = options.validate.paths.iter().filter(|path| path.is_dir());
        let named: Vec<PathBuf> = named.map(|path| roots.absolute(path)).collect();
        for directory in named.iter().filter(|_| is_needed) {
            surroundings.add_named(directory, &roots);
        }
        Self {
            discovery,
            roots,
            named,
            surroundings,
        }
    }

    /// Returns the reason why `file`, referenced by the config at `config`, must keep its name: a
    /// reference that would not be updated. `text_of` returns the planned new texts of configs.
    pub(super) fn objection(
        &self,
        config: &Path,
        file: &Path,
        text_of: &dyn Fn(&Path) -> Option<String>,
    ) -> Option<String> {
        let roots = &self.roots;
        let absolute = roots.absolute(file);
        let mention = self.surroundings.mention(&absolute, roots, text_of)?;
        let why = match &mention {
            Mention::Config(path) if self.is_found(path) => format!(
                "{} references it where no fix applies; write the new name there by hand",
                roots.shown(path)
            ),
            Mention::Config(path) if self.is_named(path) => format!(
                "{other} references it too, but is excluded from this run; `pkgtool fix --unsafe {other} {own}` \
                 changes both",
                other = roots.shown(path),
                own = roots.shown(&roots.absolute(config)),
            ),
            Mention::Config(path) => format!(
                "{} references it too, but was not given; `pkgtool fix --unsafe {}` changes both",
                roots.shown(path),
                self.above_both(config, path)
            ),
            Mention::Broken(path) => format!(
                "the text of {} references it too, but is invalid JSON; correct it, then run again",
                roots.shown(path)
            ),
            Mention::Link(path) => format!(
                "the symbolic link {} leads to it; remove the link, then run again",
                roots.shown(path)
            ),
            Mention::Unknown(directory) => format!(
                "{} has too many entries to find all references; rename it by hand, in all configs that reference it",
                roots.shown(directory)
            ),
        };
        Some(format!("{} keeps its name: {why}", roots.shown(&absolute)))
    }

    /// Returns whether a config is one of those being fixed.
    fn is_found(&self, path: &Path) -> bool {
        let real = path.canonicalize().ok();
        let mut found = self.discovery.found.iter();
        real.is_some() && found.any(|found| found.path.canonicalize().ok() == real)
    }

    fn is_named(&self, path: &Path) -> bool {
        let path = self.roots.absolute(path);
        self.named.iter().any(|named| path.starts_with(named))
    }

    /// Returns the directory that contains both configs: their repository, else their nearest
    /// common ancestor.
    fn above_both(&self, one: &Path, other: &Path) -> String {
        let [one, other] = [one, other].map(|path| self.roots.absolute(path));
        let directory = one.parent().unwrap_or(&one);
        let repository = self.roots.repository(directory);
        let repository = repository.filter(|it| other.starts_with(it));
        let mut above = directory.ancestors();
        let top = repository.or_else(|| above.find(|it| other.starts_with(it)).map(Path::to_owned));
        let shown = top.map_or_else(String::new, |top| self.roots.shown(&top));
        if shown.is_empty() {
            ".".to_owned()
        } else {
            shown
        }
    }
}
