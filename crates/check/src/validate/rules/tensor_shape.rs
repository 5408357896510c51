//! Rule `tensor-shape`: reports tensors declared with another shape than the model's.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// Each declared size is the model's. For a bounded dynamic tensor of an ExecuTorch program,
    /// the file may not record which dimension is dynamic. Then a size must be the upper bound or
    /// -1.
    ///
    /// # Why
    /// Applications allocate and resize by the declared shape.
    ///
    /// # Example
    /// `"shape": [1, 3, 256, 256]` for an input of `[1, 3, 224, 224]`, after a new export.
    ///
    /// # Fix
    /// Write the model's shape; `pkgtool fix` does this.
    ///
    /// # What it does not see
    /// Dimensions that may be dynamic according to the file, and tensors of a wrong rank.
    PKG034 "tensor-shape" Error fix Safe "A tensor has another shape than declared." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(DifferenceKind::Shape, &RULE.meta, context, findings);
}
