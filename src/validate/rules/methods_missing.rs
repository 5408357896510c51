//! `methods-missing`: a readable model without declared signatures.

use std::collections::HashSet;

use crate::diagnostic::{Anchor, Finding};
use crate::package::Methods;
use crate::validate::context::Context;
use crate::validate::references::Referenced;

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
    ///
    /// # What it does not see
    /// Models that cannot be read, and everything with `--no-model`.
    PKG013 "methods-missing" Note "A variant does not declare its method signatures." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (index, variant) in context.variants().iter().enumerate() {
        let readable = |file: &&Referenced| file.model_info().is_some();
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
                let components: HashSet<_> = variant.files.iter().map(|f| &f.component).collect();
                if groups.iter().any(|group| !components.contains(&group.component)) {
                    continue;
                }
                let declared = variant.methods_by_component();
                for file in context.files_of(index).filter(readable) {
                    if let Some(component) = &file.file.component
                        && !declared.contains_key(&Some(component.as_str()))
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
