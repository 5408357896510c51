//! Whether a file may get another name: only if nothing is left that names it by the one it has.

use std::path::{Path, PathBuf};

use super::Options;
use crate::package::{Discovery, Mention, Roots, Surroundings};

/// Most entries of directories that are looked at for what names a file.
const MAX_ENTRIES: usize = 500_000;

/// Looks after what was not named.
pub(super) struct Guard<'d> {
    pub(super) discovery: &'d Discovery,
    pub(super) roots: Roots,
    named: Vec<PathBuf>,
    surroundings: Surroundings,
}

impl<'d> Guard<'d> {
    /// For configs and the files that they want to be renamed.
    pub(super) fn new<'p>(
        options: &Options,
        discovery: &'d Discovery,
        places: impl Iterator<Item = [&'p Path; 2]>,
    ) -> Self {
        let roots = Roots::new();
        let mut surroundings = Surroundings::new(MAX_ENTRIES);
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

    /// Why `file`, named by the config at `config`, keeps its name: something names it that would not be changed.
    /// `text_of` has the texts that configs will have.
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
                "{} names it where no fix changes it; write the new name there by hand",
                roots.shown(path)
            ),
            Mention::Config(path) if self.is_named(path) => format!(
                "{other} names it, too, and is left out of what is walked; `pkgtool fix --unsafe {other} {own}` \
                 changes both",
                other = roots.shown(path),
                own = roots.shown(&roots.absolute(config)),
            ),
            Mention::Config(path) => format!(
                "{} names it, too, and is not among what was named; `pkgtool fix --unsafe {}` changes both",
                roots.shown(path),
                self.above_both(config, path)
            ),
            Mention::Broken(path) => format!(
                "the text of {} names it, too, and is no JSON; mend it, then run again",
                roots.shown(path)
            ),
            Mention::Link(path) => format!(
                "the symbolic link {} leads to it; remove the link, then run again",
                roots.shown(path)
            ),
            Mention::Unknown(directory) => format!(
                "there is too much in {} to know what else names it; rename it by hand, in all configs that name it",
                roots.shown(directory)
            ),
        };
        Some(format!("{} keeps its name: {why}", roots.shown(&absolute)))
    }

    /// Whether a config is one of those that are mended.
    fn is_found(&self, path: &Path) -> bool {
        let real = path.canonicalize().ok();
        let mut found = self.discovery.found.iter();
        real.is_some() && found.any(|found| found.path.canonicalize().ok() == real)
    }

    fn is_named(&self, path: &Path) -> bool {
        let path = self.roots.absolute(path);
        self.named.iter().any(|named| path.starts_with(named))
    }

    /// The directory to name for both configs: their repository, else the nearest above both.
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
