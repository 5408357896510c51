//! `schema`: a violation of the JSON Schema.

use crate::diagnostic::Finding;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// The file follows its JSON Schema: `schemas/config.schema.json` or
    /// `schemas/precisions.schema.json` (draft 2020-12; `pkgtool schema` prints them): required
    /// and known keys, types, patterns, allowed values.
    ///
    /// # Why
    /// Readers of packages rely on it. Each fault is reported once and where the author made it:
    /// a mistyped key is one finding, not an unknown key and a missing one, and all that one object
    /// lacks is one finding.
    ///
    /// # Example
    /// ```json
    /// { "precison": "fp32", "file": "tiny_xnnpack_fp32.pte" }
    /// ```
    ///
    /// # Fix
    /// Do what the help line says.
    ///
    /// # What it does not see
    /// What a schema cannot say: whether files exist, whether signatures are the model's. A key that is
    /// missing because another was mistyped is told once, as the mistyped one.
    PKG004 "schema" Error "The file violates its JSON Schema." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for violation in &context.violations {
        let finding = RULE.meta.finding(violation.anchor.clone(), &violation.message);
        findings.push(match &violation.help {
            Some(help) => finding.help(help),
            None => finding,
        });
    }
}
