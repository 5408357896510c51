//! What a source holds: files with their places, and sizes and hashes as far as they are told.
//!
//! Invariant: every path passed [`name::is_safe`]; the number of files is bounded.

use std::collections::HashSet;

use reqwest::Url;

use super::RemoteError;
use super::name;

/// Most files of a listing.
pub(super) const MAX_ENTRIES: usize = 20_000;

/// A file of a source.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Its path below the root, with `/` between its parts.
    pub(super) path: String,
    /// Its size in bytes, where the listing tells.
    pub(super) size: Option<u64>,
    /// SHA-256 of its content in lower-case hex, where the listing tells.
    pub(super) sha256: Option<String>,
    /// What changes when the file does: its tag, its id in a repository, its time.
    pub(super) mark: Option<String>,
    /// Where its bytes are.
    pub(super) url: Url,
}

/// A source as far as it is known.
#[derive(Debug)]
pub(super) struct Tree {
    /// Its files.
    pub(super) entries: Vec<Entry>,
    /// The path below the root of what the user named.
    pub(super) start: String,
    /// The folder below the root that references may not leave.
    pub(super) border: String,
    /// Whether the user named a directory and the path is that of the config which may be in it.
    pub(super) is_guessed: bool,
    /// Whether all files are known, or only those that were asked for.
    pub(super) is_listed: bool,
    /// How paths are shown: this, `/`, the path below the root.
    pub(super) shown: String,
    /// The origin, where files that are not listed may be asked for by their path.
    pub(super) origin: Option<Url>,
    paths: HashSet<String>,
}

impl Tree {
    /// A source without files.
    pub(super) fn new(shown: String, start: String) -> Self {
        Self {
            entries: Vec::new(),
            start,
            border: String::new(),
            is_guessed: false,
            is_listed: true,
            shown,
            origin: None,
            paths: HashSet::new(),
        }
    }

    /// Adds a file. One whose name may not be a path here is left out; one that stands there twice is
    /// taken once.
    pub(super) fn add(&mut self, entry: Entry) -> Result<(), RemoteError> {
        if !name::is_safe(&entry.path) || self.paths.contains(&entry.path) {
            return Ok(());
        }
        if self.entries.len() >= MAX_ENTRIES {
            return Err(RemoteError::Listing {
                url: self.shown.clone(),
                reason: format!("more than {MAX_ENTRIES} files; name a directory below it"),
            });
        }
        self.paths.insert(entry.path.clone());
        self.entries.push(entry);
        Ok(())
    }

    /// Whether a file of this path is known.
    pub(super) fn has(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Whether a path is that of what the user named, or below it.
    pub(super) fn is_below_start(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.start.as_str());
        self.start.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Where a file that is not listed would be.
    pub(super) fn url_of(&self, path: &str) -> Option<Url> {
        let mut url = self.origin.clone()?;
        url.path_segments_mut()
            .ok()?
            .clear()
            .extend(path.split('/'));
        Some(url)
    }
}

/// Whether a text is a SHA-256 in hex; in lower case if so.
pub(super) fn sha256(text: &str) -> Option<String> {
    let hex = text.strip_prefix("sha256:").unwrap_or(text);
    let is_one = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| hex.to_ascii_lowercase())
}
