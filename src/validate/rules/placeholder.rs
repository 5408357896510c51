//! `placeholder`: what a generator left for a person to fill in.

use crate::diagnostic::{Anchor, Finding};
use crate::source::JsonPath;
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
    PKG010 "placeholder" Error "A value is a generator's placeholder." => check
}

/// Whether a text is a placeholder.
pub(in crate::validate) fn is_placeholder(text: &str) -> bool {
    text == "TODO" || text.starts_with("TODO_")
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if let Some(document) = context.document() {
        visit(&document.root, &JsonPath::root(), findings);
    }
}

fn visit(node: &Node, path: &JsonPath, findings: &mut Vec<Finding>) {
    match &node.kind {
        Kind::String(text) if is_placeholder(text) => {
            findings.push(placeholder(Anchor::Value(path.clone()), text));
        }
        Kind::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                if matters(element) {
                    visit(element, &path.index(i), findings);
                }
            }
        }
        Kind::Object(members) => {
            // What a repeated key hides is nobody's value.
            for member in members.effective() {
                if is_placeholder(&member.key) {
                    findings.push(placeholder(Anchor::Key(path.key(&member.key)), &member.key));
                }
                if matters(&member.value) {
                    visit(&member.value, &path.key(&member.key), findings);
                }
            }
        }
        _ => {}
    }
}

/// Whether a placeholder can be there: paths are made only for these.
fn matters(node: &Node) -> bool {
    match &node.kind {
        Kind::String(text) => is_placeholder(text),
        Kind::Array(_) | Kind::Object(_) => true,
        _ => false,
    }
}

fn placeholder(anchor: Anchor, text: &str) -> Finding {
    let finding = RULE.meta.finding(anchor, format!("`{text}` is a placeholder"));
    finding.help("fill it in, or leave the field out if it is optional")
}
