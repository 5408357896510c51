//! Rule `methods-missing`: reports readable models without declared signatures.

use std::collections::HashSet;

use serde_json::{Map, Value};

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_model::{ModelInfo, declaration};
use pkgtool_base::package::Methods;
use crate::validate::context::Context;
use crate::validate::mend::ValueChange;
use crate::validate::references::ReferencedFile;

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
    /// Add `methods` with the signatures that `pkgtool inspect FILE` shows; `pkgtool fix` does
    /// this.
    ///
    /// # What it does not see
    /// Models that cannot be read, formats without methods (GGUF, safetensors), and everything with
    /// `--no-model`.
    PKG013 "methods-missing" Note fix Safe "A variant does not declare its method signatures." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (index, variant) in context.variants().iter().enumerate() {
        let readable =
            |file: &&ReferencedFile| file.model_info().is_some_and(ModelInfo::has_signature);
        match &variant.methods {
            Methods::Absent => {
                if let Some(file) = context.files_of(index).find(readable) {
                    let anchor = Anchor::Value(variant.path.clone());
                    let reference = &file.file.reference;
                    let finding = RULE.meta.finding(anchor, "the variant declares no `methods`");
                    let mend = declared(context, index).map(|value| ValueChange::Insert {
                        object: variant.path.clone(),
                        key: "methods".to_owned(),
                        value,
                    });
                    let fix = mend.and_then(|mend| context.fix(Applicability::Safe, &mend));
                    let help = format!("`pkgtool inspect` shows the methods of `{reference}`");
                    findings.push(finding.help(help).fix(fix));
                }
            }
            Methods::Declared { groups, misnested } if misnested.is_empty() => {
                if !context.files_of(index).any(|file| readable(&file)) {
                    continue;
                }
                // An entry with a wrong name is probably meant for the component without an entry.
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
                        let help = format!("`pkgtool inspect` shows the methods of `{}`", file.file.reference);
                        let whole = Some(file).filter(|_| context.names_all_files(variant));
                        let mend = whole.and_then(|file| of_file(context, file)).map(|value| ValueChange::Insert {
                            object: variant.path.key("methods"),
                            key: component.clone(),
                            value,
                        });
                        let fix = mend.and_then(|mend| context.fix(Applicability::Safe, &mend));
                        findings.push(RULE.meta.finding(anchor, message).help(help).fix(fix));
                    }
                }
            }
            Methods::Declared { .. } => {}
        }
    }
}

/// Returns the methods of a variant's models as a value for `methods`. `None` unless every model is
/// named and read, and each signature can be expressed.
pub(super) fn declared(context: &Context<'_>, index: usize) -> Option<Value> {
    let variant = &context.variants()[index];
    if !context.names_all_files(variant) {
        return None;
    }
    if !variant.has_components {
        let file = context.files_of(index).next()?;
        return of_file(context, file);
    }
    let mut methods = Map::new();
    for file in context.files_of(index).filter(|file| file.is_model) {
        let info = file.model_info()?;
        if info.has_signature() {
            methods.insert(file.file.component.clone()?, of_file(context, file)?);
        }
    }
    (!methods.is_empty()).then(|| Value::Object(methods))
}

fn of_file(context: &Context<'_>, file: &ReferencedFile) -> Option<Value> {
    let info = file.model_info().filter(|_| context.may_fix())?;
    let methods = declaration::methods(info).ok()?;
    (!methods.is_empty()).then(|| Value::Object(methods))
}
