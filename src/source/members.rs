//! An object's members in order, and found by their keys.
//!
//! Invariant: a look-up costs the logarithm of the number of members, so that no object is so wide
//! that asking for each of its keys takes quadratic time. Of a repeated key the last counts, as in
//! `serde_json`.

use std::ops::Deref;

use super::json::Member;

/// Objects of at most so many members are searched from the end: no index costs less.
const MAX_SCANNED: usize = 8;

/// The members of one object, repeated keys included.
#[derive(Debug, Clone, Default)]
pub struct Members {
    list: Vec<Member>,
    /// Positions in `list` by key and then by position; empty for a short list.
    by_key: Vec<usize>,
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
            .filter(|(at, member)| self.last_position(&member.key) == Some(*at))
            .map(|(_, member)| member)
    }

    /// Every member, and whether an earlier one has its key already.
    pub fn with_repetition(&self) -> impl Iterator<Item = (&Member, bool)> {
        let members = self.list.iter().enumerate();
        members.map(|(at, member)| (member, self.first_position(&member.key, at) != at))
    }

    /// The first position of a key that the member at `at` has.
    fn first_position(&self, key: &str, at: usize) -> usize {
        if self.by_key.is_empty() {
            let earlier = self.list[..at].iter();
            return earlier.take_while(|member| member.key != key).count();
        }
        let before = self
            .by_key
            .partition_point(|&at| self.list[at].key.as_str() < key);
        self.by_key.get(before).copied().unwrap_or(at)
    }

    fn last_position(&self, key: &str) -> Option<usize> {
        if self.by_key.is_empty() {
            return self.list.iter().rposition(|member| member.key == key);
        }
        let after = self
            .by_key
            .partition_point(|&at| self.list[at].key.as_str() <= key);
        let at = *self.by_key.get(after.checked_sub(1)?)?;
        (self.list[at].key == key).then_some(at)
    }
}

impl Deref for Members {
    type Target = [Member];

    fn deref(&self) -> &[Member] {
        &self.list
    }
}

impl FromIterator<Member> for Members {
    fn from_iter<T: IntoIterator<Item = Member>>(members: T) -> Self {
        let list: Vec<Member> = members.into_iter().collect();
        let mut by_key = Vec::new();
        if list.len() > MAX_SCANNED {
            by_key.extend(0..list.len());
            // Stable: equal keys stay in the order of their positions.
            by_key.sort_by_key(|&at| list[at].key.as_str());
        }
        Self { list, by_key }
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
