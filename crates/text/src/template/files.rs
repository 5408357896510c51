//! Reads the files of a package that contain templates.
//!
//! Invariant: no file is read beyond [`MAX_FILE_BYTES`].

use std::path::Path;

use serde_json::{Map, Value};

use super::error::FindError;
use pkgtool_base::source;

/// Maximum size of a file, in bytes. A tokenizer config with a thousand added tokens has 200 kB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads a file as a JSON object.
pub(super) fn object(file: &Path) -> Result<Map<String, Value>, FindError> {
    match serde_json::from_str(&read(file)?) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(malformed(file, "(root)", "an object", kind(&other))),
        Err(error) => Err(FindError::Unreadable {
            file: file.to_owned(),
            reason: format!("invalid JSON: {error}"),
        }),
    }
}

/// Reads a file as text.
pub(super) fn read(file: &Path) -> Result<String, FindError> {
    let unreadable = |reason: String| FindError::Unreadable {
        file: file.to_owned(),
        reason,
    };
    let bytes =
        source::read(file, MAX_FILE_BYTES).map_err(|error| unreadable(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| unreadable(format!("invalid UTF-8: {error}")))
}

/// Creates the error of an invalid field in a file.
pub(super) fn malformed(file: &Path, field: &str, expected: &str, found: &str) -> FindError {
    FindError::Malformed {
        file: file.to_owned(),
        field: field.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

/// Returns the name of the value's JSON type.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
