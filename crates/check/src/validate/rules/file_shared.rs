//! Rule `file-shared`: reports model files that the config references more than once.

use std::collections::HashSet;
use std::ffi::OsStr;

use pkgtool_base::diagnostic::{Anchor, Finding, Severity};
use pkgtool_base::package::FileRef;
use pkgtool_base::source::hashed::Map;
use crate::validate::context::Context;
use crate::validate::references::ReferencedFile;

rule! {
    /// # What it checks
    /// No model file is referenced twice, by two variants or as two components of one variant.
    /// Variants of one precision may share a component while their other components differ, such as
    /// a text encoder used with two resolutions. If the precisions differ, sharing is a note.
    ///
    /// # Why
    /// Variants differ in precision, but a file has only one. Usually a line was copied and the
    /// name not changed. Data components (`tokenizer.json`, a voice) may be shared.
    ///
    /// # Example
    /// Variants `fp32` and `int8` that both name `tiny_xnnpack_fp32.pte`.
    ///
    /// # Fix
    /// Name each variant's own file.
    ///
    /// # What it does not see
    /// Two names of one file, through a link or as a copy (`variant-identical` compares bytes).
    PKG021 "file-shared" Warning "Two variants name the same model file." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let mut first: Map<&OsStr, &ReferencedFile> = Map::default();
    let mut same_parts = Map::default();
    for file in context.files.iter().filter(|file| file.is_model) {
        let (Ok(facts), Some(variant)) = (&file.facts, file.variant) else {
            continue;
        };
        let earlier = *first.entry(facts.path.as_os_str()).or_insert(file);
        let Some(other) = earlier.variant.filter(|_| earlier.file.path != file.file.path) else {
            continue;
        };
        let reference = &file.file.reference;
        let position = context.variants()[other].position;
        let (severity, message, help) = if other == variant {
            let message = format!("another component of this variant is already `{reference}`");
            (Severity::Warning, message, "name each component's own file")
        } else if !is_same_component(earlier, file)
            || *same_parts
                .entry((other, variant))
                .or_insert_with(|| has_same_parts(context, other, variant))
        {
            let message = format!("variant {position} already names `{reference}`");
            (Severity::Warning, message, "name this variant's own file")
        } else if precision(context, other) == precision(context, variant) {
            continue;
        } else {
            let message = format!("variant {position}, of another precision, has `{reference}` too");
            let help = "nothing is wrong if this component is the same in both; otherwise name this variant's own file";
            (Severity::Note, message, help)
        };
        let anchor = Anchor::Value(file.file.path.clone());
        findings.push(RULE.meta.finding(anchor, message).help(help).severity(severity));
    }
}

fn precision<'a>(context: &'a Context<'_>, variant: usize) -> Option<&'a str> {
    context.variants()[variant].precision.as_deref()
}

fn is_same_component(one: &ReferencedFile, other: &ReferencedFile) -> bool {
    one.file.component.is_some() && one.file.component == other.file.component
}

/// Returns whether two variants have exactly the same files.
fn has_same_parts(context: &Context<'_>, one: usize, other: usize) -> bool {
    let [one, other] = [one, other].map(|variant| &context.variants()[variant].files);
    let parts = |files: &[FileRef]| {
        let files = files.iter();
        files.map(|file| (file.component.clone(), file.reference.clone())).collect::<HashSet<_>>()
    };
    one.len() == other.len() && parts(one) == parts(other)
}
