//! `json-syntax`: a config or list that is no JSON.

use crate::diagnostic::{Anchor, Finding, Fix};
use crate::package::LoadFault;
use crate::source::strict;
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
    /// Correct the text at the place shown. Only the first fault of a file can be shown. Where comments,
    /// commas after the last item, single or curly quotes, keys without quotes, `True`, `False` and `None`, no-break
    /// spaces and a byte order mark are all that is wrong, `pkgtool fix` takes them out.
    ///
    /// # What it does not see
    /// Anything behind the first fault: what was not parsed is not checked.
    PKG002 "json-syntax" Error fix Safe "The file is not JSON." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if let Some(LoadFault::Syntax(error)) = context.fault() {
        let finding = RULE.meta.finding(
            Anchor::Text(error.span),
            format!("not readable as JSON: {}", error.message),
        );
        // Of what is no UTF-8 only the beginning is known.
        let is_text = !error.span.is_empty() || error.span.start < context.loaded.text.len();
        let made = is_text.then(|| strict(&context.loaded.text)).flatten();
        let fix = made.map(|made| Fix::safe(made.title, made.edits));
        findings.push(finding.help(error.help.clone()).fix(fix));
    }
}

/// Why a file has no document, in a few words.
pub(in crate::validate) fn describe_fault(fault: &LoadFault) -> String {
    fault.to_string()
}
