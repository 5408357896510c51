//! Wording of findings about settings.

use toml::de::DeValue;

use crate::validate::CONFIG_SCHEMA;
use pkgtool_base::source::suggest;

/// Maximum length of quoted text in a message, in characters.
const MAX_QUOTED_CHARS: usize = 60;

/// Truncates text for a message.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Formats words as `a`, `b`, `c`.
pub(super) fn join_quoted<W: AsRef<str>>(words: &[W]) -> String {
    let quoted: Vec<String> = words
        .iter()
        .map(|word| format!("`{}`", word.as_ref()))
        .collect();
    quoted.join(", ")
}

/// Suggests the known word that is nearest, or lists all known words.
pub(super) fn meant_or_all(word: &str, known: &[&str], noun: &str) -> String {
    match suggest::nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("valid {noun}: {}", join_quoted(known)),
    }
}

/// Describes a value.
pub(super) fn kind(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string \"{}\"", cut(text)),
        DeValue::Integer(number) => format!("the number {}", cut(number.as_str())),
        DeValue::Float(number) => format!("the number {}", cut(number.as_str())),
        DeValue::Boolean(answer) => answer.to_string(),
        DeValue::Datetime(moment) => format!("the time {moment}"),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Describes how to write the expected value.
pub(super) fn how_to_write(expected: &str, found: &DeValue<'_>) -> String {
    match (expected, found) {
        ("an array of strings", DeValue::String(text)) => format!("write [\"{}\"]", cut(text)),
        ("true or false", DeValue::String(text)) if matches!(text.as_ref(), "true" | "false") => {
            format!("write {text}, without quotes")
        }
        ("a string", DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => {
            "write it in quotes".to_owned()
        }
        ("an array of tables", DeValue::Table(_)) => {
            "write the table's name in double brackets: `[[exception]]`".to_owned()
        }
        _ => format!("write {expected}; `pkgtool schema settings` prints the schema of the file"),
    }
}

/// Returns the capabilities of the config format.
pub fn capabilities() -> Vec<String> {
    let schema: serde_json::Value = serde_json::from_str(CONFIG_SCHEMA).unwrap_or_default();
    let words = schema.pointer("/properties/capabilities/items/enum");
    let words = words.and_then(serde_json::Value::as_array);
    let words = words.into_iter().flatten();
    words
        .filter_map(|word| Some(word.as_str()?.to_owned()))
        .collect()
}
