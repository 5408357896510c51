//! `file-name-case`: names that only disks which tell upper from lower case keep apart, or only others find.

use std::fs;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Anchor, Finding};
use crate::package::reference::normalize;
use crate::package::steps;
use crate::source::JsonPath;
use crate::source::hashed::Map;
use crate::validate::context::Context;
use crate::validate::references::{Referenced, leaves_directory};

/// Most entries of a directory that are looked at.
const MAX_ENTRIES: usize = 1000;

rule! {
    /// # What it checks
    /// No two files of a package, model files of the config's directory and files that it names, have names that
    /// differ only in case, and a reference has the case of the file's name.
    ///
    /// # Why
    /// macOS and Windows ignore case, Linux, Android and hubs do not. Of two such files one replaces the other in a
    /// checkout, and a name of the wrong case is found on one machine and not on the next.
    ///
    /// # Example
    /// `Tiny_xnnpack_fp32.pte` beside `tiny_xnnpack_fp32.pte`.
    ///
    /// # Fix
    /// Rename or delete one of the two; write a reference as the file is named.
    ///
    /// # What it does not see
    /// Files outside the config's directory that it does not name. On Linux a reference of the wrong case to a file
    /// outside the config's directory, if the disk ignores case; where the disk does not, the file is missing
    /// (`file-missing`).
    PKG060 "file-name-case" Error "Names of files differ only in case." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let beside = context.models_beside.unwrap_or_default();
    let references = context.files.iter().map(|file| file.file.reference.as_str());
    // Without an upper-case letter no two names differ in case alone.
    if !beside.iter().map(String::as_str).chain(references).any(has_upper) {
        return;
    }
    let there = context.files.iter().filter(|file| file.facts.as_ref().is_ok_and(|facts| !facts.is_missing()));
    for file in there.clone() {
        if let Some(real) = real_name(file, beside) {
            let message = format!("`{}` is called `{real}`: a disk that tells cases apart does not find it", file.file.reference);
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
            let message = format!("`{one}` and `{other}` differ only in case: where a disk ignores case, they are one file");
            findings.push(RULE.meta.finding(anchor, message).help("rename or delete one of them"));
            told.push(key);
        }
    }
}

fn has_upper(name: &str) -> bool {
    name.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii())
}

/// The name of the file that a reference leads to, if it differs in case from the reference's.
fn real_name(file: &Referenced, beside: &[String]) -> Option<String> {
    let path = &file.facts.as_ref().ok()?.path;
    let name = steps::name(path)?;
    if file.is_model && !leaves_directory(&file.file.reference) && !file.file.reference.contains('/') {
        return other_case(name, beside.iter().map(String::as_str));
    }
    // Where disks are usually case-sensitive, the file would be missing.
    let ignores_case = cfg!(any(windows, target_os = "macos"));
    let names = ignores_case.then(|| names_in(path.parent()?)).flatten()?;
    other_case(name, names.iter().map(String::as_str))
}

/// The only near name of another case, unless the name itself is there.
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
