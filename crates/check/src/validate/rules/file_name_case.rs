//! Rule `file-name-case`: reports file names that differ only in case, from each other or from a
//! reference.

use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::reference::normalize;
use pkgtool_base::package::steps;
use pkgtool_base::source::JsonPath;
use pkgtool_base::source::hashed::Map;
use crate::validate::context::Context;
use crate::validate::references::{ReferencedFile, leaves_directory};

/// Maximum number of entries inspected per directory.
const MAX_ENTRIES: usize = 1000;

rule! {
    /// # What it checks
    /// No two files of a package have names that differ only in case. The rule compares the model
    /// files in the config's directory and all referenced files. A reference has the same case as
    /// the file's name.
    ///
    /// # Why
    /// macOS and Windows ignore case; Linux, Android and hubs do not. In a checkout, one of two
    /// such files replaces the other. A reference with the wrong case works on one machine and
    /// fails on the next.
    ///
    /// # Example
    /// `Tiny_xnnpack_fp32.pte` beside `tiny_xnnpack_fp32.pte`.
    ///
    /// # Fix
    /// Rename or delete one of the two. Write a reference exactly like the file's name.
    ///
    /// # What it does not see
    /// Unreferenced files outside the config's directory. On Linux, references with the wrong case
    /// to files outside the config's directory: a case-insensitive disk hides them, and on other
    /// disks the file is missing (`file-missing`).
    PKG060 "file-name-case" Error "Names of files differ only in case." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let beside = context.models_beside.unwrap_or_default();
    let references = context.files.iter().map(|file| file.file.reference.as_str());
    // Names without upper-case letters cannot differ only in case.
    if !beside.iter().map(String::as_str).chain(references).any(has_upper) {
        return;
    }
    let there = context.files.iter().filter(|file| file.facts.as_ref().is_ok_and(|facts| !facts.is_missing()));
    for file in there.clone() {
        if let Some(real) = real_name(file, beside) {
            let message = format!("`{}` is called `{real}`: a case-sensitive disk does not find it", file.file.reference);
            let finding = RULE.meta.finding(Anchor::Value(file.file.path.clone()), message);
            findings.push(finding.help("write the reference as the file is named"));
        }
    }
    let mut paths: Vec<(PathBuf, Option<&JsonPath>)> = there
        .filter_map(|file| Some((file.facts.as_ref().ok()?.path.clone(), Some(&file.file.path))))
        .collect();
    paths.extend(beside.iter().map(|name| (normalize(&context.directory.join(name)), None)));
    let mut first: Map<String, (PathBuf, Option<&JsonPath>)> = Map::default();
    let mut told: Vec<String> = Vec::new();
    for (path, place) in paths {
        let key = path.to_string_lossy().to_lowercase();
        let known = first.entry(key.clone()).or_insert_with(|| (path.clone(), place));
        if known.0 != path && !told.contains(&key) {
            let (Some(one), Some(other)) = (steps::name(&known.0), steps::name(&path)) else { continue };
            let at = place.or(known.1).cloned();
            let anchor = at.map_or_else(|| Anchor::Key(JsonPath::root().key("variants")), Anchor::Value);
            let message = format!("`{one}` and `{other}` differ only in case: on a case-insensitive disk they are one file");
            findings.push(RULE.meta.finding(anchor, message).help("rename or delete one of them"));
            told.push(key);
        }
    }
}

fn has_upper(name: &str) -> bool {
    name.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii())
}

/// Returns the name of the referenced file, if it differs from the reference only in case.
fn real_name(file: &ReferencedFile, beside: &[String]) -> Option<String> {
    let path = &file.facts.as_ref().ok()?.path;
    let name = steps::name(path)?;
    if file.is_model && !leaves_directory(&file.file.reference) && !file.file.reference.contains('/') {
        return other_case(name, beside.iter().map(String::as_str));
    }
    // On systems with case-sensitive disks, the file would be missing.
    let ignores_case = cfg!(any(windows, target_os = "macos"));
    let names = ignores_case.then(|| names_in(path.parent()?)).flatten()?;
    other_case(name, names.iter().map(String::as_str))
}

/// Returns a name that differs only in case, unless the exact name exists too.
fn other_case<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let mut other = None;
    for known in names {
        if known == name {
            return None;
        }
        if known.to_lowercase() == name.to_lowercase() {
            other = Some(known.to_owned());
        }
    }
    other
}

fn names_in(directory: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(directory).ok()?.flatten().take(MAX_ENTRIES);
    Some(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::other_case;

    #[test]
    fn a_forgiven_case_is_told() {
        let of = |name, names: &[&'static str]| other_case(name, names.iter().copied());
        assert_eq!(of("tiny.pte", &["Tiny.pte"]).as_deref(), Some("Tiny.pte"));
        assert_eq!(of("tiny.pte", &["Tiny.pte", "tiny.pte"]), None, "both are there");
        assert_eq!(of("tiny.pte", &["other.pte"]), None);
    }
}
