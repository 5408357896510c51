//! The error of an invalid field in a request.

use serde_json::Value;

/// Maximum length of a request's text in an error message, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: expected {expected}, found {found}", place(.path))]
pub struct FieldError {
    /// Path of the field from the request's root, such as `messages[2].content`; empty for the
    /// whole request.
    pub path: String,
    /// The expected value, with its limits.
    pub expected: String,
    /// The value in the request.
    pub found: String,
}

impl FieldError {
    /// Creates the error of the field at a path.
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

/// Describes a value in a few words. Long texts are cut; lists are only counted.
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

/// Quotes a text, cut to the maximum length.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{:?} and so on", &text[..end]),
        None => format!("{text:?}"),
    }
}
