//! `methods-missing`: a readable model without declared signatures.

use crate::diagnostic::{Anchor, Finding};
use crate::package::{MethodGroup, Methods, Variant};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// A variant whose model files can be read declares their method signatures, for every
    /// component that is a model.
    ///
    /// # Why
    /// The field is optional, but without it an application learns shapes and dtypes only on the
    /// device. `pkgtool inspect` reads them from the file.
    ///
    /// # Example
    /// ```json
    /// { "precision": "fp32", "file": "tiny_xnnpack_fp32.pte" }
    /// ```
    ///
    /// # Fix
    /// Add `methods` with what `pkgtool inspect FILE` shows.
    PKG013 "methods-missing" Note "A variant does not declare its method signatures." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (index, variant) in context.variants().iter().enumerate() {
        let readable = |file: &&super::super::context::Referenced| file.model_info().is_some();
        match &variant.methods {
            Methods::Absent => {
                if let Some(file) = context.files_of(index).find(readable) {
                    let anchor = Anchor::Value(variant.path.clone());
                    let reference = &file.file.reference;
                    let finding = RULE.meta.finding(anchor, "the variant declares no `methods`");
                    findings.push(finding.help(format!("`pkgtool inspect` shows those of `{reference}`")));
                }
            }
            Methods::Declared { groups, misnested } if misnested.is_empty() => {
                // An entry of a wrong name is most likely the missing one.
                if groups.iter().any(|group| !is_component(variant, group)) {
                    continue;
                }
                for file in context.files_of(index).filter(readable) {
                    if variant.methods_of(&file.file).is_none()
                        && let Some(component) = &file.file.component
                    {
                        let anchor = Anchor::Key(variant.path.key("methods"));
                        let message = format!("`methods` has no entry for the component `{component}`");
                        let help = format!("`pkgtool inspect` shows those of `{}`", file.file.reference);
                        findings.push(RULE.meta.finding(anchor, message).help(help));
                    }
                }
            }
            Methods::Declared { .. } => {}
        }
    }
}

fn is_component(variant: &Variant, group: &MethodGroup) -> bool {
    variant.files.iter().any(|file| file.component == group.component)
}
