//! `tensor-count`: a method has another number of tensors than declared.

use crate::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::Kind;

rule! {
    /// # What it checks
    /// A method is declared with as many input and output tensors as it has. Inputs and outputs that are no tensors (ints, floats, bools, none) do not count: a config can't describe them.
    ///
    /// # Why
    /// Callers bind tensors by position. One too few or too many fails at the first call.
    ///
    /// # Example
    /// One declared input for a model that takes token ids and an attention mask.
    ///
    /// # Fix
    /// Declare all tensors, in order; the help line lists them. `pkgtool fix` does, and keeps names of tensors that are told from the others.
    ///
    /// # What it does not see
    /// The order of tensors of one shape and dtype.
    PKG031 "tensor-count" Error fix Safe "A method has another number of tensors than declared." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(Kind::Count, &RULE.meta, context, findings);
}
