//! Rule `schema`: reports violations of the JSON Schema.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// The file follows its JSON Schema: `schemas/config.schema.json` or
    /// `schemas/precisions.schema.json` (draft 2020-12; `pkgtool schema` prints them): required and
    /// known keys, types, patterns, allowed values.
    ///
    /// # Why
    /// Readers of packages rely on it. Each mistake is reported once, at its origin: a mistyped key
    /// is one finding, not an unknown key and a missing one. All keys missing from one object are
    /// one finding.
    ///
    /// # Example
    /// ```json
    /// { "precison": "fp32", "file": "tiny_xnnpack_fp32.pte" }
    /// ```
    ///
    /// # Fix
    /// Follow the help line. `pkgtool fix` adds a missing `$schema`, corrects a key that resembles
    /// a missing one, and removes repetitions in lists. It also converts a value whose meaning is
    /// certain (`"12"` to 12, `"vision"` to `["vision"]`, `XNNPACK` to `xnnpack`). `pkgtool fix
    /// --unsafe` also writes tokens and words that were most likely meant.
    ///
    /// # What it does not see
    /// Facts that a schema cannot express: whether files exist, whether signatures match the model.
    /// If a key is missing because it was mistyped, only the mistyped key is reported.
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
