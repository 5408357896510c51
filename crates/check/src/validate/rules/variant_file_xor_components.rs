//! Rule `variant-file-xor-components`: reports variants with both `file` and `components`, or
//! neither.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::source::json::{Member, Node};
use crate::validate::context::Context;
use pkgtool_base::source::suggest;

rule! {
    /// # What it checks
    /// A variant has either a `file` or `components`: not both, not neither.
    ///
    /// # Why
    /// A reader takes the one that is present. With both, two readers can load different models;
    /// with neither, there is nothing to load.
    ///
    /// # Example
    /// ```json
    /// { "precision": "fp32", "file": null }
    /// ```
    ///
    /// # Fix
    /// Use `file` for a model in one file. For a pipeline, list the parts under `components`, and
    /// set `file` to `null` or leave it out.
    ///
    /// # What it does not see
    /// A pipeline that lacks a component it needs.
    PKG007 "variant-file-xor-components" Error "A variant has both a file and components, or neither." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for variant in context.variants() {
        let node = context.document().and_then(|document| document.node(&variant.path));
        if variant.has_file && variant.has_components {
            // The schema stage reports an empty `file`.
            if context.is_violated(&variant.path.key("file")) {
                continue;
            }
            let anchor = Anchor::Key(variant.path.key("components"));
            let finding = RULE.meta.finding(anchor, "the variant has both `file` and `components`");
            findings.push(finding.help("keep one; a multi-component variant has `\"file\": null`"));
        } else if !variant.has_file && !node.is_some_and(mentions_components) {
            let anchor = Anchor::Value(variant.path.clone());
            let finding = RULE.meta.finding(anchor, "the variant has neither `file` nor `components`");
            findings.push(finding.help("name the model file in `file`, or its parts in `components`"));
        }
    }
}

fn mentions_components(variant: &Node) -> bool {
    variant.members().iter().any(is_meant)
}

/// Returns whether a member is `components`, or a misspelling that the schema stage reports.
fn is_meant(member: &Member) -> bool {
    let key = member.key.as_str();
    key != "file" && suggest::nearest(key, ["file", "components"].into_iter()).is_some()
}
