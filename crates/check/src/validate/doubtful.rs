//! Ambiguous values of a document: values whose key is repeated in the same object with a different
//! value.

use std::collections::HashMap;

use pkgtool_base::source::json::{Document, JsonPath, JsonValue, Node};
use pkgtool_base::source::{PathSet, Trail};

/// Returns the paths of all ambiguous values.
pub(super) fn paths(document: &Document) -> PathSet {
    let mut found = Vec::new();
    if document.repeats {
        collect_ambiguous(&document.root, Trail::root(), &mut found);
    }
    found.into_iter().collect()
}

fn collect_ambiguous(node: &Node, trail: Trail<'_>, found: &mut Vec<JsonPath>) {
    match &node.kind {
        JsonValue::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                collect_ambiguous(element, trail.index(i), found);
            }
        }
        JsonValue::Object(members) => {
            let mut first: HashMap<&str, &Node> = HashMap::new();
            for (member, is_repeated) in members.with_repetition() {
                let trail = trail.key(&member.key);
                let known = *first.entry(&member.key).or_insert(&member.value);
                if is_repeated && !is_same(known, &member.value) {
                    found.push(trail.to_path());
                }
                collect_ambiguous(&member.value, trail, found);
            }
        }
        _ => {}
    }
}

/// Returns whether two values are equal, whatever their layout.
pub(super) fn is_same(one: &Node, other: &Node) -> bool {
    match (&one.kind, &other.kind) {
        (JsonValue::Null, JsonValue::Null) => true,
        (JsonValue::Bool(one), JsonValue::Bool(other)) => one == other,
        (JsonValue::Number(one), JsonValue::Number(other))
        | (JsonValue::String(one), JsonValue::String(other)) => one == other,
        (JsonValue::Array(one), JsonValue::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (JsonValue::Object(one), JsonValue::Object(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len()
                && pairs
                    .all(|(one, other)| one.key == other.key && is_same(&one.value, &other.value))
        }
        _ => false,
    }
}
