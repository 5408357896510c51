//! `method-undeclared`: a method of the model is not declared.

use crate::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::Kind;

rule! {
    /// # What it checks
    /// Every method of the model file is declared, once the variant declares methods at all. Constant methods (no inputs, no instructions: `get_max_seq_len`, …) are metadata and are left out. While a declared method is not in the model (`method-not-in-model`), nothing is said: a wrong name is most likely the missing one.
    ///
    /// # Why
    /// What is not declared can't be found by a caller, and is not checked.
    ///
    /// # Example
    /// A program with `encode` and `decode` of which only `encode` is declared.
    ///
    /// # Fix
    /// Declare it, with the signature that the help line gives; `pkgtool fix` does.
    ///
    /// # What it does not see
    /// Variants without `methods`; `methods-missing` speaks of them.
    PKG030 "method-undeclared" Warning fix Safe "A method of the model is not declared." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(Kind::MethodUndeclared, &RULE.meta, context, findings);
}
