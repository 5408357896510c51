//! Rule `external-data`: reports missing or unusable external data files of models.

use std::path::{Path, PathBuf};

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::reference;
use pkgtool_base::source;
use crate::validate::context::Context;
use crate::validate::references::ReferencedFile;

rule! {
    /// # What it checks
    /// The external data of a model exists. Each external-data file of an ONNX model is in the
    /// model's own directory or below, and is long enough. The same holds for the compiled graph of
    /// an `EPContext` node. An ExecuTorch program with external tensors has valid `.ptd` files
    /// beside it that contain these tensors.
    ///
    /// # Why
    /// A model without its weights does not load. Runtimes reject a location outside the model's
    /// directory, because it could read any file of the machine.
    ///
    /// # Example
    /// An ONNX file whose initializers are in `model.onnx.data`, which was not uploaded.
    ///
    /// # Fix
    /// Put the data file beside the model, or export the model with its weights inside.
    ///
    /// # What it does not see
    /// The content of the data. The `.ptd` of a program is found only by its name.
    PKG040 "external-data" Error "External data of a model is missing or unusable." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (file, info) in context.models() {
        let Some(directory) = directory_of(file) else {
            continue;
        };
        for external in &info.external {
            if let Err(fault) = external.locate(&directory) {
                let anchor = Anchor::Value(file.file.path.clone());
                let message = format!("`{}` {fault}", file.file.reference);
                let finding = RULE.meta.finding(anchor, message);
                findings.push(finding.help("put the data file beside the model, or export the model with its weights inside"));
            }
        }
    }
}

/// Returns the total size of the existing external data, in bytes.
pub(super) fn present_bytes(file: &ReferencedFile) -> u64 {
    let external = file.model_info().map_or(&[][..], |info| &info.external);
    if external.is_empty() {
        return 0;
    }
    let Some(directory) = directory_of(file) else {
        return 0;
    };
    let sizes = external.iter().filter_map(|external| {
        let path = reference::resolve(&directory, 0, external.location.as_deref()?).ok()?;
        Some(source::metadata(&path).ok()?.len())
    });
    sizes.sum()
}

fn directory_of(file: &ReferencedFile) -> Option<PathBuf> {
    let facts = file.facts.as_ref().ok()?;
    facts.path.parent().map(Path::to_owned)
}
