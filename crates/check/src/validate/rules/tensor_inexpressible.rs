//! Rule `tensor-inexpressible`: notes values in a method's signature that a config cannot describe.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// The inputs and outputs of a method can be described by a config. Values that are not
    /// tensors, and tensors of a dtype outside the format's list, cannot.
    ///
    /// # Why
    /// Nothing is wrong with the package. But its config does not describe the whole signature, and
    /// pkgtool cannot check that part.
    ///
    /// # Example
    /// A program that takes a tensor and an int; an ONNX model with a uint16 input.
    ///
    /// # Fix
    /// Describe the value in the model's documentation. If the value is always the same, export the
    /// model with it fixed.
    ///
    /// # What it does not see
    /// The meaning of such a value, and the values that a caller has to pass.
    PKG037 "tensor-inexpressible" Note "A method has a value that a config cannot describe." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(DifferenceKind::Inexpressible, &RULE.meta, context, findings);
}
