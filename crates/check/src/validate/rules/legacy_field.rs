//! Rule `legacy-field`: reports fields of an earlier revision of the format.

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_base::package::leftover::LEGACY_VARIANT_FIELDS;
use crate::validate::context::Context;
use crate::validate::mend::ValueChange;

rule! {
    /// # What it checks
    /// No variant has the fields `quantized` or `default` of an earlier revision of the format.
    ///
    /// # Why
    /// Both were removed. The precision token and the precision list alone decide whether a variant
    /// is quantized, and the format has no default variant. A remaining field can contradict the list.
    ///
    /// # Example
    /// ```json
    /// { "precision": "int8", "quantized": true, "file": "tiny_xnnpack_int8.pte" }
    /// ```
    ///
    /// # Fix
    /// Delete the field; `pkgtool fix` does this.
    ///
    /// # What it does not see
    /// Fields of other revisions; they are unknown keys (`schema`).
    PKG005 "legacy-field" Error fix Safe "A variant has a field of an earlier revision of the format." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for variant in context.variants() {
        let Some(node) = context.document().and_then(|d| d.node(&variant.path)) else {
            continue;
        };
        for key in LEGACY_VARIANT_FIELDS.into_iter().filter(|key| node.get(key).is_some()) {
            let help = match key {
                "quantized" => "delete it: the precision list says which tokens are quantized",
                _ => "delete it: the format has no default variant",
            };
            let anchor = Anchor::Key(variant.path.key(key));
            let message = format!("`{key}` is a field of an earlier revision of the format");
            let fix = context.fix(Applicability::Safe, &ValueChange::Remove(variant.path.key(key)));
            findings.push(RULE.meta.finding(anchor, message).help(help).fix(fix));
        }
    }
}
