//! `tokenizer-invalid`: a tokenizer file that is no JSON.

use std::path::Path;

use crate::diagnostic::{Anchor, Finding};
use crate::package::model_file;
use crate::validate::context::Context;
use crate::validate::files::FileState;

/// Tokenizer formats that are not JSON: SentencePiece models, tiktoken ranks, plain vocabularies.
const OTHER_FORMATS: [&str; 6] = ["model", "spm", "tiktoken", "bin", "txt", "vocab"];

rule! {
    /// # What it checks
    /// The files under `tokenizer` and `tokenizer_config` are JSON. A tokenizer in another known
    /// format (`.model`, `.spm`, `.tiktoken`, `.bin`, `.txt`, `.vocab`) is not looked into.
    ///
    /// # Why
    /// A tokenizer that does not parse makes every text capability fail, at run time.
    ///
    /// # Example
    /// A `tokenizer.json` that is an HTML error page, or cut off.
    ///
    /// # Fix
    /// Fetch or export the tokenizer again.
    ///
    /// # What it does not see
    /// Whether a tokenizer works, and is the model's.
    PKG022 "tokenizer-invalid" Error "A tokenizer file is not JSON." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for file in context.files.iter().filter(|file| file.variant.is_none()) {
        let Ok(facts) = &file.facts else { continue };
        if !matches!(facts.state, FileState::File(_)) || is_other_format(&file.file.reference) {
            continue;
        }
        if let Err(error) = facts.json() {
            let anchor = Anchor::Value(file.file.path.clone());
            let reference = &file.file.reference;
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
