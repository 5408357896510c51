//! `methods-nesting`: signatures at the wrong depth for the kind of variant.

use crate::diagnostic::{Anchor, Finding};
use crate::package::Methods;
use crate::validate::context::Context;

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
    /// level of component names out.
    ///
    /// # What it does not see
    /// Variants with both `file` and `components`, or neither: there it is not known what was meant.
    PKG011 "methods-nesting" Error "Method signatures are nested the wrong way for the variant." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for variant in context.variants() {
        let Methods::Declared { misnested, .. } = &variant.methods else {
            continue;
        };
        // With both or neither, which nesting is right follows from which of the two is meant.
        if variant.has_file == variant.has_components {
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
            let finding = RULE.meta.finding(Anchor::Key(path.clone()), message);
            findings.push(finding.help(help));
        }
    }
}
