//! `tensor-rank`: a tensor has another rank than declared.

use crate::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::Kind;

rule! {
    /// # What it checks
    /// Each declared shape has as many dimensions as the model's tensor.
    ///
    /// # Why
    /// A runtime refuses a tensor of another rank.
    ///
    /// # Example
    /// `"shape": [3, 224, 224]` for an input of `[1, 3, 224, 224]`.
    ///
    /// # Fix
    /// Write the model's shape, batch dimension included; `pkgtool fix` does.
    ///
    /// # What it does not see
    /// Tensors behind a wrong count (`tensor-count`).
    PKG033 "tensor-rank" Error fix Safe "A tensor has another rank than declared." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(Kind::Rank, &RULE.meta, context, findings);
}
