//! Rule `tensor-dtype`: reports tensors declared with another dtype than the model's.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// Each declared dtype is the model's.
    ///
    /// # Why
    /// Runtimes reject a tensor of another dtype, or misinterpret its bytes.
    ///
    /// # Example
    /// `"dtype": "int32"` for token ids that the program takes as int64.
    ///
    /// # Fix
    /// Write the model's dtype; `pkgtool fix` does this.
    ///
    /// # What it does not see
    /// The meaning of the numbers: pixels from 0 to 1 and from 0 to 255 are both float32.
    PKG032 "tensor-dtype" Error fix Safe "A tensor has another dtype than declared." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(DifferenceKind::DType, &RULE.meta, context, findings);
}
