//! Nodes of a JSON tree, each with its byte span, and an object's members with fast look-up.
//!
//! Invariant: a look-up takes logarithmic time in the number of members, so that even a wide object
//! never takes quadratic time. Of a repeated key the last member counts, as in `serde_json`.

use std::ops::Deref;

use compact_str::CompactString;
use serde_json::{Number, Value};

use super::Span;

/// Maximum nesting of arrays and objects.
pub const MAX_DEPTH: usize = 127;
/// Maximum number of values in a document, nested ones included. Each value can have several
/// faults, and each fault is stored with its path.
pub const MAX_VALUES: usize = 100_000;
/// Maximum length of a key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// Maximum number of members that are searched linearly, which is faster than an index.
const MAX_SCANNED_MEMBERS: usize = 8;

/// A value and its position.
#[derive(Debug, Clone)]
pub struct Node {
    /// The span of the value's text, including quotes and brackets.
    pub span: Span,
    /// The value.
    pub kind: JsonValue,
}

/// A JSON value by type.
#[derive(Debug, Clone)]
pub enum JsonValue {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as written.
    Number(CompactString),
    /// A string, its escapes resolved.
    String(CompactString),
    /// An array.
    Array(Vec<Node>),
    /// An object's members in order, repeated keys included.
    Object(Members),
}

/// A key and its value.
#[derive(Debug, Clone)]
pub struct Member {
    /// The key with escapes resolved.
    pub key: CompactString,
    /// The span of the key's text, including quotes.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

/// The members of one object, repeated keys included.
#[derive(Debug, Clone, Default)]
pub struct Members {
    list: Vec<Member>,
    /// Index of a long list or of one with a repeated key; nearly every object needs none.
    index: Option<Box<KeyIndex>>,
}

#[derive(Debug, Clone)]
struct KeyIndex {
    /// Positions in `list`, sorted by key and then by position; empty for a short list.
    by_key: Vec<usize>,
    /// True if a key is repeated.
    repeats: bool,
}

impl Node {
    /// Returns the member with this key, the last one if it is repeated; `None` for anything but an
    /// object.
    pub fn member(&self, key: &str) -> Option<&Member> {
        match &self.kind {
            JsonValue::Object(members) => members.last(key),
            _ => None,
        }
    }

    /// Returns the value of the member with this key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.member(key).map(|member| &member.value)
    }

    /// Returns the members of an object; empty for anything else.
    pub fn members(&self) -> &[Member] {
        match &self.kind {
            JsonValue::Object(members) => members,
            _ => &[],
        }
    }

    /// Returns the effective members: the last one of each key.
    pub fn effective_members(&self) -> impl Iterator<Item = &Member> {
        let members = match &self.kind {
            JsonValue::Object(members) => Some(members.effective()),
            _ => None,
        };
        members.into_iter().flatten()
    }

    /// Returns the elements of an array; empty for anything else.
    pub fn elements(&self) -> &[Node] {
        match &self.kind {
            JsonValue::Array(elements) => elements,
            _ => &[],
        }
    }

    /// Returns the string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            JsonValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer, if it is a whole number; `1.0` counts as one, as in JSON Schema.
    /// Out-of-range numbers are clamped.
    pub fn as_i64(&self) -> Option<i64> {
        // The fast path for nearly every number of a config.
        if let JsonValue::Number(text) = &self.kind
            && let Ok(plain) = text.parse()
        {
            return Some(plain);
        }
        let number = self.as_number()?;
        number.as_i64().or_else(|| {
            let float = number.as_f64()?;
            #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
            let nearest = float as i64;
            (float.fract() == 0.0).then_some(nearest)
        })
    }

    /// Returns the number as `serde_json` represents it, if it is one.
    pub fn as_number(&self) -> Option<Number> {
        match &self.kind {
            JsonValue::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Returns the value without positions; the last member of each repeated key.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            JsonValue::Null => Value::Null,
            JsonValue::Bool(truth) => Value::Bool(*truth),
            JsonValue::Number(_) => self.as_number().map_or(Value::Null, Value::Number),
            JsonValue::String(text) => Value::String(text.to_string()),
            JsonValue::Array(elements) => elements.iter().map(Self::to_value).collect(),
            JsonValue::Object(members) => members
                .effective()
                .map(|member| (member.key.to_string(), member.value.to_value()))
                .collect(),
        }
    }

    /// Returns whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, JsonValue::Null)
    }

    /// Returns whether it is an object.
    pub fn is_object(&self) -> bool {
        matches!(self.kind, JsonValue::Object(_))
    }
}

impl Members {
    /// Returns the last member with this key.
    pub fn last(&self, key: &str) -> Option<&Member> {
        self.last_position(key).map(|at| &self.list[at])
    }

    /// Iterates over the effective members: the last one of each key.
    pub fn effective(&self) -> impl Iterator<Item = &Member> {
        let members = self.list.iter().enumerate();
        members
            .filter(|(at, member)| !self.repeats() || self.last_position(&member.key) == Some(*at))
            .map(|(_, member)| member)
    }

    /// Iterates over all members, each with a flag whether an earlier one has the same key.
    pub fn with_repetition(&self) -> impl Iterator<Item = (&Member, bool)> {
        let members = self.list.iter().enumerate();
        members.map(|(at, member)| {
            let is_repeated = self.repeats() && self.first_position(&member.key, at) != at;
            (member, is_repeated)
        })
    }

    /// Returns whether any key is repeated, which is computed in advance.
    pub(super) fn repeats(&self) -> bool {
        self.index.as_ref().is_some_and(|index| index.repeats)
    }

    /// Returns the positions by key; empty for a short list.
    fn by_key(&self) -> &[usize] {
        self.index.as_ref().map_or(&[], |index| &index.by_key)
    }

    /// Returns the first position of the key of the member at `at`.
    fn first_position(&self, key: &str, at: usize) -> usize {
        let by_key = self.by_key();
        if by_key.is_empty() {
            let earlier = self.list[..at].iter();
            return earlier.take_while(|member| member.key != key).count();
        }
        let before = by_key.partition_point(|&at| self.list[at].key.as_str() < key);
        by_key.get(before).copied().unwrap_or(at)
    }

    fn last_position(&self, key: &str) -> Option<usize> {
        let by_key = self.by_key();
        if by_key.is_empty() {
            return self.list.iter().rposition(|member| member.key == key);
        }
        let after = by_key.partition_point(|&at| self.list[at].key.as_str() <= key);
        let at = *by_key.get(after.checked_sub(1)?)?;
        (self.list[at].key == key).then_some(at)
    }
}

impl Deref for Members {
    type Target = [Member];

    fn deref(&self) -> &[Member] {
        &self.list
    }
}

impl From<Vec<Member>> for Members {
    fn from(list: Vec<Member>) -> Self {
        let mut by_key = Vec::new();
        let repeats = if list.len() > MAX_SCANNED_MEMBERS {
            by_key.extend(0..list.len());
            // The sort is stable: equal keys keep the order of their positions.
            by_key.sort_by_key(|&at| list[at].key.as_str());
            let mut neighbours = by_key.windows(2);
            neighbours.any(|two| list[two[0]].key == list[two[1]].key)
        } else {
            let is_repeated = |(at, member): (usize, &Member)| {
                let mut before = list[..at].iter();
                before.any(|other| other.key == member.key)
            };
            list.iter().enumerate().any(is_repeated)
        };
        let index = repeats || !by_key.is_empty();
        let index = index.then(|| Box::new(KeyIndex { by_key, repeats }));
        Self { list, index }
    }
}

impl<'a> IntoIterator for &'a Members {
    type Item = &'a Member;
    type IntoIter = std::slice::Iter<'a, Member>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use crate::source::Document;
    use crate::source::json::{JsonValue, Node};

    #[test]
    fn of_repeated_keys_the_last_counts_at_every_width() {
        for width in 0..40 {
            let keys: Vec<String> = (0..width).map(|i| format!("k{}", i * 7 % 5)).collect();
            let members: Vec<String> = keys
                .iter()
                .enumerate()
                .map(|(i, key)| format!("\"{key}\":{i}"))
                .collect();
            let text = format!("{{{}}}", members.join(","));
            let root = Document::parse(&text).expect("JSON").root;
            for key in ["k0", "k1", "k2", "k3", "k4", "k", "k5", ""] {
                let last = keys.iter().rposition(|known| known == key);
                let found = root.get(key).and_then(Node::as_i64);
                let last = last.map(|i| i64::try_from(i).expect("a small number"));
                assert_eq!(found, last, "{key} of {text}");
            }
            if let JsonValue::Object(members) = &root.kind {
                let repeated = members.with_repetition().filter(|(_, again)| *again);
                assert_eq!(repeated.count(), width - width.min(5), "{text}");
            }
            let effective = root.effective_members().count();
            assert_eq!(effective, width.min(5), "{text}");
        }
    }
}
