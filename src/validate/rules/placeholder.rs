//! `placeholder`: what a generator left for a person to fill in.

use crate::diagnostic::{Anchor, Finding};
use crate::package::leftover::is_placeholder;
use crate::source::Trail;
use crate::source::json::{Kind, Node};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// No string and no key of a config begins with `TODO_` or is `TODO`.
    ///
    /// # Why
    /// Generators of configs leave `TODO_license`, `TODO_methods` or `TODO_capabilities` where
    /// they do not know the answer. Most of these pass a schema, and ship.
    ///
    /// # Example
    /// ```json
    /// { "license": "TODO_license" }
    /// ```
    ///
    /// # Fix
    /// Fill in the value, or leave an optional field out.
    ///
    /// # What it does not see
    /// Placeholders of other generators (`FIXME`, `xxx`, `your-name`).
    PKG010 "placeholder" Error "A value is a generator's placeholder." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if let Some(document) = context.document() {
        visit(&document.root, Trail::root(), findings);
    }
}

fn visit(node: &Node, trail: Trail<'_>, findings: &mut Vec<Finding>) {
    match &node.kind {
        Kind::String(text) if is_placeholder(text) => {
            findings.push(placeholder(Anchor::Value(trail.to_path()), text));
        }
        Kind::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                visit(element, trail.index(i), findings);
            }
        }
        Kind::Object(members) => {
            // What a repeated key hides is nobody's value.
            for member in members.effective() {
                let trail = trail.key(&member.key);
                if is_placeholder(&member.key) {
                    findings.push(placeholder(Anchor::Key(trail.to_path()), &member.key));
                }
                visit(&member.value, trail, findings);
            }
        }
        _ => {}
    }
}

fn placeholder(anchor: Anchor, text: &str) -> Finding {
    let finding = RULE.meta.finding(anchor, format!("`{text}` is a placeholder"));
    finding.help("fill it in, or leave the field out if it is optional")
}
