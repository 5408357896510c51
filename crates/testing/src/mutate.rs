//! Generator of nearly valid JSON texts.
//!
//! Its tree can represent more than `serde_json`'s (repeated keys, huge numbers, invalid text), and
//! it is changed at random places.

use std::fmt::Write;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

/// A part of a JSON text; `Raw` is written verbatim.
#[derive(Debug, Clone)]
pub enum JsonPart {
    /// A scalar, or any text in its place.
    Raw(String),
    /// An array.
    Array(Vec<JsonPart>),
    /// An object; keys may repeat.
    Object(Vec<(String, JsonPart)>),
}

/// A change to a part.
#[derive(Debug, Clone)]
pub enum Mutation {
    /// Puts this text in its place.
    Replace(String),
    /// Removes a child.
    Delete(Index),
    /// Adds a copy of a child.
    Repeat(Index),
    /// Adds a key (to an object) and a text.
    Insert(String, String),
    /// Wraps the part in this number of arrays.
    Nest(usize),
    /// Gives a child of an object another key.
    Rename(Index, String),
}

/// Values that are invalid at most places.
const ATOMS: [&str; 24] = [
    "null",
    "true",
    "0",
    "-1",
    "-2",
    "1.5",
    "1e400",
    "1E+2",
    "-0",
    "123456789012345678901234567890",
    "18446744073709551615",
    "\"\"",
    "\"TODO_x\"",
    "\"fp32\"",
    "\"../../../../etc/passwd\"",
    "\"..\"",
    "\"../add_linear_xnnpack_fp32.pte\"",
    "\"\\ud83d\\ude00\\u0000\"",
    "\"ë😀\u{202e}\u{2028}\"",
    "[]",
    "{}",
    "[{\"inputs\":[],\"outputs\":[{}]}]",
    "{\"forward\":{\"inputs\":[],\"outputs\":1}}",
    "\"https://example.com/ü\"",
];

/// Keys: those of the config format, misspelled ones, unusual ones.
const KEYS: [&str; 22] = [
    "$schema",
    "model",
    "family",
    "size",
    "capabilities",
    "backend",
    "license",
    "tokenizer",
    "variants",
    "precision",
    "precison",
    "file",
    "components",
    "size_bytes",
    "methods",
    "inputs",
    "outputs",
    "quantized",
    "TODO_k",
    "",
    "0",
    "a/~b\"\\\n😀",
];

impl JsonPart {
    /// Reads a valid JSON text.
    pub fn parse(text: &str) -> Self {
        Self::from(&serde_json::from_str::<Value>(text).expect("JSON"))
    }

    /// Writes the tree as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    /// Applies a change to one part of the tree.
    pub fn apply(&mut self, at: Index, change: &Mutation) {
        let mut left = at.index(self.count());
        self.visit(&mut left, change);
    }

    fn count(&self) -> usize {
        1 + match self {
            Self::Raw(_) => 0,
            Self::Array(elements) => elements.iter().map(Self::count).sum(),
            Self::Object(members) => members.iter().map(|(_, value)| value.count()).sum(),
        }
    }

    fn visit(&mut self, left: &mut usize, change: &Mutation) -> bool {
        if *left == 0 {
            self.change(change);
            return true;
        }
        *left -= 1;
        match self {
            Self::Raw(_) => false,
            Self::Array(elements) => elements.iter_mut().any(|e| e.visit(left, change)),
            Self::Object(members) => members.iter_mut().any(|(_, v)| v.visit(left, change)),
        }
    }

    fn change(&mut self, change: &Mutation) {
        match (change, &mut *self) {
            (Mutation::Replace(raw), _) => *self = Self::Raw(raw.clone()),
            (Mutation::Nest(depth), _) => {
                let (open, close) = ("[".repeat(*depth), "]".repeat(*depth));
                *self = Self::Raw(format!("{open}{}{close}", self.text()));
            }
            (Mutation::Delete(at), Self::Array(elements)) if !elements.is_empty() => {
                elements.remove(at.index(elements.len()));
            }
            (Mutation::Delete(at), Self::Object(members)) if !members.is_empty() => {
                members.remove(at.index(members.len()));
            }
            (Mutation::Repeat(at), Self::Array(elements)) if !elements.is_empty() => {
                elements.push(elements[at.index(elements.len())].clone());
            }
            (Mutation::Repeat(at), Self::Object(members)) if !members.is_empty() => {
                members.push(members[at.index(members.len())].clone());
            }
            (Mutation::Rename(at, key), Self::Object(members)) if !members.is_empty() => {
                let at = at.index(members.len());
                members[at].0.clone_from(key);
            }
            (Mutation::Insert(_, raw), Self::Array(elements)) => {
                elements.push(Self::Raw(raw.clone()));
            }
            (Mutation::Insert(key, raw), Self::Object(members)) => {
                members.push((key.clone(), Self::Raw(raw.clone())));
            }
            _ => {}
        }
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Raw(raw) => text.push_str(raw),
            Self::Array(elements) => {
                text.push('[');
                for (i, element) in elements.iter().enumerate() {
                    text.push_str(if i == 0 { "" } else { ",\n" });
                    element.write(text);
                }
                text.push(']');
            }
            Self::Object(members) => {
                text.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    text.push_str(if i == 0 { "" } else { ",\n " });
                    let _ = write!(text, "{}: ", Value::from(key.as_str()));
                    value.write(text);
                }
                text.push('}');
            }
        }
    }
}

impl From<&Value> for JsonPart {
    fn from(value: &Value) -> Self {
        match value {
            Value::Array(elements) => Self::Array(elements.iter().map(Self::from).collect()),
            Value::Object(members) => {
                let members = members.iter();
                Self::Object(members.map(|(k, v)| (k.clone(), v.into())).collect())
            }
            other => Self::Raw(other.to_string()),
        }
    }
}

fn atom() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(&ATOMS[..]).prop_map(str::to_owned),
        1 => any::<String>().prop_map(|text| Value::from(text).to_string()),
        1 => any::<f64>().prop_map(|number| number.to_string()),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(&KEYS[..]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

/// Returns up to five random changes, each with the part to change.
pub fn changes() -> impl Strategy<Value = Vec<(Index, Mutation)>> {
    let change = prop_oneof![
        3 => atom().prop_map(Mutation::Replace),
        2 => any::<Index>().prop_map(Mutation::Delete),
        2 => any::<Index>().prop_map(Mutation::Repeat),
        3 => (key(), atom()).prop_map(|(key, raw)| Mutation::Insert(key, raw)),
        1 => (1..130_usize).prop_map(Mutation::Nest),
        2 => (any::<Index>(), key()).prop_map(|(at, key)| Mutation::Rename(at, key)),
    ];
    prop::collection::vec((any::<Index>(), change), 0..6)
}
