//! `json-syntax`: a config or list that is no JSON.

use crate::diagnostic::{Anchor, Finding};
use crate::package::{LoadFault, load};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// The file is JSON as RFC 8259 has it: UTF-8 without a byte order mark, no comments, no
    /// trailing commas, no single quotes; nested at most 127 levels deep, with at most 100000 values
    /// and keys of at most 256 bytes.
    ///
    /// # Why
    /// Applications read configs with strict parsers. What an editor forgives, a phone does not.
    ///
    /// # Example
    /// ```json
    /// { "model": "tiny", }
    /// ```
    ///
    /// # Fix
    /// Correct the text at the place shown. Only the first fault of a file can be shown.
    ///
    /// # What it does not see
    /// Anything behind the first fault: what was not parsed is not checked.
    PKG002 "json-syntax" Error "The file is not JSON." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if let Some(LoadFault::Syntax(error)) = context.fault() {
        let finding = RULE.meta.finding(
            Anchor::Text(error.span),
            format!("not readable as JSON: {}", error.message),
        );
        findings.push(finding.help(error.help.clone()));
    }
}

/// Why a file has no document, in a few words.
pub(in crate::validate) fn describe_fault(fault: &LoadFault) -> String {
    match fault {
        LoadFault::Unreadable(reason) => format!("it cannot be read: {reason}"),
        LoadFault::TooLarge(size) => {
            format!("it has {size} bytes, the limit is {}", load::MAX_SIZE)
        }
        LoadFault::Empty => "it is empty".to_owned(),
        LoadFault::LfsPointer(_) => "it is a Git LFS pointer".to_owned(),
        LoadFault::Syntax(error) => format!("it is not JSON: {}", error.message),
    }
}
