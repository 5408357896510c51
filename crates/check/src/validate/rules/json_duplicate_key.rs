//! Rule `json-duplicate-key`: reports objects that contain a key twice.

use std::collections::HashMap;

use pkgtool_base::diagnostic::{Anchor, Finding, Fix};
use pkgtool_base::source::Trail;
use pkgtool_base::source::json::{JsonValue, Member, Node};
use crate::validate::context::Context;
use crate::validate::doubtful::is_same;

rule! {
    /// # What it checks
    /// No object of the file has the same key twice.
    ///
    /// # Why
    /// Parsers disagree on which of the two values counts; most silently take the last. So two
    /// readers of one package can see different models.
    ///
    /// # Example
    /// ```json
    /// { "precision": "fp32", "precision": "int8" }
    /// ```
    ///
    /// # Fix
    /// Remove all but one. `pkgtool fix` does this if the values are the same.
    ///
    /// # What it does not see
    /// Keys that differ in case or in a letter; those are unknown keys (`schema`).
    PKG003 "json-duplicate-key" Error fix Safe "An object has the same key twice." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if let Some(document) = context.document().filter(|document| document.repeats) {
        visit(&document.root, Trail::root(), context, findings);
    }
}

fn visit(node: &Node, trail: Trail<'_>, context: &Context<'_>, findings: &mut Vec<Finding>) {
    match &node.kind {
        JsonValue::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                visit(element, trail.index(i), context, findings);
            }
        }
        JsonValue::Object(members) => {
            let mut values: HashMap<&str, Vec<&Node>> = HashMap::new();
            for (index, (member, is_repeated)) in members.with_repetition().enumerate() {
                let trail = trail.key(&member.key);
                if is_repeated {
                    let anchor = Anchor::At(trail.to_path(), member.key_span);
                    let message = format!("the key `{}` is already in this object", member.key);
                    let finding = RULE.meta.finding(anchor, message);
                    if values.is_empty() {
                        for member in members {
                            values.entry(member.key.as_str()).or_default().push(&member.value);
                        }
                    }
                    let fix = repetition(node, index, member, &values[member.key.as_str()], context);
                    findings.push(finding.help("remove all but one; parsers differ in which counts").fix(fix));
                }
                visit(&member.value, trail, context, findings);
            }
        }
        _ => {}
    }
}

/// Removes a repeated member if `values`, all values of its key in the object, are equal.
fn repetition(
    object: &Node,
    index: usize,
    member: &Member,
    values: &[&Node],
    context: &Context<'_>,
) -> Option<Fix> {
    if !context.may_fix() || !values.iter().all(|value| is_same(value, &member.value)) {
        return None;
    }
    let edit = context.editor()?.remove_member(object, index)?;
    let title = format!("remove the repeated `{}`", member.key);
    context.count_fix(Fix::safe(title, vec![edit]))
}
