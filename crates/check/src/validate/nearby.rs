//! Suggestions for a reference to a missing file: searches the surrounding directories for the file
//! that was probably meant.
//!
//! Used by the rule `file-missing`. It detects wrong directories, differences in case, unfinished
//! downloads, packed files, URL-encoded names and typing errors. Invariant: it only lists
//! directories, a bounded number of entries each, and opens no file.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::context::Context;
use super::references::ReferencedFile;
use pkgtool_base::package::reference::normalize;
use pkgtool_base::package::{Backend, model_file, naming};
use pkgtool_base::source::suggest;

/// Maximum number of entries inspected per directory.
const MAX_ENTRIES: usize = 100;

/// Extensions that download programs append to the name of an unfinished file.
const UNFINISHED: [&str; 7] = [
    "part",
    "partial",
    "crdownload",
    "download",
    "incomplete",
    "tmp",
    "aria2",
];
/// Extensions of compressed files and archives.
const PACKED: [&str; 6] = ["gz", "zip", "xz", "zst", "bz2", "7z"];

/// A suggestion for a reference to a missing file.
pub(super) struct Suggestion {
    /// The remedy.
    pub(super) help: String,
    /// The replacement for the reference, if an existing file was meant.
    pub(super) meant: Option<MeantFile>,
}

/// A reference to an existing file.
pub(super) struct MeantFile {
    /// The reference.
    pub(super) reference: String,
    /// True if no other file can have been meant.
    pub(super) is_certain: bool,
}

impl Suggestion {
    fn advice(help: String) -> Self {
        Self { help, meant: None }
    }

    fn file(reference: String, is_certain: bool, why: &str) -> Self {
        Self {
            help: format!("did you mean `{reference}`?{why}"),
            meant: Some(MeantFile {
                reference,
                is_certain,
            }),
        }
    }
}

/// Suggests a replacement for the reference of `missing`, which resolves to `path`.
pub(super) fn find(
    context: &Context<'_>,
    missing: &ReferencedFile,
    path: &Path,
) -> Option<Suggestion> {
    let reference = &missing.file.reference;
    let name = path.file_name()?.to_str()?;
    let taken = referenced_paths(context);
    if let Some(same) = find_in_parents(context, path, name) {
        let why = " Paths are relative to the config's directory";
        return Some(Suggestion::file(same, true, why));
    }
    let directory = path.parent()?;
    let free = names_in(directory, &taken);
    let prefix = reference.strip_suffix(name).unwrap_or_default();
    if let Some(other) = free
        .iter()
        .find_map(|other| name_variation(prefix, name, other))
    {
        return Some(other);
    }
    if let Some(same) = free.iter().find(|other| other.eq_ignore_ascii_case(name)) {
        let others = free.iter().filter(|other| other.eq_ignore_ascii_case(name));
        let is_certain = others.count() == 1;
        let why = " Names are case-sensitive";
        return Some(Suggestion::file(format!("{prefix}{same}"), is_certain, why));
    }
    let alike = free
        .iter()
        .filter(|other| !is_other_file(context, name, other));
    let near = decoded(name).filter(|decoded| free.contains(decoded));
    let near = near.or_else(|| Some(suggest::nearest(name, alike.map(String::as_str))?.to_owned()));
    let Some(near) = near else {
        let named = conventional(context, missing, name).filter(|named| free.contains(named))?;
        let why = " It is the conventional name";
        return Some(Suggestion::file(format!("{prefix}{named}"), true, why));
    };
    let unseen = unseen_difference(name, &near);
    let digits = |name: &str| {
        name.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
    };
    let is_certain = digits(name) == digits(&near) || decoded(name).as_ref() == Some(&near);
    let unseen = unseen.unwrap_or_default();
    Some(Suggestion::file(
        format!("{prefix}{near}"),
        is_certain,
        &unseen,
    ))
}

/// Returns the model file's name according to the naming convention.
fn conventional(context: &Context<'_>, missing: &ReferencedFile, name: &str) -> Option<String> {
    let config = context.config.as_ref()?;
    let variant = config.variants.get(missing.variant?)?;
    let expected = naming::ExpectedName {
        model: config.model.as_deref(),
        size: config.size.as_deref(),
        component: missing.file.component.as_deref(),
        backend: config.backend?,
        precision: variant.precision.as_deref()?,
    };
    let (_, extension) = name.rsplit_once('.')?;
    Some(expected.name(extension))
}

/// Suggests what to do if `other` is a variation of the missing file `name`: with an extension,
/// unfinished, or packed.
fn name_variation(prefix: &str, name: &str, other: &str) -> Option<Suggestion> {
    if stem(other) == name && model_file::has_extension(other) {
        let why = " The reference must include the extension";
        return Some(Suggestion::file(format!("{prefix}{other}"), true, why));
    }
    let ending = other.strip_prefix(name)?.strip_prefix('.')?;
    if UNFINISHED.contains(&ending) {
        Some(Suggestion::advice(format!(
            "`{other}` is an unfinished download: download the file again"
        )))
    } else if PACKED.contains(&ending) {
        Some(Suggestion::advice(format!(
            "unpack `{other}`: compressed models are not supported"
        )))
    } else {
        None
    }
}

/// Decodes a URL-encoded name (`%20`).
fn decoded(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Describes the first difference between two names if it is invisible: white space at an end,
/// characters without a glyph, or look-alike letters.
fn unseen_difference(name: &str, near: &str) -> Option<String> {
    let (mut written, mut real) = (name.chars(), near.chars());
    let different = loop {
        match (written.next(), real.next()) {
            (None, None) => return None,
            (one, other) if one == other => {}
            different => break different,
        }
    };
    let is_plain = |c: Option<char>| c.is_none_or(|c| c.is_ascii_graphic());
    if is_plain(different.0) && is_plain(different.1) {
        return None;
    }
    let code = |c: Option<char>| match c {
        Some(c) => format!("U+{:04X}", u32::from(c)),
        None => "nothing".to_owned(),
    };
    Some(format!(
        " The reference has {} where the file's name has {}",
        code(different.0),
        code(different.1)
    ))
}

/// Returns the existing files that the config already references; none of them is suggested again.
fn referenced_paths(context: &Context<'_>) -> HashSet<PathBuf> {
    let facts = context
        .files
        .iter()
        .filter_map(|file| file.facts.as_ref().ok());
    facts
        .filter(|facts| !facts.is_missing())
        .map(|facts| facts.path.clone())
        .collect()
}

/// Returns a reference to a file of this name in the config's directory or above it, up to the
/// package root.
fn find_in_parents(context: &Context<'_>, path: &Path, name: &str) -> Option<String> {
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

/// Returns whether two names contain different precisions or backends. Then one is not a
/// misspelling of the other.
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
