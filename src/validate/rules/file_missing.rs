//! `file-missing`: a reference to nothing.

use crate::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;
use crate::validate::files::FileState;
use crate::package::leftover::is_placeholder;

rule! {
    /// # What it checks
    /// Every file that the config names exists: `file`, `components`, `tokenizer`,
    /// `tokenizer_config`. Paths are relative to the config's directory.
    ///
    /// # Why
    /// A download of the package fails, or succeeds without the part that is missing.
    ///
    /// # Example
    /// ```json
    /// { "tokenizer": "tokenizer.json" }
    /// ```
    /// where the file is at the repository root and `"../tokenizer.json"` was meant.
    ///
    /// # Fix
    /// Correct the path, or add the file.
    PKG015 "file-missing" Error "A file that the config names does not exist." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for file in &context.files {
        let reference = &file.file.reference;
        let Ok(facts) = &file.facts else { continue };
        if !matches!(facts.state, FileState::Missing) || is_placeholder(reference) {
            continue;
        }
        let anchor = Anchor::Value(file.file.path.clone());
        let message = format!("`{reference}` does not exist");
        let path = facts.path.display();
        findings.push(
            RULE.meta
                .finding(anchor, message)
                .help(format!("looked for {path}; paths are relative to the config's directory")),
        );
    }
}
