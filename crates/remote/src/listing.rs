//! The files of a source: their paths and URLs, and their sizes and hashes if the server states
//! them.
//!
//! Invariant: every path has passed [`name::is_safe`], and the number of files is limited.

use std::collections::HashSet;

use reqwest::Url;

use super::RemoteError;
use super::name;

/// Maximum number of files in a listing.
pub(super) const MAX_ENTRIES: usize = 20_000;

/// A file of a source.
#[derive(Debug, Clone)]
pub(super) struct SourceFile {
    /// Path below the root, with `/` as the separator.
    pub(super) path: String,
    /// Size in bytes, if the listing states it.
    pub(super) size: Option<u64>,
    /// SHA-256 of the content in lower-case hexadecimal, if the listing states it.
    pub(super) sha256: Option<String>,
    /// Version marker that changes with the file: an `ETag`, an object id, or a modification time.
    pub(super) version_marker: Option<String>,
    /// URL of the content.
    pub(super) url: Url,
}

/// The known files of a source.
#[derive(Debug)]
pub(super) struct SourceTree {
    /// Files of the source.
    pub(super) entries: Vec<SourceFile>,
    /// Path of the directory or file that the user named, below the root.
    pub(super) start: String,
    /// Folder below the root that references must not leave.
    pub(super) border: String,
    /// Set if the user named a directory without a listing. `start` is then the path of the config
    /// that may be in it.
    pub(super) is_start_guessed: bool,
    /// Set if all files are known, and not only the requested ones.
    pub(super) is_listed: bool,
    /// Prefix of paths for display, followed by `/` and the path below the root.
    pub(super) shown: String,
    /// Origin of the server, from which unlisted files can be requested by path.
    pub(super) origin: Option<Url>,
    paths: HashSet<String>,
}

impl SourceTree {
    /// Creates a source without files.
    pub(super) fn new(shown: String, start: String) -> Self {
        Self {
            entries: Vec::new(),
            start,
            border: String::new(),
            is_start_guessed: false,
            is_listed: true,
            shown,
            origin: None,
            paths: HashSet::new(),
        }
    }

    /// Adds a file. Unsafe paths and duplicates are skipped.
    pub(super) fn add(&mut self, entry: SourceFile) -> Result<(), RemoteError> {
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

    /// Returns whether a file with this path is known.
    pub(super) fn has(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Returns whether a path is the one that the user named, or below it.
    pub(super) fn is_below_start(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.start.as_str());
        self.start.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the URL of a file that is not listed.
    pub(super) fn url_of(&self, path: &str) -> Option<Url> {
        let mut url = self.origin.clone()?;
        url.path_segments_mut()
            .ok()?
            .clear()
            .extend(path.split('/'));
        Some(url)
    }
}

/// Parses a SHA-256 in hexadecimal, and returns it in lower case.
pub(super) fn sha256(text: &str) -> Option<String> {
    let hex = text.strip_prefix("sha256:").unwrap_or(text);
    let is_one = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| hex.to_ascii_lowercase())
}
