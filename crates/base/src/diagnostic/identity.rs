//! The identity of a finding across runs, for baselines and fingerprints in reports.
//!
//! It excludes the line, the numbers in the message, and the position of a variant in its list.
//!
//! Invariant: the same finding has the same identity in every build. Two findings of one rule at
//! one location share an identity.

use std::collections::HashMap;

use super::Diagnostic;
use crate::source::Document;
use crate::source::json::Node;

/// The list whose elements are identified by a member instead of their index, and that member.
/// Variants are often reordered, or inserted before others.
const NAMED_LIST: (&str, &str) = ("variants", "precision");

/// The identity of a finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Path of the file relative to a directory of the caller's choice, with `/` as the separator.
    pub path: String,
    /// Code of the rule.
    pub code: &'static str,
    /// JSON pointer in which elements of `variants` are identified by their precision:
    /// `/variants/fp32/file`.
    pub pointer: String,
    /// Texts in backticks in the message, for findings about the whole file.
    pub names: Vec<String>,
}

/// Computes the identities of one run's findings. The names in each file are looked up once.
#[derive(Debug, Default)]
pub struct IdentityCache {
    names: HashMap<String, Vec<Option<String>>>,
}

impl IdentityCache {
    /// Returns the identity of a finding in the file at this path.
    pub fn of(&mut self, diagnostic: &Diagnostic, path: &str) -> Identity {
        let pointer = self.pointer(diagnostic);
        let names = if pointer.is_empty() {
            quoted(&diagnostic.message)
        } else {
            Vec::new()
        };
        Identity {
            path: path.to_owned(),
            code: diagnostic.rule.code,
            pointer,
            names,
        }
    }

    /// Returns the pointer with names in place of indices, if the elements have names.
    pub fn pointer(&mut self, diagnostic: &Diagnostic) -> String {
        let pointer = &diagnostic.pointer;
        let list = format!("/{}/", NAMED_LIST.0);
        let Some(below) = pointer.strip_prefix(&list) else {
            return pointer.clone();
        };
        let (index, rest) = match below.split_once('/') {
            Some((index, rest)) => (index, Some(rest)),
            None => (below, None),
        };
        let Some(name) = index.parse().ok().and_then(|at| self.name(diagnostic, at)) else {
            return pointer.clone();
        };
        let name = name.replace('~', "~0").replace('/', "~1");
        match rest {
            Some(rest) => format!("{list}{name}/{rest}"),
            None => format!("{list}{name}"),
        }
    }

    fn name(&mut self, diagnostic: &Diagnostic, index: usize) -> Option<String> {
        let source = &diagnostic.source;
        if !self.names.contains_key(&source.path) {
            let names = names_in(&source.text);
            self.names.insert(source.path.clone(), names);
        }
        self.names.get(&source.path)?.get(index)?.clone()
    }
}

impl Identity {
    /// Returns the identity as one hexadecimal number, the FNV-1a hash of its parts.
    pub fn fingerprint(&self) -> String {
        let parts = [self.code, &self.path, &self.pointer];
        let parts = parts
            .into_iter()
            .chain(self.names.iter().map(String::as_str));
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in parts.flat_map(|part| part.bytes().chain([0])) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        format!("{hash:016x}")
    }
}

fn names_in(text: &str) -> Vec<Option<String>> {
    let Ok(document) = Document::parse(text) else {
        return Vec::new();
    };
    let list = document
        .root
        .get(NAMED_LIST.0)
        .map_or(&[][..], Node::elements);
    let name = |element: &Node| element.get(NAMED_LIST.1)?.as_str().map(str::to_owned);
    list.iter().map(name).collect()
}

/// Returns the texts in backticks.
fn quoted(message: &str) -> Vec<String> {
    let parts = message.split('`').enumerate();
    parts
        .filter(|(number, _)| number % 2 == 1)
        .map(|(_, part)| part.to_owned())
        .collect()
}
