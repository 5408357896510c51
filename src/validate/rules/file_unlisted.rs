//! `file-unlisted`: a model file that no variant names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::diagnostic::{Anchor, Finding};
use crate::package::model_file;
use crate::package::reference::normalize;
use crate::validate::context::Context;
use crate::validate::references::Referenced;

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
    /// `tiny_xnnpack_int8.pte` beside a config whose only variant is `fp32`.
    ///
    /// # Fix
    /// Add a variant for it, or delete the file.
    ///
    /// # What it does not see
    /// Files in other directories, weights beside models, and extensions that are not known here.
    PKG020 "file-unlisted" Warning "A model file in the directory is named by no variant." => check
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
    let facts = context.files.iter().filter_map(|file| file.facts.as_ref().ok());
    let listed: HashSet<&OsStr> = facts.map(|facts| facts.path.as_os_str()).collect();
    let is_listed =
        |name: &String| listed.contains(normalize(&context.directory.join(name)).as_os_str());
    let mut unlisted: Vec<String> = match context.models_beside {
        Some(names) => names.iter().filter(|name| !is_listed(name)).cloned().collect(),
        None => model_files(context.directory).filter(|name| !is_listed(name)).collect(),
    };
    unlisted.sort();
    unlisted.truncate(MAX_LISTED);
    for name in unlisted {
        let anchor = Anchor::Key(crate::source::JsonPath::root().key("variants"));
        let message = format!("no variant names `{name}`, a model file in this directory");
        let finding = RULE.meta.finding(anchor, message);
        findings.push(finding.help("add a variant for it, or delete the file"));
    }
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
