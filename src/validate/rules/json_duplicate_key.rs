//! `json-duplicate-key`: an object that has a key twice.

use crate::diagnostic::{Anchor, Finding};
use crate::source::Trail;
use crate::source::json::{Kind, Node};
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// No object of the file has the same key twice.
    ///
    /// # Why
    /// Parsers disagree on which of the two counts; most take the last without a word. So two
    /// readers of one package can see different models.
    ///
    /// # Example
    /// ```json
    /// { "precision": "fp32", "precision": "int8" }
    /// ```
    ///
    /// # Fix
    /// Remove all but one.
    ///
    /// # What it does not see
    /// Keys that differ in case or in a letter; those are unknown keys (`schema`).
    PKG003 "json-duplicate-key" Error "An object has the same key twice." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if let Some(document) = context.document() {
        visit(&document.root, Trail::root(), findings);
    }
}

fn visit(node: &Node, trail: Trail<'_>, findings: &mut Vec<Finding>) {
    match &node.kind {
        Kind::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                visit(element, trail.index(i), findings);
            }
        }
        Kind::Object(members) => {
            for (member, is_repeated) in members.with_repetition() {
                let trail = trail.key(&member.key);
                if is_repeated {
                    let anchor = Anchor::At(trail.to_path(), member.key_span);
                    let message = format!("the key `{}` is already in this object", member.key);
                    let finding = RULE.meta.finding(anchor, message);
                    findings.push(finding.help("remove all but one; parsers differ in which counts"));
                }
                visit(&member.value, trail, findings);
            }
        }
        _ => {}
    }
}
