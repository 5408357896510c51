//! Baselines: findings that were there before, so that only new ones are told.
//!
//! A baseline is JSON, one finding a line, sorted, so that a change of it reads well. A finding is known by
//! its identity (`diagnostic::identity`), with paths relative to the baseline's directory. Invariant: a
//! baseline is replaced as a whole or not at all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use crate::diagnostic::Identity;
use crate::package::Roots;
use crate::source::replace::replace;
use crate::source::{self, bounds};

/// Largest baseline that is read, in bytes.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// The version that is written, and read.
const VERSION: u32 = 1;

/// Known findings, and how many there are of each.
pub(super) type Known = BTreeMap<Entry, usize>;

/// What a known finding is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Entry {
    /// The file, relative to the baseline's directory, with `/` between its parts.
    pub file: String,
    /// The rule's name.
    pub rule: String,
    /// The place, elements of `variants` by their precision.
    #[serde(default)]
    pub pointer: String,
    /// What the finding names, where its place is the whole file.
    #[serde(default)]
    pub names: Vec<String>,
}

/// What a baseline has for one finding.
#[derive(Deserialize)]
struct Line {
    #[serde(flatten)]
    entry: Entry,
    #[serde(default = "one")]
    count: usize,
}

#[derive(Deserialize)]
struct Written {
    version: u32,
    findings: Vec<Line>,
}

fn one() -> usize {
    1
}

impl Entry {
    /// The entry of a finding of the rule of this name.
    pub(super) fn new(identity: Identity, rule: &str) -> Self {
        Self {
            file: identity.path,
            rule: rule.to_owned(),
            pointer: identity.pointer,
            names: identity.names,
        }
    }
}

/// Reads a baseline; else says why it cannot be.
pub(super) fn read(file: &Path) -> Result<Known, String> {
    let text = source::read_text(file, MAX_FILE).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => "it has more than 64 MiB".to_owned(),
        _ => error.to_string(),
    })?;
    let written: Written = serde_json::from_str(&text).map_err(|error| {
        format!("it is no baseline: {error}; `pkgtool validate --write-baseline` writes one")
    })?;
    if written.version != VERSION {
        let found = written.version;
        return Err(format!(
            "it has version {found}, and this tool knows version {VERSION} only"
        ));
    }
    let mut known = Known::new();
    for line in written.findings {
        let count = known.entry(line.entry).or_insert(0_usize);
        *count = count.saturating_add(line.count);
    }
    Ok(known)
}

/// The text of a baseline.
pub(super) fn text(known: &Known) -> String {
    let mut text = format!("{{\n  \"version\": {VERSION},\n  \"findings\": [");
    for (number, (entry, count)) in known.iter().enumerate() {
        let mut line = json!({ "file": entry.file, "rule": entry.rule, "pointer": entry.pointer });
        if !entry.names.is_empty() {
            line["names"] = json!(entry.names);
        }
        if *count != 1 {
            line["count"] = json!(count);
        }
        let comma = if number == 0 { "" } else { "," };
        let written = write!(text, "{comma}\n    {line}");
        debug_assert!(written.is_ok(), "a string takes everything");
    }
    text.push_str(if known.is_empty() {
        "]\n}\n"
    } else {
        "\n  ]\n}\n"
    });
    text
}

/// Writes a baseline; nothing is done where it would not change.
pub(super) fn write(file: &Path, known: &Known) -> io::Result<()> {
    let text = text(known);
    // A link stays one: what it leads to is replaced.
    let file = &match bounds::real(file) {
        Err(error) if bounds::is_outside(&error) => return Err(error),
        real => real.unwrap_or_else(|_| file.to_owned()),
    };
    if source::read(file, MAX_FILE).is_ok_and(|before| before == text.as_bytes()) {
        return Ok(());
    }
    replace(file, text.as_bytes(), || Ok(()))
}

/// The path of a file as a baseline in the absolute `directory` has it, with `/` between its parts.
pub(super) fn relative(roots: &Roots, directory: &Path, file: &str) -> String {
    let file = roots.absolute(Path::new(file));
    let common = file.components().zip(directory.components());
    let common = common.take_while(|(a, b)| a == b).count();
    let up = directory
        .components()
        .skip(common)
        .map(|_| Component::ParentDir);
    let path: PathBuf = up.chain(file.components().skip(common)).collect();
    let text = path.to_string_lossy().into_owned();
    if std::path::MAIN_SEPARATOR == '\\' {
        text.replace('\\', "/")
    } else {
        text
    }
}
