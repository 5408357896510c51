//! `external-data`: data that a model needs from other files.

use std::path::{Path, PathBuf};

use crate::diagnostic::{Anchor, Finding};
use crate::package::reference;
use crate::source;
use crate::validate::context::Context;
use crate::validate::references::Referenced;

rule! {
    /// # What it checks
    /// The data that a model keeps in other files is there: each external-data file of an ONNX
    /// model lies in the model's own directory or below and is long enough, as does the file of a
    /// compiled graph that a node `EPContext` refers to; an ExecuTorch program
    /// with external tensors has sound `.ptd` files beside it, which hold these tensors.
    ///
    /// # Why
    /// A model without its weights does not load. A location that leaves the model's directory is
    /// refused by runtimes, because it could read any file of the machine.
    ///
    /// # Example
    /// An ONNX file whose initializers are in `model.onnx.data`, which was not uploaded.
    ///
    /// # Fix
    /// Put the data file beside the model, or export the model with its weights inside.
    ///
    /// # What it does not see
    /// What is in the data. The `.ptd` of a program is found by its name alone.
    PKG040 "external-data" Error "Data that a model keeps in another file is not there." => check
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

/// Bytes of the external data that is there.
pub(super) fn present_bytes(file: &Referenced) -> u64 {
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

fn directory_of(file: &Referenced) -> Option<PathBuf> {
    let facts = file.facts.as_ref().ok()?;
    facts.path.parent().map(Path::to_owned)
}
