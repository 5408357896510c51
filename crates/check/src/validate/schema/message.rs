//! Messages and helps for schema violations: the expected value, the found value and the remedy.

use serde_json::{Value, json};

use super::evaluate::ExpectedValue;
use super::short::{MAX_QUOTE_CHARS, cut};
use super::uri::is_uri;
use super::{SchemaIdOf, synonyms};
use pkgtool_base::source::JsonPath;
use pkgtool_base::source::json::{JsonValue, Node, Step};
use pkgtool_base::source::suggest;

/// Returns the message and the help for an invalid value.
pub(super) fn describe(
    wanted: &ExpectedValue<'_>,
    found: &FoundValue<'_>,
    path: &JsonPath,
    id: SchemaIdOf<'_>,
) -> (String, Option<String>) {
    match wanted {
        ExpectedValue::Type(types) => {
            let expected: Vec<String> = types.iter().map(|one| article(one)).collect();
            (
                format!("expected {}, found {}", expected.join(" or "), found.kind()),
                type_help(types, found.value, path),
            )
        }
        ExpectedValue::OneOf(options) => not_one_of(found, options),
        ExpectedValue::Token => (
            format!("{} is not a token", found.quote()),
            Some(token_help(found.value.as_str().unwrap_or_default())),
        ),
        ExpectedValue::Uri => (
            format!("{} is not a URI", found.quote()),
            Some(uri_help(found.value.as_str().unwrap_or_default(), id)),
        ),
        ExpectedValue::Text => ("must not be empty".to_owned(), None),
        ExpectedValue::Items(1) => at_least("1 item"),
        ExpectedValue::Items(limit) => at_least(&format!("{limit} items")),
        ExpectedValue::Members(1) => at_least("1 entry"),
        ExpectedValue::Members(limit) => at_least(&format!("{limit} entries")),
        ExpectedValue::Other(message) => (message.clone(), None),
        ExpectedValue::Size(limit) => (
            format!("must be at least {limit}, found {}", found.quote()),
            Some("write the size in bytes, or leave the field out".to_owned()),
        ),
    }
}

/// Returns the message about keys missing from an object.
pub(super) fn missing_keys(object: &JsonPath, keys: &[String]) -> String {
    format!("{} lacks {}", noun(object), enumerated(keys, "and"))
}

/// Explains why a text is not a URI, and how to fix it.
fn uri_help(text: &str, id: SchemaIdOf<'_>) -> String {
    if is_uri(text.trim()) {
        return format!(
            "remove the white space around it: write \"{}\"",
            cut(text.trim())
        );
    }
    if let Some(space) = text.trim().find(char::is_whitespace) {
        let before = cut(&text.trim()[..space]);
        return format!("a URI has no white space: remove it after `{before}`");
    }
    match id() {
        Some(id) => format!("a URI begins with a scheme; write \"{id}\""),
        None => {
            "a URI begins with a scheme; use the URI of the publisher's other configs".to_owned()
        }
    }
}

/// Returns the help for missing keys. `id` is the format's identifier, if `$schema` is among them
/// and the value is known.
pub(super) fn missing_keys_help(keys: &[String], id: Option<&str>) -> String {
    let is_known = |key: &&String| id.is_some() && *key == "$schema";
    let others: Vec<&String> = keys.iter().filter(|key| !is_known(key)).collect();
    let mut parts: Vec<String> = Vec::new();
    if let Some(id) = id {
        parts.push(format!("\"$schema\": \"{id}\""));
    }
    if !others.is_empty() {
        parts.push(enumerated(&others, "and"));
    }
    format!("add {}", parts.join(", and "))
}

/// Returns a list like `a`, `b` and `c`.
fn enumerated<W: AsRef<str>>(words: &[W], last: &str) -> String {
    let quoted: Vec<String> = words
        .iter()
        .map(|word| format!("`{}`", word.as_ref()))
        .collect();
    match &quoted[..] {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., end] => format!("{} {last} {end}", rest.join(", ")),
    }
}

/// Suggests the key that was probably meant, unless the object has it already; else lists the
/// allowed keys.
pub(super) fn unknown_key_help(key: &str, allowed: &[&str], object: &Node) -> String {
    let is_free = |allowed: &&str| object.get(allowed).is_none();
    match suggest::nearest(key, allowed.iter().copied().filter(is_free)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("remove it; allowed keys: {}", list(allowed)),
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

fn not_one_of(found: &FoundValue<'_>, options: &[&str]) -> (String, Option<String>) {
    let word = found.value.as_str().unwrap_or_default();
    let all = format!("one of {}", list(options));
    let alone = found
        .value
        .as_array()
        .and_then(|several| match &several[..] {
            [Value::String(one)] => options.iter().find(|option| *option == one),
            _ => None,
        });
    let help = match synonyms::meant(word, options)[..] {
        [] if alone.is_some() => format!("write {}, without brackets", found.first()),
        [] => format!("it must be {all}"),
        [meant] => format!("did you mean `{meant}`? It must be {all}"),
        ref several => format!(
            "did you mean {}? It must be {all}",
            enumerated(several, "or")
        ),
    };
    (format!("{} is not allowed here", found.quote()), Some(help))
}

/// Suggests a token for a text, and explains the allowed characters.
fn token_help(text: &str) -> String {
    let what = "a token has only `a`–`z`, `0`–`9` and `_`, and at least one of them";
    match token_of(text) {
        Some(token) => format!("write \"{token}\"; {what}"),
        None => what.to_owned(),
    }
}

/// Converts a text to the token that it most likely stands for.
pub(super) fn token_of(text: &str) -> Option<String> {
    let mut token = String::new();
    for c in text.trim().chars().take(MAX_QUOTE_CHARS + 1) {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_lowercase() || c.is_ascii_digit() => token.push(c),
            '_' | '-' | '.' | ' ' | '/' | ':' if !token.ends_with('_') => token.push('_'),
            '_' | '-' | '.' | ' ' | '/' | ':' => {}
            // Letters of other scripts have no certain counterpart.
            _ => return None,
        }
    }
    let token = token.trim_matches('_');
    (!token.is_empty() && token.len() <= MAX_QUOTE_CHARS).then(|| token.to_owned())
}

/// Returns the remedy if only the type is wrong.
fn type_help(types: &[&str], found: &Value, path: &JsonPath) -> Option<String> {
    let [wanted] = types else {
        return None;
    };
    match (*wanted, found) {
        ("array", Value::String(text)) => Some(match dimensions(text, path) {
            Some(dimensions) => format!("write {}", json!(dimensions)),
            None if is_shape(path) => "write the sizes, such as [1, 3, 224, 224]".to_owned(),
            None => format!("write [{}]", cut(&found.to_string())),
        }),
        ("integer", Value::String(text)) if text.trim().parse::<i64>().is_ok() => {
            Some(format!("write {}, without quotes", text.trim()))
        }
        ("integer", Value::String(_) | Value::Null) if is_dimension(path) => {
            Some("write -1 for a dynamic dimension".to_owned())
        }
        ("string", Value::Array(several)) => match &several[..] {
            [one @ Value::String(_)] => {
                Some(format!("write {}, without brackets", cut(&one.to_string())))
            }
            _ if path.steps() == [Step::Key("license".into())] => {
                Some("write one SPDX expression, such as \"MIT OR Apache-2.0\"".to_owned())
            }
            _ => None,
        },
        ("string", Value::Number(_)) => Some("write it in double quotes".to_owned()),
        (_, Value::Null) => {
            Some("write a value, or leave the field out if it is optional".to_owned())
        }
        _ => None,
    }
}

/// Parses a text in place of a shape: `2x8`, `2, 8` or `(2, 8)`.
pub(super) fn dimensions(text: &str, path: &JsonPath) -> Option<Vec<i64>> {
    if !is_shape(path) || text.len() > MAX_QUOTE_CHARS {
        return None;
    }
    let inner = text.trim().trim_matches(['(', ')', '[', ']']);
    let sizes = inner.split([',', 'x', 'X', '×', '*']);
    sizes.map(|size| size.trim().parse().ok()).collect()
}

/// Returns whether a path leads to a tensor's shape.
fn is_shape(path: &JsonPath) -> bool {
    matches!(path.steps(), [.., Step::Key(key)] if &**key == "shape")
}

/// Returns whether a path leads to a size in a tensor's shape.
fn is_dimension(path: &JsonPath) -> bool {
    matches!(path.steps(), [.., Step::Key(key), Step::Index(_)] if &**key == "shape")
}

fn at_least(amount: &str) -> (String, Option<String>) {
    (format!("must have at least {amount}"), None)
}

/// An invalid value and its node in the document.
pub(super) struct FoundValue<'a> {
    /// The value.
    pub(super) value: &'a Value,
    /// The parsed node of the value.
    pub(super) node: &'a Node,
}

impl FoundValue<'_> {
    /// Returns the value, shortened. Numbers are quoted as written, because the parsed value is
    /// rounded.
    fn quote(&self) -> String {
        match &self.node.kind {
            JsonValue::Number(written) => cut(written),
            _ => cut(&self.value.to_string()),
        }
    }

    /// Returns the first element of an array, shortened.
    fn first(&self) -> String {
        cut(&self.value[0].to_string())
    }

    fn kind(&self) -> String {
        match self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) | Value::Number(_) => self.quote(),
            Value::String(_) => format!("the string {}", self.quote()),
            Value::Array(_) => "an array".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        }
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
