//! Rule `tensor-name`: notes tensors whose declared name differs from the model's.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// If both the config and the model file name a tensor, the names are the same. ExecuTorch
    /// programs store no names.
    ///
    /// # Why
    /// Runtimes that bind by name use the model's names. A curated name in the config is allowed,
    /// so this is a note.
    ///
    /// # Example
    /// `"name": "image"` for an ONNX input named `input.1`.
    ///
    /// # Fix
    /// Keep the name if it is curated on purpose; otherwise leave `name` out.
    ///
    /// # What it does not see
    /// Tensors of ExecuTorch programs, which store no names.
    PKG036 "tensor-name" Note "A tensor has another name in the model." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(DifferenceKind::Name, &RULE.meta, context, findings);
}
