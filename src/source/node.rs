//! The values of a JSON text, each with its place, and an object's members by their keys.
//!
//! Invariant: a look-up costs the logarithm of the number of members, so that no object is so wide
//! that asking for each of its keys takes quadratic time. Of a repeated key the last counts, as in
//! `serde_json`.

use std::ops::Deref;

use compact_str::CompactString;
use serde_json::{Number, Value};

use super::Span;

/// Deepest nesting of arrays and objects that is read.
pub const MAX_DEPTH: usize = 127;
/// Most values, nested ones included, of a document that is read. Each can have several faults, and
/// each fault is held with its path.
pub const MAX_VALUES: usize = 100_000;
/// Longest key that is read, in bytes.
pub const MAX_KEY: usize = 256;

/// Objects of at most so many members are searched from the end: no index costs less.
const MAX_SCANNED: usize = 8;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct Node {
    /// The value's text, quotes and brackets included.
    pub span: Span,
    /// The value.
    pub kind: Kind,
}

/// The kinds of JSON values.
#[derive(Debug, Clone)]
pub enum Kind {
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
    /// The key, its escapes resolved.
    pub key: CompactString,
    /// The key's text, quotes included.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

/// The members of one object, repeated keys included.
#[derive(Debug, Clone, Default)]
pub struct Members {
    list: Vec<Member>,
    /// Of a long list, or of one with a repeated key; nearly every object is neither.
    index: Option<Box<Index>>,
}

#[derive(Debug, Clone)]
struct Index {
    /// Positions in `list` by key and then by position; empty for a short list.
    by_key: Vec<usize>,
    /// Whether a key stands twice.
    repeats: bool,
}

impl Node {
    /// The member of this key, the last if it is repeated; `None` in anything but an object.
    pub fn member(&self, key: &str) -> Option<&Member> {
        match &self.kind {
            Kind::Object(members) => members.last(key),
            _ => None,
        }
    }

    /// The value of the member of this key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.member(key).map(|member| &member.value)
    }

    /// The members of an object; none for anything else.
    pub fn members(&self) -> &[Member] {
        match &self.kind {
            Kind::Object(members) => members,
            _ => &[],
        }
    }

    /// The members that count: of a repeated key the last.
    pub fn effective_members(&self) -> impl Iterator<Item = &Member> {
        let members = match &self.kind {
            Kind::Object(members) => Some(members.effective()),
            _ => None,
        };
        members.into_iter().flatten()
    }

    /// The elements of an array; none for anything else.
    pub fn elements(&self) -> &[Node] {
        match &self.kind {
            Kind::Array(elements) => elements,
            _ => &[],
        }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            Kind::String(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is a whole number; `1.0` is one, as in JSON Schema. One that does not
    /// fit becomes the nearest that does.
    pub fn as_i64(&self) -> Option<i64> {
        // Nearly every number of a config.
        if let Kind::Number(text) = &self.kind
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

    /// The number as `serde_json` has it, if it is one.
    pub fn as_number(&self) -> Option<Number> {
        match &self.kind {
            Kind::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The value without places; of repeated keys the last.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(truth) => Value::Bool(*truth),
            Kind::Number(_) => self.as_number().map_or(Value::Null, Value::Number),
            Kind::String(text) => Value::String(text.to_string()),
            Kind::Array(elements) => elements.iter().map(Self::to_value).collect(),
            Kind::Object(members) => members
                .effective()
                .map(|member| (member.key.to_string(), member.value.to_value()))
                .collect(),
        }
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        matches!(self.kind, Kind::Object(_))
    }
}

impl Members {
    /// The last member of this key.
    pub fn last(&self, key: &str) -> Option<&Member> {
        self.last_position(key).map(|at| &self.list[at])
    }

    /// The members that count: of a repeated key the last.
    pub fn effective(&self) -> impl Iterator<Item = &Member> {
        let members = self.list.iter().enumerate();
        members
            .filter(|(at, member)| !self.repeats() || self.last_position(&member.key) == Some(*at))
            .map(|(_, member)| member)
    }

    /// Every member, and whether an earlier one has its key already.
    pub fn with_repetition(&self) -> impl Iterator<Item = (&Member, bool)> {
        let members = self.list.iter().enumerate();
        members.map(|(at, member)| {
            let is_repeated = self.repeats() && self.first_position(&member.key, at) != at;
            (member, is_repeated)
        })
    }

    /// Whether a key stands twice: hardly ever, and then nobody has to look for it.
    pub(super) fn repeats(&self) -> bool {
        self.index.as_ref().is_some_and(|index| index.repeats)
    }

    /// Positions by key; none of a short list.
    fn by_key(&self) -> &[usize] {
        self.index.as_ref().map_or(&[], |index| &index.by_key)
    }

    /// The first position of a key that the member at `at` has.
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
        let repeats = if list.len() > MAX_SCANNED {
            by_key.extend(0..list.len());
            // Stable: equal keys stay in the order of their positions.
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
        let index = index.then(|| Box::new(Index { by_key, repeats }));
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
    use crate::source::json::{Kind, Node};

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
            if let Kind::Object(members) = &root.kind {
                let repeated = members.with_repetition().filter(|(_, again)| *again);
                assert_eq!(repeated.count(), width - width.min(5), "{text}");
            }
            let effective = root.effective_members().count();
            assert_eq!(effective, width.min(5), "{text}");
        }
    }
}
