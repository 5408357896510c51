//! Rule `method-undeclared`: reports methods of the model that the config does not declare.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// If a variant declares methods, it declares every method of the model file. Constant methods
    /// (no inputs, no instructions: `get_max_seq_len`, …) are metadata and not required. The rule
    /// is silent while a declared method is not in the model (`method-not-in-model`), because the
    /// wrong name is probably meant for the undeclared method.
    ///
    /// # Why
    /// Callers cannot find an undeclared method, and it is not checked.
    ///
    /// # Example
    /// A program with `encode` and `decode` of which only `encode` is declared.
    ///
    /// # Fix
    /// Declare it with the signature in the help line; `pkgtool fix` does this.
    ///
    /// # What it does not see
    /// Variants without `methods`; `methods-missing` reports them.
    PKG030 "method-undeclared" Warning fix Safe "A method of the model is not declared." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(DifferenceKind::MethodUndeclared, &RULE.meta, context, findings);
}
