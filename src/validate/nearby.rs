//! Which file a reference to nothing most likely meant.
//!
//! Invariant: only directories are listed, each with a bounded number of entries; no file is opened.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::context::Context;
use super::references::Referenced;
use crate::package::reference::normalize;
use crate::package::{Backend, naming};
use crate::source::suggest;

/// Most entries of a directory that are looked at.
const MAX_ENTRIES: usize = 100;

/// What to write instead of `missing`'s reference, which leads to `path`.
pub(super) fn find(context: &Context<'_>, missing: &Referenced, path: &Path) -> Option<String> {
    let reference = &missing.file.reference;
    let name = path.file_name()?.to_str()?;
    let taken = taken(context);
    if let Some(same) = elsewhere(context, path, name) {
        return Some(format!(
            "did you mean `{same}`? Paths are relative to the config's directory"
        ));
    }
    let directory = path.parent()?;
    let free = names_in(directory, &taken);
    let prefix = reference.strip_suffix(name).unwrap_or_default();
    if let Some(same) = free.iter().find(|other| other.eq_ignore_ascii_case(name)) {
        return Some(format!(
            "did you mean `{prefix}{same}`? Names are case-sensitive"
        ));
    }
    let alike = free
        .iter()
        .filter(|other| !is_other_file(context, name, other));
    let near = suggest::nearest(name, alike.map(String::as_str))?;
    Some(format!("did you mean `{prefix}{near}`?"))
}

/// The files that the config names already: none of them was meant again.
fn taken(context: &Context<'_>) -> HashSet<PathBuf> {
    let facts = context
        .files
        .iter()
        .filter_map(|file| file.facts.as_ref().ok());
    facts
        .filter(|facts| !facts.is_missing())
        .map(|facts| facts.path.clone())
        .collect()
}

/// A reference to a file of this name in the config's directory or above it, up to the package root.
fn elsewhere(context: &Context<'_>, path: &Path, name: &str) -> Option<String> {
    let mut reference = String::new();
    for _ in 0..=context.depth {
        let candidate = normalize(&context.directory.join(&reference).join(name));
        if candidate != path && candidate.is_file() {
            return Some(format!("{reference}{name}"));
        }
        reference.push_str("../");
    }
    None
}

fn names_in(directory: &Path, taken: &HashSet<PathBuf>) -> Vec<String> {
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let entries = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_ENTRIES);
    let free = entries.filter(|entry| !taken.contains(&normalize(&entry.path())));
    let mut names: Vec<String> = free
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Whether two names say different precisions or backends, so that one is no slip of the other.
fn is_other_file(context: &Context<'_>, one: &str, other: &str) -> bool {
    let tokens = context.precisions.list.tokens();
    let backends = Backend::ALL.iter().map(|backend| backend.name());
    let known: Vec<&str> = tokens.chain(backends).collect();
    let has_own = |one: &str, other: &str| {
        let mut known = known.iter();
        known.any(|token| {
            naming::has_token(stem(one), token) && !naming::has_token(stem(other), token)
        })
    };
    has_own(one, other) && has_own(other, one)
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}
