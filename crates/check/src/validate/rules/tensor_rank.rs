//! Rule `tensor-rank`: reports tensors declared with another rank than the model's.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// Each declared shape has as many dimensions as the model's tensor.
    ///
    /// # Why
    /// Runtimes reject a tensor of another rank.
    ///
    /// # Example
    /// `"shape": [3, 224, 224]` for an input of `[1, 3, 224, 224]`.
    ///
    /// # Fix
    /// Write the model's shape, including the batch dimension; `pkgtool fix` does this.
    ///
    /// # What it does not see
    /// Tensors of a method with a wrong count (`tensor-count`).
    PKG033 "tensor-rank" Error fix Safe "A tensor has another rank than declared." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(DifferenceKind::Rank, &RULE.meta, context, findings);
}
