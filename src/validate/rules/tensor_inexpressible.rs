//! `tensor-inexpressible`: a method has a value that a config cannot describe.

use crate::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::Kind;

rule! {
    /// # What it checks
    /// Whether a method has inputs or outputs that a config can't describe: values that are no tensors, and tensors of a dtype outside the format's list.
    ///
    /// # Why
    /// Nothing is wrong with the package, but its config does not tell the whole signature, and this tool can't check that part.
    ///
    /// # Example
    /// A program that takes a tensor and an int; an ONNX model with a uint16 input.
    ///
    /// # Fix
    /// Tell callers in the model's documentation. If the value is always the same, export the model with it fixed.
    ///
    /// # What it does not see
    /// What such a value means, or what a caller has to give.
    PKG037 "tensor-inexpressible" Note "A method has a value that a config cannot describe." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(Kind::Inexpressible, &RULE.meta, context, findings);
}
