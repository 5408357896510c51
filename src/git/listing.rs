//! What a commit or the index holds, without its content.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::{Error, Repository, ask};
use crate::package::reference::normalize;

/// Most links that are followed from one path to a file.
const MAX_LINKS: usize = 8;

/// Files by their paths from the root of the working tree.
///
/// Invariant: no path leaves the root.
#[derive(Debug, Default)]
pub struct Listing {
    entries: BTreeMap<PathBuf, Entry>,
}

/// A file, as Git keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub mode: Mode,
    /// The id of its content.
    pub id: String,
    /// Its size in bytes; 0 where the listing does not tell.
    pub size: u64,
}

/// What an entry of a listing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A file.
    File,
    /// A symbolic link; its content is the target.
    Link,
}

impl Repository {
    /// The files of a commit, with their sizes.
    pub fn tree(&self, commit: &str) -> Result<Listing, Error> {
        let listed = ask(
            self.top(),
            &["ls-tree", "-r", "-z", "-l", "--full-tree", commit],
        )?;
        Ok(Listing::read(&listed, |words| match words {
            [mode, "blob", id, size] => Some((
                (*mode).to_owned(),
                (*id).to_owned(),
                size.parse().unwrap_or(0),
            )),
            _ => None,
        }))
    }

    /// The files of the index that are in no conflict; sizes are not told.
    pub fn index(&self) -> Result<Listing, Error> {
        let listed = ask(self.top(), &["ls-files", "--stage", "-z"])?;
        Ok(Listing::read(&listed, |words| match words {
            [mode, id, "0"] => Some(((*mode).to_owned(), (*id).to_owned(), 0)),
            _ => None,
        }))
    }
}

impl Listing {
    /// Takes lines `WORDS<tab>PATH`; `pick` gives mode, id and size of an entry's words.
    fn read(listed: &[u8], pick: impl Fn(&[&str]) -> Option<(String, String, u64)>) -> Self {
        let lines = listed.split(|byte| *byte == 0);
        let lines = lines.filter_map(|line| std::str::from_utf8(line).ok()?.split_once('\t'));
        let mut entries = BTreeMap::new();
        for (words, path) in lines {
            let words: Vec<&str> = words.split_ascii_whitespace().collect();
            let path = PathBuf::from(path);
            let Some((mode, id, size)) = pick(&words).filter(|_| stays_inside(&path)) else {
                continue;
            };
            let mode = match mode.as_str() {
                "120000" => Mode::Link,
                mode if mode.starts_with("100") => Mode::File,
                _ => continue,
            };
            entries.insert(path, Entry { mode, id, size });
        }
        Self { entries }
    }

    /// All of them, in the order of their paths.
    pub fn entries(&self) -> impl Iterator<Item = (&Path, &Entry)> {
        self.entries
            .iter()
            .map(|(path, entry)| (path.as_path(), entry))
    }

    /// What is at `path`.
    pub fn get(&self, path: &Path) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Those in the directory at `path`, at any depth.
    pub fn below<'l>(&'l self, path: &'l Path) -> impl Iterator<Item = (&'l Path, &'l Entry)> {
        self.entries().filter(move |(at, _)| at.starts_with(path))
    }

    /// Whether `path` is a directory.
    pub fn has_directory(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || self.get(path).is_none() && self.below(path).next().is_some()
    }

    /// The file that `path` leads to; links are followed by `target`, which reads one.
    pub fn file<E>(
        &self,
        path: &Path,
        mut target: impl FnMut(&Entry) -> Result<String, E>,
    ) -> Result<Option<&Entry>, E> {
        let mut at = path.to_owned();
        for _ in 0..MAX_LINKS {
            match self.get(&at) {
                Some(entry) if entry.mode == Mode::Link => {
                    let directory = at.parent().unwrap_or(Path::new("")).to_owned();
                    at = normalize(&directory.join(target(entry)?));
                }
                found => return Ok(found),
            }
        }
        Ok(None)
    }
}

/// Whether a path of a listing is one that Git itself would write.
fn stays_inside(path: &Path) -> bool {
    let mut parts = path.components();
    path.as_os_str().len() < 4096
        && parts.all(
            |part| matches!(part, Component::Normal(name) if !name.eq_ignore_ascii_case(".git")),
        )
}
