//! `json-duplicate-key`: an object that has a key twice.

use std::collections::HashSet;

use crate::diagnostic::{Anchor, Finding};
use crate::source::JsonPath;
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
    PKG003 "json-duplicate-key" Error "An object has the same key twice." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if let Some(document) = context.document() {
        visit(&document.root, &JsonPath::root(), findings);
    }
}

fn visit(node: &Node, path: &JsonPath, findings: &mut Vec<Finding>) {
    match &node.kind {
        Kind::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                if holds_objects(element) {
                    visit(element, &path.index(i), findings);
                }
            }
        }
        Kind::Object(members) => {
            let mut seen = HashSet::new();
            for member in members {
                let is_first = seen.insert(member.key.as_str());
                if is_first && !holds_objects(&member.value) {
                    continue;
                }
                let path = path.key(&member.key);
                if !is_first {
                    let anchor = Anchor::RepeatedKey(path.clone(), member.key_span);
                    let message = format!("the key `{}` is already in this object", member.key);
                    let finding = RULE.meta.finding(anchor, message);
                    findings.push(finding.help("remove all but one; parsers differ in which counts"));
                }
                visit(&member.value, &path, findings);
            }
        }
        _ => {}
    }
}

/// Whether there can be keys in it: paths are made only for these.
fn holds_objects(node: &Node) -> bool {
    matches!(node.kind, Kind::Array(_) | Kind::Object(_))
}
