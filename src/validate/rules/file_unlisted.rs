//! `file-unlisted`: a model file that no variant names.

use std::fs;
use std::path::Path;

use crate::diagnostic::{Anchor, Finding, Fix};
use crate::package::reference::normalize;
use crate::package::{model_file, steps};
use crate::source::hashed::Set;
use crate::source::same_file::is_same_file;
use crate::validate::context::Context;
use crate::validate::references::Referenced;

/// Most listed files that an unlisted one is compared with.
const MAX_COMPARED: usize = 200;

/// Most unlisted files named in one config's findings.
const MAX_LISTED: usize = 20;

rule! {
    /// # What it checks
    /// Every model file in the config's directory (`.pte`, `.onnx`, `.mlpackage`, …) is named by a
    /// variant. Nothing is said while a reference of the config can't be followed: it may be meant for
    /// the file.
    ///
    /// # Why
    /// A file that no variant names is published and downloaded for nothing, or a variant was
    /// forgotten.
    ///
    /// # Example
    /// `tiny_xnnpack_int8.pte` beside a config whose only variant is `fp32`; `._tiny_xnnpack_fp32.pte`, which macOS
    /// writes on foreign disks.
    ///
    /// # Fix
    /// Add a variant for it, or delete the file. `pkgtool fix --unsafe` takes away a second name (a hard link) of a
    /// file that is listed.
    ///
    /// # What it does not see
    /// Files in other directories, weights beside models, and extensions that are not known here.
    PKG020 "file-unlisted" Warning fix Unsafe "A model file in the directory is named by no variant." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    // Without all references, a file that is named would look unlisted.
    let complete = context.config.is_some() && context.violations.is_empty();
    // With both `file` and `components`, or neither, it is not known what was meant.
    let mut variants = context.variants().iter();
    let clear = variants.all(|variant| variant.has_file != variant.has_components);
    let mut files = context.files.iter();
    if !complete || !clear || files.any(|file| !is_followed(file)) {
        return;
    }
    let directory = normalize(context.directory);
    let facts = context.files.iter().filter_map(|file| file.facts.as_ref().ok());
    let here = facts.filter(|facts| steps::above(&facts.path) == Some(&directory));
    let listed: Set<&str> = here.filter_map(|facts| steps::name(&facts.path)).collect();
    // Of names that differ only in case `file-name-case` speaks.
    let is_listed = |name: &String| {
        listed.contains(name.as_str()) || listed.iter().any(|other| other.eq_ignore_ascii_case(name))
    };
    let mut unlisted: Vec<String> = match context.models_beside {
        Some(names) => names.iter().filter(|name| !is_listed(name)).cloned().collect(),
        None => model_files(context.directory).filter(|name| !is_listed(name)).collect(),
    };
    unlisted.sort();
    unlisted.truncate(MAX_LISTED);
    for name in unlisted {
        let anchor = Anchor::Key(crate::source::JsonPath::root().key("variants"));
        if model_file::is_shadow(&name) {
            let message = format!("`{name}` is no model: macOS keeps attributes of `{}` in it", &name[2..]);
            findings.push(RULE.meta.finding(anchor, message).help("delete it; `dot_clean` removes such files"));
            continue;
        }
        let message = format!("no variant names `{name}`, a model file in this directory");
        let finding = RULE.meta.finding(anchor, message);
        let fix = second_name(context, &name);
        findings.push(finding.help("add a variant for it, or delete the file").fix(fix));
    }
}

/// A second name of a file that is listed goes: it is what an interrupted renaming left.
fn second_name(context: &Context<'_>, name: &str) -> Option<Fix> {
    let path = normalize(&context.directory.join(name));
    let facts = context.files.iter().filter_map(|file| file.facts.as_ref().ok());
    let listed = facts.map(|facts| &facts.path).take(MAX_COMPARED).find(|listed| is_same_file(listed, &path))?;
    let title = format!("remove `{name}`, a second name of `{}`", listed.file_name()?.to_str()?);
    Some(Fix::needs_consent(title, Vec::new()).renaming(path, listed.clone()))
}

/// Whether a reference leads to a file, or to none of the variants'. One that does not may be meant
/// for the file that looks unlisted.
fn is_followed(file: &Referenced) -> bool {
    match &file.facts {
        Ok(facts) => !(file.is_model && (facts.is_missing() || file.is_wrong_directory())),
        Err(_) => false,
    }
}

fn model_files(directory: &Path) -> impl Iterator<Item = String> {
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| model_file::has_extension(name))
}
