//! Rule `file-unlisted`: reports model files in the config's directory that no variant references.

use std::fs;
use std::path::Path;

use pkgtool_base::diagnostic::{Anchor, Finding, Fix};
use pkgtool_base::package::reference::normalize;
use pkgtool_base::package::{model_file, steps};
use pkgtool_base::source::hashed::Set;
use pkgtool_base::source::same_file::is_same_file;
use crate::validate::context::Context;
use crate::validate::references::ReferencedFile;

/// Maximum number of listed files compared with each unlisted one.
const MAX_COMPARED: usize = 200;

/// Maximum number of unlisted files reported for one config.
const MAX_LISTED: usize = 20;

rule! {
    /// # What it checks
    /// Every model file in the config's directory (`.pte`, `.onnx`, `.mlpackage`, …) is referenced
    /// by a variant. The rule is silent while a reference of the config cannot be resolved, because
    /// that reference may be meant for the file.
    ///
    /// # Why
    /// Either the file is published and downloaded for nothing, or a variant was forgotten.
    ///
    /// # Example
    /// `tiny_xnnpack_int8.pte` beside a config whose only variant is `fp32`;
    /// `._tiny_xnnpack_fp32.pte`, which macOS writes on foreign disks.
    ///
    /// # Fix
    /// Add a variant for it, or delete the file. `pkgtool fix --unsafe` removes a second name (a
    /// hard link) of a listed file.
    ///
    /// # What it does not see
    /// Files in other directories, weights beside models, and files with unknown extensions.
    PKG020 "file-unlisted" Warning fix Unsafe "No variant references a model file in the directory." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    // Without the complete config, a referenced file would look unlisted.
    let complete = context.config.is_some() && context.violations.is_empty();
    // A variant with both `file` and `components`, or neither, is ambiguous.
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
    // `file-name-case` reports names that differ only in case.
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
        let anchor = Anchor::Key(pkgtool_base::source::JsonPath::root().key("variants"));
        if model_file::is_shadow(&name) {
            let message = format!("`{name}` is not a model: macOS keeps attributes of `{}` in it", &name[2..]);
            findings.push(RULE.meta.finding(anchor, message).help("delete it; `dot_clean` removes such files"));
            continue;
        }
        let message = format!("no variant names `{name}`, a model file in this directory");
        let finding = RULE.meta.finding(anchor, message);
        let fix = second_name(context, &name);
        findings.push(finding.help("add a variant for it, or delete the file").fix(fix));
    }
}

/// Removes a second name of a listed file, as an interrupted renaming leaves it.
fn second_name(context: &Context<'_>, name: &str) -> Option<Fix> {
    let path = normalize(&context.directory.join(name));
    let facts = context.files.iter().filter_map(|file| file.facts.as_ref().ok());
    let listed = facts.map(|facts| &facts.path).take(MAX_COMPARED).find(|listed| is_same_file(listed, &path))?;
    let title = format!("remove `{name}`, a second name of `{}`", listed.file_name()?.to_str()?);
    Some(Fix::needs_consent(title, Vec::new()).renaming(path, listed.clone()))
}

/// Returns whether a reference resolves, or does not belong to a model. An unresolved reference may
/// be meant for the file that looks unlisted.
fn is_followed(file: &ReferencedFile) -> bool {
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
