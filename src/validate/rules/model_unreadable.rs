//! `model-unreadable`: a model file that is broken.

use crate::diagnostic::{Anchor, Finding};
use crate::model::ModelError;
use crate::validate::context::Context;
use crate::validate::files::ModelFacts;

rule! {
    /// # What it checks
    /// Every model whose format is read here (ExecuTorch `.pte`, ONNX, Core ML) has a sound header.
    /// The graph of an ONNX model is checked as ONNX Runtime checks it: names, order, operators, attributes and types.
    /// Weights are not read. The finding names what is broken and at which offset of the file; in a
    /// Core ML `.mlpackage`, which is a folder, also in which file.
    ///
    /// # Why
    /// A truncated or damaged file fails on the device, or crashes the runtime there.
    ///
    /// # Example
    /// A `.pte` whose download was cut off: its header promises more bytes than there are.
    ///
    /// # Fix
    /// Export or fetch the file again.
    ///
    /// # What it does not see
    /// Weights. A model whose header is sound may still have broken weights, or be cut off behind it where
    /// its format does not say how long it is. Of a `.mlpackage` the heads of all weights are read.
    PKG027 "model-unreadable" Error "A model file is broken." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for file in &context.files {
        let Ok(facts) = &file.facts else { continue };
        let Some(ModelFacts::Broken(error)) = &facts.model else {
            continue;
        };
        // What the system can't open is `file-unreadable`.
        if matches!(error, ModelError::Io(_)) {
            continue;
        }
        let anchor = Anchor::Value(file.file.path.clone());
        let message = format!("`{}` is broken: {error}", file.file.reference);
        let finding = RULE.meta.finding(anchor, message);
        findings.push(finding.help("export or fetch the file again").about(&facts.path));
    }
}
