//! Fixes of schema violations, if the schema or the value makes the intended value certain or
//! likely.

use serde_json::{Value, json};

use super::evaluate::ExpectedValue;
use super::uri::is_uri;
use super::{SchemaIdOf, message, synonyms};
use crate::validate::mend::ValueChange;
use pkgtool_base::diagnostic::Applicability::{self, Safe, Unsafe};
use pkgtool_base::source::JsonPath;

/// Maximum length of a value that a fix replaces, in bytes of JSON.
const MAX_REPLACED_BYTES: usize = 200;

/// Returns the fix of an invalid value. The new value is one that the violated schema accepts.
pub(super) fn of_value(
    wanted: &ExpectedValue<'_>,
    accepts: &dyn Fn(&Value) -> bool,
    found: &Value,
    path: &JsonPath,
    id: SchemaIdOf<'_>,
) -> Option<(Applicability, ValueChange)> {
    let (applicability, value) = match wanted {
        ExpectedValue::Type(types) => of_type(types, found, path)?,
        ExpectedValue::OneOf(options) => one_of(options, found)?,
        ExpectedValue::Token => {
            let token = message::token_of(found.as_str()?)?;
            (Unsafe, json!(token))
        }
        ExpectedValue::Uri => match found.as_str()?.trim() {
            // Removing surrounding white space keeps the package's own identifier.
            own if is_uri(own) => (Safe, json!(own)),
            _ => (Unsafe, json!(id()?)),
        },
        _ => return None,
    };
    let is_short = found.to_string().len() <= MAX_REPLACED_BYTES;
    let is_right = is_short && accepts(&value);
    is_right.then(|| (applicability, ValueChange::replace(path.clone(), value)))
}

/// Adds the missing `$schema` identifier to an object.
pub(super) fn of_missing(object: &JsonPath, id: &str) -> (Applicability, ValueChange) {
    let mend = ValueChange::Insert {
        object: object.clone(),
        key: "$schema".to_owned(),
        value: json!(id),
    };
    (Safe, mend)
}

/// Removes an element that repeats an earlier one.
pub(super) fn of_repetition(path: &JsonPath) -> (Applicability, ValueChange) {
    (Safe, ValueChange::Remove(path.clone()))
}

/// Renames a misspelled key.
pub(super) fn of_typo(path: JsonPath, meant: &str) -> (Applicability, ValueChange) {
    (Safe, ValueChange::RenameKey(path, meant.to_owned()))
}

/// Returns the found value as one of the expected type.
fn of_type(types: &[&str], found: &Value, path: &JsonPath) -> Option<(Applicability, Value)> {
    Some(match (types, found) {
        (["string"], Value::Array(several)) => (Safe, only_text(several)?),
        (["string"], Value::Number(number)) => (Safe, json!(number.to_string())),
        (["array"], Value::String(text)) => match message::dimensions(text, path) {
            Some(dimensions) => (Unsafe, json!(dimensions)),
            None => (Safe, json!([found])),
        },
        (["integer"], Value::String(text)) => {
            let number: i64 = text.trim().parse().ok()?;
            (Safe, json!(number))
        }
        _ => return None,
    })
}

fn one_of(options: &[&str], found: &Value) -> Option<(Applicability, Value)> {
    let (word, inner) = match found {
        Value::String(word) => (word.as_str(), false),
        Value::Array(several) => match &several[..] {
            [Value::String(word)] => (word.as_str(), true),
            _ => return None,
        },
        _ => return None,
    };
    if let Some(same) = options
        .iter()
        .find(|option| option.eq_ignore_ascii_case(word.trim()))
    {
        return Some((Safe, json!(same)));
    }
    match synonyms::meant(word, options)[..] {
        [meant] if !inner => Some((Unsafe, json!(meant))),
        _ => None,
    }
}

fn only_text(several: &[Value]) -> Option<Value> {
    match several {
        [one @ Value::String(_)] => Some(one.clone()),
        _ => None,
    }
}
