//! Rule `tensor-count`: reports methods declared with the wrong number of tensors.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// The number of declared input and output tensors is that of the method. Inputs and outputs
    /// that are not tensors (ints, floats, bools, none) do not count, because a config cannot
    /// describe them.
    ///
    /// # Why
    /// Callers bind tensors by position. One too few or too many fails at the first call.
    ///
    /// # Example
    /// One declared input for a model that takes token ids and an attention mask.
    ///
    /// # Fix
    /// Declare all tensors, in order; the help line lists them. `pkgtool fix` does this, and keeps
    /// the names of tensors that it can identify.
    ///
    /// # What it does not see
    /// The order of tensors of the same shape and dtype.
    PKG031 "tensor-count" Error fix Safe "A method has another number of tensors than declared." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(DifferenceKind::Count, &RULE.meta, context, findings);
}
