//! Fixes as changes of JSON values ([`ValueChange`]), converted to text edits by an [`Editor`].
//!
//! Rules describe a fix as "replace", "insert", "remove" or "rename key"; this module finds the
//! place in the text. Invariant: only the named values change, and an inserted member stands where
//! the format's documentation has it.

use serde_json::Value;

use pkgtool_base::diagnostic::{Applicability, Fix};
use pkgtool_base::source::edit::TextEdit;
use pkgtool_base::source::json::{JsonValue, Member, Node, Step};
use pkgtool_base::source::{Editor, JsonPath};

/// Maximum length of a value quoted in a title, in characters.
const MAX_QUOTE_CHARS: usize = 80;

/// The keys of a variant, in their conventional order.
pub(super) const VARIANT_KEYS: [&str; 5] =
    ["precision", "file", "components", "size_bytes", "methods"];

/// Keys in their conventional order, outer objects first. No key occurs in two of the lists.
const ORDER: [&[&str]; 4] = [
    &[
        "$schema",
        "model",
        "family",
        "size",
        "capabilities",
        "backend",
        "license",
        "tokenizer",
        "tokenizer_config",
        "variants",
    ],
    &VARIANT_KEYS,
    &["inputs", "outputs"],
    &["name", "shape", "dtype"],
];

/// A change of JSON values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValueChange {
    /// Replaces each of these values.
    Replace(Vec<(JsonPath, Value)>),
    /// Adds a member to an object.
    Insert {
        /// The object.
        object: JsonPath,
        /// The member's key.
        key: String,
        /// The member's value.
        value: Value,
    },
    /// Removes a member or element.
    Remove(JsonPath),
    /// Gives a member another key.
    RenameKey(JsonPath, String),
}

impl ValueChange {
    /// Replaces one value.
    pub(super) fn replace(path: JsonPath, value: impl Into<Value>) -> Self {
        Self::Replace(vec![(path, value.into())])
    }

    /// Converts the change to a fix; `None` if a path does not exist in the document.
    pub(super) fn fix(&self, editor: &Editor<'_>, applicability: Applicability) -> Option<Fix> {
        let edits = self.edits(editor)?;
        let title = self.title();
        Some(match applicability {
            Applicability::Safe => Fix::safe(title, edits),
            Applicability::Unsafe => Fix::needs_consent(title, edits),
        })
    }

    fn edits(&self, editor: &Editor<'_>) -> Option<Vec<TextEdit>> {
        let document = editor.document();
        match self {
            Self::Replace(values) => {
                let edits = values.iter().map(|(path, value)| {
                    let node = document.node(path)?;
                    Some(editor.replace(node, value))
                });
                edits.collect()
            }
            Self::Insert { object, key, value } => {
                let node = document.node(object).filter(|node| node.is_object())?;
                let index = insertion_index(node, key);
                Some(vec![editor.insert_member(node, index, key, value)])
            }
            Self::Remove(path) => {
                let (parent, last) = path.parent()?;
                let parent = document.node(&parent)?;
                let edit = match last {
                    Step::Key(_) => editor.remove_member(parent, only_member_at(parent, last)?),
                    Step::Index(index) => editor.remove_element(parent, *index),
                };
                Some(vec![edit?])
            }
            Self::RenameKey(path, key) => {
                let (parent, last) = path.parent()?;
                let parent = document.node(&parent)?;
                let member = &parent.members()[only_member_at(parent, last)?];
                let is_taken = parent.member(key).is_some();
                (!is_taken).then(|| vec![editor.rename_key(member, key)])
            }
        }
    }

    fn title(&self) -> String {
        match self {
            Self::Replace(values) => match &values[..] {
                [(path, value)] => match path.steps() {
                    [.., Step::Key(key)] if is_short(value) => {
                        format!("write \"{key}\": {}", quote(value))
                    }
                    [.., Step::Key(key)] => format!("rewrite `{key}`"),
                    steps => format!("write {}{}", quote(value), within(steps)),
                },
                several => {
                    let words = several.iter().map(|(_, value)| quote(value));
                    let steps = several.first().map_or(&[][..], |(path, _)| path.steps());
                    let words = words.collect::<Vec<_>>().join(", ");
                    format!("write {words}{}", within(steps))
                }
            },
            Self::Insert { key, value, .. } if is_short(value) => {
                format!("add \"{key}\": {}", quote(value))
            }
            Self::Insert { key, .. } => format!("add `{key}`"),
            Self::Remove(path) => match path.steps() {
                [.., Step::Key(key)] => format!("remove `{key}`"),
                steps => format!("remove the repeated element{}", within(steps)),
            },
            Self::RenameKey(path, key) => match path.steps() {
                [.., Step::Key(old)] => format!("rename `{old}` to `{key}`"),
                _ => format!("rename it to `{key}`"),
            },
        }
    }
}

/// Returns the index of the only member with this key; `None` if several have it, because any of
/// them may be the right one.
fn only_member_at(object: &Node, step: &Step) -> Option<usize> {
    let Step::Key(key) = step else { return None };
    let members = object.members();
    let is_it = |member: &Member| *member.key == **key;
    let count = members.iter().filter(|member| is_it(member)).count();
    (count == 1)
        .then(|| members.iter().position(is_it))
        .flatten()
}

/// Returns the index at which a member with this key belongs.
fn insertion_index(object: &Node, key: &str) -> usize {
    let members = object.members();
    let Some(order) = ORDER.iter().find(|order| order.contains(&key)) else {
        return members.len();
    };
    let rank = |key: &str| order.iter().position(|known| *known == key);
    let own = rank(key);
    let is_before = |member: &Member| rank(&member.key).is_some_and(|other| Some(other) < own);
    members.iter().rposition(is_before).map_or(0, |at| at + 1)
}

/// Names the list that contains the element.
fn within(steps: &[Step]) -> String {
    let keys = steps.iter().rev().filter_map(|step| match step {
        Step::Key(key) => Some(key),
        Step::Index(_) => None,
    });
    let key = keys.into_iter().next();
    key.map_or_else(String::new, |key| format!(" in `{key}`"))
}

fn is_short(value: &Value) -> bool {
    !value.is_object() && value.to_string().len() <= MAX_QUOTE_CHARS
}

fn quote(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_QUOTE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Returns whether the array has at most one element.
pub(super) fn is_only_element(list: &Node) -> bool {
    matches!(&list.kind, JsonValue::Array(elements) if elements.len() < 2)
}
