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
    /// Do what the help line says. `pkgtool fix` adds a missing `$schema`, corrects a key that is nearly one that
    /// is missing, takes out repetitions in lists, and writes a value of another type that can mean only one
    /// thing (`"12"` for 12, `"vision"` for `["vision"]`, `XNNPACK` for `xnnpack`); `pkgtool fix --unsafe` also
    /// writes tokens and words that were most likely meant.
    ///
    /// # What it does not see
    /// What a schema cannot say: whether files exist, whether signatures are the model's. A key that is
    /// missing because another was mistyped is told once, as the mistyped one.
    PKG004 "schema" Error fix Unsafe "The file violates its JSON Schema." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for violation in &context.violations {
        let mend = violation.mend.as_ref();
        let fix = mend.and_then(|(applicability, mend)| context.fix(*applicability, mend));
        let finding = RULE.meta.finding(violation.anchor.clone(), &violation.message).fix(fix);
        findings.push(match &violation.help {
            Some(help) => finding.help(help),
            None => finding,
        });
    }
}
