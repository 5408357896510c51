//! Words for schema violations: what was expected, what was found, what to do.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

use crate::source::JsonPath;
use crate::source::json::Step;
use crate::source::suggest;

/// Longest value quoted in a message, in characters.
const MAX_QUOTE: usize = 60;

/// Message and help for a value that is not as it should be.
pub(super) fn describe(error: &ValidationError<'_>) -> (String, Option<String>) {
    let found = error.instance();
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            let expected = expected_type(kind);
            (
                format!("expected {expected}, found {}", kind_of(found)),
                None,
            )
        }
        ValidationErrorKind::Enum { options } => not_one_of(found, options),
        ValidationErrorKind::Pattern { .. } => (
            format!("{} is not a token", quote(found)),
            Some("a token has only `a`–`z`, `0`–`9` and `_`, and at least one of them".to_owned()),
        ),
        ValidationErrorKind::Format { format } if format == "uri" => (
            format!("{} is not a URI", quote(found)),
            Some("a URI begins with a scheme, such as `https:`".to_owned()),
        ),
        ValidationErrorKind::MinLength { .. } => ("must not be empty".to_owned(), None),
        ValidationErrorKind::MinItems { limit } => at_least(*limit, "item"),
        ValidationErrorKind::MinProperties { limit } => at_least(*limit, "entry"),
        ValidationErrorKind::Minimum { limit } => (
            format!("must be at least {limit}, found {}", quote(found)),
            None,
        ),
        _ => (cut(&error.to_string()), None),
    }
}

/// What an object lacks.
pub(super) fn missing_key(object: &JsonPath, key: &str) -> String {
    format!("{} lacks `{key}`", noun(object))
}

/// Which keys there are, or which one was meant.
pub(super) fn unknown_key_help(key: &str, allowed: &[&str]) -> String {
    match suggest::nearest(key, allowed.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("remove it; the keys here are {}", list(allowed)),
    }
}

fn noun(object: &JsonPath) -> String {
    let steps = object.steps();
    let name = |step: &Step| match step {
        Step::Key(key) => key.to_string(),
        Step::Index(index) => index.to_string(),
    };
    match steps {
        [] => "the file".to_owned(),
        [Step::Key(_), Step::Index(index)] => format!("variant {index}"),
        [.., Step::Key(list), Step::Index(index)] => {
            format!("{} {index}", list.trim_end_matches('s'))
        }
        [.., last] => format!("`{}`", name(last)),
    }
}

fn not_one_of(found: &Value, options: &Value) -> (String, Option<String>) {
    let options = options.as_array().into_iter().flatten();
    let options: Vec<&str> = options.filter_map(Value::as_str).collect();
    let word = found.as_str().unwrap_or_default();
    let all = format!("one of {}", list(&options));
    let help = match suggest::nearest(word, options.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? It must be {all}"),
        None => format!("it must be {all}"),
    };
    (format!("{} is not allowed here", quote(found)), Some(help))
}

fn at_least(limit: u64, noun: &str) -> (String, Option<String>) {
    (format!("must have at least {limit} {noun}"), None)
}

fn expected_type(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => article(&one.to_string()),
        TypeKind::Multiple(set) => {
            let names: Vec<String> = set.iter().map(|one| article(&one.to_string())).collect();
            names.join(" or ")
        }
    }
}

fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("{value}"),
        Value::String(_) => format!("the string {}", quote(value)),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn article(noun: &str) -> String {
    match noun {
        "null" => "null".to_owned(),
        "array" | "integer" | "object" => format!("an {noun}"),
        _ => format!("a {noun}"),
    }
}

fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

fn quote(value: &Value) -> String {
    cut(&value.to_string())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
