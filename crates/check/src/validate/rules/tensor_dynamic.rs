//! Rule `tensor-dynamic`: reports dimensions that are dynamic in the model or in the config, but
//! not in both.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// A dimension is declared as -1 exactly when it is dynamic in the model. An ExecuTorch program
    /// may record that a tensor is dynamic without recording the dimension. Then at least one
    /// dimension must be -1.
    ///
    /// # Why
    /// A caller that trusts a fixed size never uses the other sizes. A caller that trusts -1 gets
    /// an error for all sizes but one.
    ///
    /// # Example
    /// `"shape": [16, 3, 32, 32]` for a batch that may have 1 to 16 items.
    ///
    /// # Fix
    /// Write -1 for the dynamic dimensions, sizes for the fixed ones. `pkgtool fix` does this if
    /// the file records which dimensions are dynamic.
    ///
    /// # What it does not see
    /// Bounds: a config cannot express the maximum of a dynamic dimension.
    PKG035 "tensor-dynamic" Error fix Safe "A dimension is dynamic in the model or in the config, but not in both." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(DifferenceKind::Dynamic, &RULE.meta, context, findings);
}
