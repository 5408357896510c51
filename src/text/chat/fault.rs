//! What is wrong with a request.

use serde_json::Value;

/// Longest text of a request that a message shows, in characters.
const SHOWN: usize = 60;

/// A field that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: expected {expected}, found {found}", place(.path))]
pub struct Fault {
    /// The field, from the request's root: `messages[2].content`; empty for the whole of it.
    pub path: String,
    /// What belongs there, with its bounds.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Fault {
    /// A fault of the field at a path.
    pub(super) fn at(
        path: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}

fn place(path: &str) -> String {
    if path.is_empty() {
        "the request".to_owned()
    } else {
        format!("`{path}`")
    }
}

/// A value in a few words; what is long is cut, what is large is only counted.
pub(super) fn described(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => match items.len() {
            0 => "an empty list".to_owned(),
            1 => "a list of 1 item".to_owned(),
            count => format!("a list of {count} items"),
        },
        Value::Object(_) => "an object".to_owned(),
    }
}

/// A text in quotes, cut.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?} and so on", &text[..end]),
        None => format!("{text:?}"),
    }
}
