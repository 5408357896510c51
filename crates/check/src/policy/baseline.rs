//! Baselines: files that list known findings, so that only new findings are reported.
//!
//! A baseline is a JSON file with one finding per line, sorted, so that its diffs are readable. A
//! finding is recognized by its identity (`diagnostic::identity`), with paths relative to the
//! baseline's directory.
//!
//! Invariant: a baseline is replaced as a whole or not at all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use pkgtool_base::diagnostic::Identity;
use pkgtool_base::package::Roots;
use pkgtool_base::source::replace::replace;
use pkgtool_base::source::{self, bounds};

/// Maximum size of a baseline, in bytes.
const MAX_BASELINE_BYTES: u64 = 64 * 1024 * 1024;

/// The supported version of the file format.
const BASELINE_VERSION: u32 = 1;

/// Known findings and how often each occurs.
pub(super) type KnownFindings = BTreeMap<BaselineEntry, usize>;

/// The identity of a known finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct BaselineEntry {
    /// Path of the file relative to the baseline's directory, with `/` as the separator.
    pub file: String,
    /// Name of the rule.
    pub rule: String,
    /// JSON pointer of the finding; elements of `variants` are identified by their precision.
    #[serde(default)]
    pub pointer: String,
    /// Names in the finding, if it is about the whole file.
    #[serde(default)]
    pub names: Vec<String>,
}

/// The entry of one finding in a baseline file.
#[derive(Deserialize)]
struct BaselineLine {
    #[serde(flatten)]
    entry: BaselineEntry,
    #[serde(default = "one")]
    count: usize,
}

#[derive(Deserialize)]
struct BaselineFile {
    version: u32,
    findings: Vec<BaselineLine>,
}

fn one() -> usize {
    1
}

impl BaselineEntry {
    /// Creates the entry of a finding of the named rule.
    pub(super) fn new(identity: Identity, rule: &str) -> Self {
        Self {
            file: identity.path,
            rule: rule.to_owned(),
            pointer: identity.pointer,
            names: identity.names,
        }
    }
}

/// Reads a baseline, or returns why it is unusable.
pub(super) fn read(file: &Path) -> Result<KnownFindings, String> {
    let text = source::read_text(file, MAX_BASELINE_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => "it is larger than 64 MiB".to_owned(),
        _ => error.to_string(),
    })?;
    let written: BaselineFile = serde_json::from_str(&text).map_err(|error| {
        format!("invalid baseline: {error}; write one with `pkgtool validate --write-baseline`")
    })?;
    if written.version != BASELINE_VERSION {
        let found = written.version;
        return Err(format!(
            "unsupported version {found}: expected version {BASELINE_VERSION}"
        ));
    }
    let mut known = KnownFindings::new();
    for line in written.findings {
        let count = known.entry(line.entry).or_insert(0_usize);
        *count = count.saturating_add(line.count);
    }
    Ok(known)
}

/// Renders a baseline as text.
pub(super) fn text(known: &KnownFindings) -> String {
    let mut text = format!("{{\n  \"version\": {BASELINE_VERSION},\n  \"findings\": [");
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
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
    text.push_str(if known.is_empty() {
        "]\n}\n"
    } else {
        "\n  ]\n}\n"
    });
    text
}

/// Writes a baseline. An unchanged file is left alone.
pub(super) fn write(file: &Path, known: &KnownFindings) -> io::Result<()> {
    let text = text(known);
    // Replace the target of a symbolic link, not the link.
    let file = &match bounds::real(file) {
        Err(error) if bounds::is_outside(&error) => return Err(error),
        real => real.unwrap_or_else(|_| file.to_owned()),
    };
    if source::read(file, MAX_BASELINE_BYTES).is_ok_and(|before| before == text.as_bytes()) {
        return Ok(());
    }
    replace(file, text.as_bytes(), || Ok(()))
}

/// Returns the path of a file relative to the baseline's absolute `directory`, with `/` as the
/// separator.
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
