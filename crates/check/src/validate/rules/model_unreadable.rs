//! Rule `model-unreadable`: reports broken model files.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_model::ModelError;
use crate::validate::context::Context;
use crate::validate::files::ModelFacts;

rule! {
    /// # What it checks
    /// Every model in a supported format (ExecuTorch `.pte`, ONNX, Core ML) has a valid header. The
    /// graph of an ONNX model is checked as ONNX Runtime checks it: names, order, operators,
    /// attributes and types. Weights are not read. The finding names the error and its offset in
    /// the file; in a Core ML `.mlpackage`, which is a folder, also the file.
    ///
    /// # Why
    /// A truncated or damaged file fails on the device, or crashes the runtime there.
    ///
    /// # Example
    /// A `.pte` whose download was cut off: its header promises more bytes than there are.
    ///
    /// # Fix
    /// Export or download the file again.
    ///
    /// # What it does not see
    /// Weights. A model with a valid header may still have broken weights. It may also be truncated
    /// after the header, if its format does not record the length. In a `.mlpackage`, the headers
    /// of all weights are read.
    PKG027 "model-unreadable" Error "A model file is broken." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for file in &context.files {
        let Ok(facts) = &file.facts else { continue };
        let Some(ModelFacts::Broken(error)) = &facts.model else {
            continue;
        };
        // `file-unreadable` reports I/O errors.
        if matches!(error, ModelError::Io(_)) {
            continue;
        }
        let anchor = Anchor::Value(file.file.path.clone());
        let message = format!("`{}` is broken: {error}", file.file.reference);
        let finding = RULE.meta.finding(anchor, message);
        findings.push(finding.help("export or download the file again").about(&facts.path));
    }
}
