//! Determines the `$schema` identifier for a config that has none, from the configs around it.
//!
//! Invariant: a package never gets the identifier of another package. The search is bounded: first
//! the configs of other backends, then those of other sizes in at most `MAX_SIZES` directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::config::{FILE_NAME, SCHEMA_ID};
use super::leftover::is_placeholder;
use super::size::is_size_token;
use super::{Backend, LoadedFile};
use crate::source::json::Node;

/// Maximum number of directories of other sizes that are inspected.
const MAX_SIZES: usize = 50;

/// An identifier and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaId {
    /// The identifier.
    pub id: String,
    /// The evidence for the identifier, in words.
    pub evidence: &'static str,
    /// True if surrounding configs differ and no setting decides; then `id` is the most frequent
    /// one.
    pub is_mixed: bool,
}

impl SchemaId {
    /// Determines the identifier of a config in the absolute `directory`, `depth` levels below the
    /// package root. It is that of the configs beside it, else the project's setting, else the
    /// format's own.
    pub fn of(directory: &Path, depth: usize, setting: Option<&str>) -> Self {
        let around = around(directory, depth);
        let most = around
            .iter()
            .max_by_key(|(_, count)| **count)
            .map(|(id, _)| id.clone());
        let found = |id: String, evidence| Self {
            id,
            evidence,
            is_mixed: false,
        };
        match (most, around.len(), setting) {
            (Some(id), 1, _) => found(id, "`$schema` of the configs beside it"),
            (_, _, Some(id)) => found(id.to_owned(), "`schema-id` in pkgtool.toml"),
            (Some(id), _, None) => Self {
                id,
                evidence: "`$schema` of most configs beside it",
                is_mixed: true,
            },
            (None, _, None) => found(SCHEMA_ID.to_owned(), "the format"),
        }
    }
}

/// Counts the identifiers of the nearest configs that have any.
fn around(directory: &Path, depth: usize) -> BTreeMap<String, usize> {
    let mut above = directory.ancestors().skip(1).take(depth);
    let Some(parent) = above.next() else {
        return BTreeMap::new();
    };
    let own = directory.join(FILE_NAME);
    let near = identifiers(of_backends(parent).filter(|path| *path != own));
    // Unless the parent directory is named after a size, its siblings are other packages.
    let name = parent.file_name().map(|name| name.to_string_lossy());
    let is_size = near.is_empty() && name.is_some_and(|name| is_size_token(&name));
    let Some(higher) = above.next().filter(|_| is_size) else {
        return near;
    };
    let sizes = fs::read_dir(higher)
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_SIZES);
    let sizes: Vec<PathBuf> = sizes
        .map(|entry| entry.path())
        .filter(|path| path != parent)
        .collect();
    identifiers(sizes.iter().flat_map(|size| of_backends(size)))
}

fn of_backends(directory: &Path) -> impl Iterator<Item = PathBuf> {
    Backend::ALL
        .into_iter()
        .map(move |backend| directory.join(backend.name()).join(FILE_NAME))
}

fn identifiers(paths: impl Iterator<Item = PathBuf>) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for path in paths {
        let loaded = LoadedFile::read(&path);
        let id = loaded
            .document
            .as_ref()
            .ok()
            .and_then(|document| document.root.get("$schema"));
        let is_sound = |id: &&str| {
            id.contains(':') && !id.contains(char::is_whitespace) && !is_placeholder(id)
        };
        if let Some(id) = id.and_then(Node::as_str).filter(is_sound) {
            *found.entry(id.to_owned()).or_default() += 1;
        }
    }
    found
}
