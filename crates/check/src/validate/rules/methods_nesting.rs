//! Rule `methods-nesting`: reports method signatures at the wrong depth for the kind of variant.

use serde_json::{Value, json};

use super::methods_missing;
use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_base::package::{Methods, Variant};
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;
use crate::validate::mend::ValueChange;

rule! {
    /// # What it checks
    /// The `methods` of a single-file variant are keyed by method name; those of a multi-component
    /// variant by component name and then by method name.
    ///
    /// # Why
    /// Several components of one pipeline have a `forward`. Only the component's name distinguishes
    /// them.
    ///
    /// # Example
    /// ```json
    /// { "components": { "encoder": "e.pte", "decoder": "d.pte" },
    ///   "methods": { "forward": { "inputs": [], "outputs": [] } } }
    /// ```
    ///
    /// # Fix
    /// With `components`, put each component's signatures under its name. With `file`, remove the
    /// level of component names. `pkgtool fix` does this if only one component can be meant.
    /// Otherwise it writes the signatures from the models, unless a tensor in `methods` has a name.
    ///
    /// # What it does not see
    /// Variants with both `file` and `components`, or neither: there the intended nesting is
    /// unknown.
    PKG011 "methods-nesting" Error fix Safe "Method signatures are nested the wrong way for the variant." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (index, variant) in context.variants().iter().enumerate() {
        let Methods::Declared { misnested, .. } = &variant.methods else {
            continue;
        };
        // With both or neither, the right nesting is unknown until one of the two is chosen.
        if variant.has_file == variant.has_components {
            continue;
        }
        // The schema stage reports an empty `components`, and there is no name to nest signatures
        // under.
        if variant.has_components && variant.files.is_empty() {
            continue;
        }
        for path in misnested {
            let pointer = path.to_pointer();
            let key = pointer.rsplit('/').next().unwrap_or_default();
            let (message, help) = if variant.has_components {
                (
                    format!("`{key}` is a method signature where a component's name is expected"),
                    "nest it: \"methods\": { \"<component>\": { \"<method>\": … } }",
                )
            } else {
                (
                    format!("`{key}` contains methods, but those of a single-file variant are not nested"),
                    "remove this level: \"methods\": { \"<method>\": … }",
                )
            };
            let mend = nested(context, index, variant);
            let fix = mend.and_then(|mend| context.fix(Applicability::Safe, &mend));
            let finding = RULE.meta.finding(Anchor::Key(path.clone()), message);
            findings.push(finding.help(help).fix(fix));
        }
    }
}

/// Returns the methods at the right depth.
fn nested(context: &Context<'_>, index: usize, variant: &Variant) -> Option<ValueChange> {
    let path: JsonPath = variant.path.key("methods");
    let editor = context.editor().filter(|_| context.may_fix() && context.names_all_files(variant))?;
    let node = editor.document().node(&path)?;
    let value = if variant.has_components {
        let Methods::Declared { groups, .. } = &variant.methods else {
            return None;
        };
        let mut models = context.files_of(index).filter(|file| file.is_model);
        match (models.next(), models.next()) {
            (Some(only), None) if groups.is_empty() => {
                let component = only.file.component.as_ref()?;
                Some(json!({ component: editor.value_of(node) }))
            }
            _ => None,
        }
    } else {
        match node.members() {
            [only] => Some(editor.value_of(&only.value)),
            _ => None,
        }
    };
    // Tensor names come from the author and would be lost.
    let has_names = editor.text_of(node).contains("\"name\"");
    let by_models = || methods_missing::declared(context, index).filter(|_| !has_names);
    let value: Option<Value> = value.or_else(by_models);
    value.map(|value| ValueChange::replace(path, value))
}
