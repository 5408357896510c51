//! What a finding is known by from one run to the next: not its line, not the numbers in its message, and not
//! the place of its variant in the list.
//!
//! Invariant: the same finding has the same identity in every build, and two findings of one rule at one
//! place have the same.

use std::collections::HashMap;

use super::Diagnostic;
use crate::source::Document;
use crate::source::json::Node;

/// The list whose elements are known by a name, and where they have it: they are often put in another
/// order, and one more stands before them.
const NAMED: (&str, &str) = ("variants", "precision");

/// What a finding is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The file, relative to what the caller chose, with `/` between its parts.
    pub path: String,
    /// The rule's code.
    pub code: &'static str,
    /// The JSON Pointer, elements of `variants` by their precision: `/variants/fp32/file`.
    pub pointer: String,
    /// What the finding names, where the file as a whole is its place: what stands in backticks in its message.
    pub names: Vec<String>,
}

/// Identities of one run's findings; each file's names are looked up once.
#[derive(Debug, Default)]
pub struct Identities {
    names: HashMap<String, Vec<Option<String>>>,
}

impl Identities {
    /// The identity of a finding in the file of this path.
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

    /// The pointer with names for elements that have some.
    pub fn pointer(&mut self, diagnostic: &Diagnostic) -> String {
        let pointer = &diagnostic.pointer;
        let list = format!("/{}/", NAMED.0);
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
    /// The identity as one number, in hexadecimal digits: FNV-1a of its parts.
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
    let list = document.root.get(NAMED.0).map_or(&[][..], Node::elements);
    let name = |element: &Node| element.get(NAMED.1)?.as_str().map(str::to_owned);
    list.iter().map(name).collect()
}

/// What stands in backticks.
fn quoted(message: &str) -> Vec<String> {
    let parts = message.split('`').enumerate();
    parts
        .filter(|(number, _)| number % 2 == 1)
        .map(|(_, part)| part.to_owned())
        .collect()
}
