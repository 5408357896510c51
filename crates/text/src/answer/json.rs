//! Finds the end of a JSON value in a streamed text, and parses tool calls that are written as
//! JSON.
//!
//! Invariant: each byte is scanned once for the end. Arguments are passed on exactly as the model
//! wrote them.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::OfferedTool;
use super::parts::ParsedCall;

/// Maximum nesting of brackets.
const MAX_DEPTH: usize = 128;

/// A scanner for the end of a value that begins with a bracket.
#[derive(Debug, Clone, Default)]
pub(super) struct EndScanner {
    seen: usize,
    open: Vec<u8>,
    in_text: bool,
    escaped: bool,
}

/// The result of searching for a value's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueEnd {
    /// The value ends after this number of bytes.
    At(usize),
    /// The value is incomplete.
    Open,
    /// The brackets do not match, so it is not a value.
    Wrong,
}

impl EndScanner {
    /// Continues the scan; `text` is the whole value so far, beginning with a bracket.
    pub(super) fn end(&mut self, text: &str) -> ValueEnd {
        while let Some(byte) = text.as_bytes().get(self.seen).copied() {
            self.seen += 1;
            if self.in_text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_text = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_text = true,
                b'{' | b'[' => {
                    self.open.push(if byte == b'{' { b'}' } else { b']' });
                    if self.open.len() > MAX_DEPTH {
                        return ValueEnd::Wrong;
                    }
                }
                b'}' | b']' => {
                    if self.open.pop() != Some(byte) {
                        return ValueEnd::Wrong;
                    }
                    if self.open.is_empty() {
                        return ValueEnd::At(self.seen);
                    }
                }
                _ => {}
            }
        }
        ValueEnd::Open
    }
}

/// Parses the calls in a value, an object or a list of objects. Returns `None` if one of them is
/// not a call of an offered tool.
pub(super) fn calls(text: &str, tools: &[OfferedTool]) -> Option<Vec<ParsedCall>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let (objects, places) = match &value {
        Value::Array(items) => (items.iter().collect::<Vec<_>>(), items_of(text)?),
        object => (vec![object], vec![text]),
    };
    if objects.is_empty() || objects.len() != places.len() {
        return None;
    }
    let calls = objects.into_iter().zip(places);
    calls
        .map(|(object, text)| call(object, text, tools))
        .collect()
}

/// Parses `{"name", "arguments"}` in the spellings of all families; some nest it in `function`.
fn call(object: &Value, text: &str, tools: &[OfferedTool]) -> Option<ParsedCall> {
    let fields = object.as_object()?;
    if let Some(inner) = fields.get("function").filter(|inner| inner.is_object()) {
        return call(inner, field(text, "function")?, tools);
    }
    let name = fields
        .get("name")
        .or_else(|| fields.get("function"))?
        .as_str()?;
    let name = tools.iter().find(|tool| tool.name == name)?.name.clone();
    let key = ["arguments", "parameters", "args"];
    let key = key.into_iter().find(|key| fields.contains_key(*key));
    let arguments = match key.map(|key| (key, &fields[key])) {
        None | Some((_, Value::Null)) => "{}".to_owned(),
        Some((key, Value::Object(_))) => field(text, key)?.to_owned(),
        // Some models encode the object as a JSON string once more.
        Some((_, Value::String(inner))) => object_text(inner)?.to_owned(),
        Some(_) => return None,
    };
    Some(ParsedCall { name, arguments })
}

/// Returns a text that is a JSON object, without surrounding spaces.
pub(super) fn object_text(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_object = text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok();
    is_object.then_some(text)
}

/// Parses the calls in a list or an object that the end of the answer cut: the complete ones, and
/// one with the beginning of its arguments. A call with an incomplete name is left out.
pub(super) fn cut_calls(
    text: &str,
    tools: &[OfferedTool],
) -> (Vec<ParsedCall>, Option<ParsedCall>) {
    let mut rest = text.trim_start();
    rest = rest.strip_prefix('[').unwrap_or(rest);
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
        if !rest.starts_with('{') {
            return (found, None);
        }
        let Some((object, after)) = value(rest) else {
            return (found, cut_call(rest, tools));
        };
        found.extend(calls(object, tools).into_iter().flatten());
        rest = after;
    }
}

/// Parses the call at the beginning of an incomplete object, if its name is complete.
fn cut_call(object: &str, tools: &[OfferedTool]) -> Option<ParsedCall> {
    let mut rest = object.strip_prefix('{')?;
    let mut name = None;
    let mut arguments = "";
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
        let Some((key, after)) = value(rest) else {
            break;
        };
        let Some(after) = after.trim_start().strip_prefix(':') else {
            break;
        };
        let key: String = serde_json::from_str(key).ok()?;
        let after = after.trim_start();
        let is_arguments = matches!(key.as_str(), "arguments" | "parameters" | "args");
        if let Some((text, following)) = value(after) {
            match key.as_str() {
                "name" | "function" => name = serde_json::from_str::<String>(text).ok(),
                _ if is_arguments => arguments = text,
                _ => {}
            }
            rest = following;
            continue;
        }
        if key == "function" && after.starts_with('{') {
            return cut_call(after, tools);
        }
        if is_arguments {
            arguments = after;
        }
        break;
    }
    let tool = tools
        .iter()
        .find(|tool| Some(&tool.name) == name.as_ref())?;
    Some(ParsedCall {
        name: tool.name.clone(),
        arguments: arguments.to_owned(),
    })
}

/// Returns the raw text of a field of a valid object. Of duplicate fields the last one counts, as
/// in the JSON parser.
fn field<'t>(object: &'t str, wanted: &str) -> Option<&'t str> {
    let mut rest = object.trim().strip_prefix('{')?;
    let mut found = None;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
        if rest.starts_with('}') {
            return found;
        }
        let key;
        (key, rest) = value(rest)?;
        rest = rest.trim_start().strip_prefix(':')?;
        let text;
        (text, rest) = value(rest)?;
        if serde_json::from_str::<String>(key).is_ok_and(|key| key == wanted) {
            found = Some(text);
        }
    }
}

/// Returns the raw texts of the items of a valid list.
fn items_of(list: &str) -> Option<Vec<&str>> {
    let mut rest = list.trim().strip_prefix('[')?;
    let mut items = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
        if rest.starts_with(']') {
            return Some(items);
        }
        let item;
        (item, rest) = value(rest)?;
        items.push(item);
    }
}

/// Splits a text into the value at its beginning and the rest.
fn value(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(text.split_at(values.byte_offset()))
}

/// Converts a bare text to the type that its schema names; without a type it stays a string.
pub(super) fn to_typed_value(text: &str, schema: Option<&Value>) -> Value {
    let is_text = |kind: &Value| kind == "string";
    let text_only = match schema.and_then(|schema| schema.get("type")) {
        Some(Value::Array(kinds)) => kinds.iter().all(|kind| is_text(kind) || kind == "null"),
        Some(kind) => is_text(kind),
        None => false,
    };
    let trimmed = text.trim();
    if text_only {
        let may_be_null = schema.is_some_and(|schema| schema["type"].is_array());
        let is_null = may_be_null && trimmed == "null";
        return if is_null {
            Value::Null
        } else {
            Value::from(text)
        };
    }
    let read = match trimmed {
        "True" => Ok(Value::Bool(true)),
        "False" => Ok(Value::Bool(false)),
        "None" => Ok(Value::Null),
        _ => {
            let mut reader = serde_json::Deserializer::from_str(trimmed);
            Value::deserialize(&mut reader).and_then(|value| reader.end().map(|()| value))
        }
    };
    read.unwrap_or_else(|_| Value::from(text))
}
