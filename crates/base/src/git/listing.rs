//! The files in a commit or in the index, without their content.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::{GitError, Repository, run_git};
use crate::package::reference::normalize;

/// Maximum number of links followed from a path to a file.
const MAX_LINKS: usize = 8;

/// Files by their paths from the root of the working tree.
///
/// Invariant: no path leaves the root.
#[derive(Debug, Default)]
pub struct GitListing {
    entries: BTreeMap<PathBuf, GitEntry>,
}

/// A file as recorded by Git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitEntry {
    /// The type of the entry.
    pub mode: Mode,
    /// The object id of the content.
    pub id: String,
    /// Size in bytes; 0 in a listing without sizes.
    pub size: u64,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A file.
    File,
    /// A symbolic link; its content is the target.
    Link,
}

impl Repository {
    /// Lists the files of a commit, with their sizes.
    pub fn tree(&self, commit: &str) -> Result<GitListing, GitError> {
        let listed = run_git(
            self.top(),
            &["ls-tree", "-r", "-z", "-l", "--full-tree", commit],
        )?;
        Ok(GitListing::read(&listed, |words| match words {
            [mode, "blob", id, size] => Some((
                (*mode).to_owned(),
                (*id).to_owned(),
                size.parse().unwrap_or(0),
            )),
            _ => None,
        }))
    }

    /// Lists the files of the index that have no merge conflict, without sizes.
    pub fn index(&self) -> Result<GitListing, GitError> {
        let listed = run_git(self.top(), &["ls-files", "--stage", "-z"])?;
        Ok(GitListing::read(&listed, |words| match words {
            [mode, id, "0"] => Some(((*mode).to_owned(), (*id).to_owned(), 0)),
            _ => None,
        }))
    }
}

impl GitListing {
    /// Parses lines `WORDS<tab>PATH`; `pick` extracts mode, id and size from the words.
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
            entries.insert(path, GitEntry { mode, id, size });
        }
        Self { entries }
    }

    /// Returns all entries, sorted by path.
    pub fn entries(&self) -> impl Iterator<Item = (&Path, &GitEntry)> {
        self.entries
            .iter()
            .map(|(path, entry)| (path.as_path(), entry))
    }

    /// Returns the entry at `path`.
    pub fn get(&self, path: &Path) -> Option<&GitEntry> {
        self.entries.get(path)
    }

    /// Returns the entries below the directory `path`, at any depth.
    pub fn below<'l>(&'l self, path: &'l Path) -> impl Iterator<Item = (&'l Path, &'l GitEntry)> {
        self.entries().filter(move |(at, _)| at.starts_with(path))
    }

    /// Returns whether `path` is a directory.
    pub fn has_directory(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || self.get(path).is_none() && self.below(path).next().is_some()
    }

    /// Returns the file that `path` leads to; `target` reads the target of a link.
    pub fn file<E>(
        &self,
        path: &Path,
        mut target: impl FnMut(&GitEntry) -> Result<String, E>,
    ) -> Result<Option<&GitEntry>, E> {
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

/// Returns whether Git itself would write a file at this path of a listing.
fn stays_inside(path: &Path) -> bool {
    let mut parts = path.components();
    path.as_os_str().len() < 4096
        && parts.all(
            |part| matches!(part, Component::Normal(name) if !name.eq_ignore_ascii_case(".git")),
        )
}
