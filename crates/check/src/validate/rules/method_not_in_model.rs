//! Rule `method-not-in-model`: reports declared methods that the model file does not have.

use pkgtool_base::diagnostic::Finding;
use crate::validate::context::Context;
use crate::validate::rules::mismatch::findings_of;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// Every method that the config declares is in the model file. An ONNX file does not name its
    /// graph: it matches `forward`, or the only declared method, whatever its name.
    ///
    /// # Why
    /// An application that calls a method by its declared name gets an error from the runtime.
    ///
    /// # Example
    /// `"methods": { "encode": … }` for a program that has only `forward`.
    ///
    /// # Fix
    /// Use the model's own names; the help line lists them. `pkgtool fix` does this if a name is
    /// similar, or if one method is left for one wrong name.
    ///
    /// # What it does not see
    /// Models that cannot be read. An ONNX file does not name its graph, so any single name fits.
    PKG029 "method-not-in-model" Error fix Safe "A declared method is not in the model." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    findings_of(DifferenceKind::MethodNotInModel, &RULE.meta, context, findings);
}
