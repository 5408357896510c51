//! `methods-nesting`: signatures at the wrong depth for the kind of variant.

use serde_json::{Value, json};

use super::methods_missing;
use crate::diagnostic::{Anchor, Applicability, Finding};
use crate::package::{Methods, Variant};
use crate::source::JsonPath;
use crate::validate::context::Context;
use crate::validate::mend::Mend;

rule! {
    /// # What it checks
    /// The `methods` of a single-file variant are keyed by method name; those of a multi-component
    /// variant by component name and then by method name.
    ///
    /// # Why
    /// Several components of one pipeline have a `forward`. Only the component's name keeps them
    /// apart.
    ///
    /// # Example
    /// ```json
    /// { "components": { "encoder": "e.pte", "decoder": "d.pte" },
    ///   "methods": { "forward": { "inputs": [], "outputs": [] } } }
    /// ```
    ///
    /// # Fix
    /// With `components`, put each component's signatures under its name; with `file`, take the
    /// level of component names out. `pkgtool fix` does where one component is meant, and else writes what the
    /// models say, if nothing in `methods` has a name.
    ///
    /// # What it does not see
    /// Variants with both `file` and `components`, or neither: there it is not known what was meant.
    PKG011 "methods-nesting" Error fix Safe "Method signatures are nested the wrong way for the variant." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (index, variant) in context.variants().iter().enumerate() {
        let Methods::Declared { misnested, .. } = &variant.methods else {
            continue;
        };
        // With both or neither, which nesting is right follows from which of the two is meant.
        if variant.has_file == variant.has_components {
            continue;
        }
        // An empty `components` is told as such, and names nothing that signatures could stand under.
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
                    format!("`{key}` holds methods, but a single-file variant's are not nested"),
                    "take this level out: \"methods\": { \"<method>\": … }",
                )
            };
            let mend = nested(context, index, variant);
            let fix = mend.and_then(|mend| context.fix(Applicability::Safe, &mend));
            let finding = RULE.meta.finding(Anchor::Key(path.clone()), message);
            findings.push(finding.help(help).fix(fix));
        }
    }
}

/// The methods at the depth where they belong.
fn nested(context: &Context<'_>, index: usize, variant: &Variant) -> Option<Mend> {
    let path: JsonPath = variant.path.key("methods");
    let editor = context.editor().filter(|_| context.may_fix() && context.is_whole(variant))?;
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
    // Names are the author's: they would be lost.
    let has_names = editor.text_of(node).contains("\"name\"");
    let by_models = || methods_missing::declared(context, index).filter(|_| !has_names);
    let value: Option<Value> = value.or_else(by_models);
    value.map(|value| Mend::replace(path, value))
}
