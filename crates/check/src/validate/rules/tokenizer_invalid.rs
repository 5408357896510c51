//! Rule `tokenizer-invalid`: reports tokenizer files that are invalid JSON or make texts grow
//! without bounds.

use std::path::Path;

use pkgtool_base::diagnostic::{Anchor, Finding, Severity};
use pkgtool_base::package::model_file;
use crate::validate::context::Context;
use crate::validate::files::FileState;

/// Tokenizer formats that are not JSON: SentencePiece models, tiktoken ranks, plain vocabularies.
const OTHER_FORMATS: [&str; 6] = ["model", "spm", "tiktoken", "bin", "txt", "vocab"];

rule! {
    /// # What it checks
    /// The files under `tokenizer` and `tokenizer_config` are JSON. A tokenizer in another known
    /// format (`.model`, `.spm`, `.tiktoken`, `.bin`, `.txt`, `.vocab`) is not inspected. The
    /// replacements of its normalizer together produce at most 1000 characters from one; more is a
    /// warning.
    ///
    /// # Why
    /// A tokenizer that does not parse makes every text capability fail at run time. A tokenizer
    /// whose replacements multiply exhausts the memory for a short text.
    ///
    /// # Example
    /// A `tokenizer.json` that is an HTML error page, or truncated.
    ///
    /// # Fix
    /// Download or export the tokenizer again.
    ///
    /// # What it does not see
    /// A valid tokenizer that does not work, or that belongs to another model.
    PKG022 "tokenizer-invalid" Error "A tokenizer file is not JSON." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for file in context.files.iter().filter(|file| file.variant.is_none()) {
        let Ok(facts) = &file.facts else { continue };
        if !matches!(facts.state, FileState::File(_)) || is_other_format(&file.file.reference) {
            continue;
        }
        let anchor = Anchor::Value(file.file.path.clone());
        let reference = &file.file.reference;
        if let Some(growth) = facts.json().as_ref().ok().and_then(|keys| keys.excessive_growth()) {
            let message = format!("the normalizer of `{reference}` can produce {growth:.0} characters from one");
            let help = "a short text could exhaust the memory: check the `Replace` steps of `normalizer`";
            let finding = RULE.meta.finding(anchor, message).severity(Severity::Warning);
            findings.push(finding.help(help).about(&facts.path));
            continue;
        }
        if let Err(error) = facts.json() {
            let (message, help) = if model_file::has_extension(reference) {
                (format!("`{reference}` is a model file, not JSON"), "name the tokenizer's file")
            } else {
                (format!("`{reference}` is not JSON: {}", error.message), error.help.as_str())
            };
            findings.push(RULE.meta.finding(anchor, message).help(help).about(&facts.path));
        }
    }
}

fn is_other_format(reference: &str) -> bool {
    let extension = Path::new(reference).extension();
    extension
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| OTHER_FORMATS.contains(&extension))
}
