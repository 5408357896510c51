//! Rule `json-syntax`: reports configs and precision lists that are invalid JSON.

use pkgtool_base::diagnostic::{Anchor, Finding, Fix};
use pkgtool_base::package::LoadFault;
use pkgtool_base::source::strict;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// The file is valid JSON according to RFC 8259: UTF-8 without a byte order mark, no comments,
    /// no trailing commas, no single quotes. It is nested at most 127 levels deep, and has at most
    /// 100000 values and keys of at most 256 bytes.
    ///
    /// # Why
    /// Applications read configs with strict parsers. A phone rejects errors that an editor
    /// tolerates.
    ///
    /// # Example
    /// ```json
    /// { "model": "tiny", }
    /// ```
    ///
    /// # Fix
    /// Correct the text at the reported location. Only the first error of a file is reported.
    /// `pkgtool fix` repairs the file if its only errors are comments, trailing commas, single or
    /// curly quotes, unquoted keys, `True`, `False` and `None`, no-break spaces, or a byte order
    /// mark.
    ///
    /// # What it does not see
    /// Anything after the first error, because it cannot be parsed.
    PKG002 "json-syntax" Error fix Safe "The file is not valid JSON." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if let Some(LoadFault::Syntax(error)) = context.fault() {
        let finding = RULE.meta.finding(
            Anchor::Text(error.span),
            format!("invalid JSON: {}", error.message),
        );
        // For text that is not UTF-8, only the valid beginning is known.
        let is_text = !error.span.is_empty() || error.span.start < context.loaded.text.len();
        let made = is_text.then(|| strict(&context.loaded.text)).flatten();
        let fix = made.map(|made| Fix::safe(made.title, made.edits));
        findings.push(finding.help(error.help.clone()).fix(fix));
    }
}

/// Describes briefly why a file could not be loaded.
pub(in crate::validate) fn describe_fault(fault: &LoadFault) -> String {
    fault.to_string()
}
