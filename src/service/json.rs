//! JSON objects and arrays of requests, one level at a time: their members stay text, so large data is
//! not built into a tree and nesting costs no stack.
//!
//! Invariant: whatever the text is, the result is members or a [`Refusal`] with its place.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Refusal;
use crate::source::suggest;
use crate::source::text::defuse_line;

/// Most keys of an object; objects of requests have a handful.
const MAX_KEYS: usize = 64;

/// Longest text of a client's that a message repeats, in characters.
const MAX_SHOWN: usize = 60;

/// The text of a body.
pub(super) fn text(body: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        Refusal::at("$", format!("byte {at} is not UTF-8; JSON is UTF-8"))
    })
}

/// The members of an object, each key once.
pub(super) fn members<'a>(
    text: &'a str,
    place: &str,
) -> Result<Vec<(String, &'a RawValue)>, Refusal> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let members = deserializer.deserialize_any(Members);
    let members = members.and_then(|members| deserializer.end().map(|()| members));
    members.map_err(|error| syntax(place, text, "an object", &error))
}

/// The elements of an array, which has at most `limit`.
pub(super) fn elements<'a>(
    text: &'a str,
    limit: usize,
    place: &str,
) -> Result<Vec<&'a RawValue>, Refusal> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let elements = deserializer.deserialize_any(Elements { limit });
    let elements = elements.and_then(|elements| deserializer.end().map(|()| elements));
    elements.map_err(|error| syntax(place, text, "an array", &error))
}

/// A string.
pub(super) fn string<'a>(value: &'a RawValue, place: &str) -> Result<Cow<'a, str>, Refusal> {
    let text = value.get();
    // Without escapes, which is nearly always, nothing is copied.
    if let Ok(borrowed) = serde_json::from_str::<&str>(text) {
        return Ok(Cow::Borrowed(borrowed));
    }
    serde_json::from_str::<String>(text)
        .map(Cow::Owned)
        .map_err(|error| syntax(place, text, "a string", &error))
}

/// The refusal of a key that is not `known`.
pub(super) fn unknown_key(place: &str, key: &str, known: &[&str]) -> Refusal {
    let meant = suggest::nearest(key, known.iter().copied());
    let meant = meant.map(|meant| format!(", did you mean `{meant}`?"));
    let meant = meant.unwrap_or_default();
    let message = format!(
        "there is no key {}{meant}; keys are {}",
        shown(key),
        listed(known)
    );
    Refusal::at(format!("{place}.{}", short(key)), message)
}

/// `` `a`, `b` ``; at most 20 of them.
pub(super) fn listed(names: &[&str]) -> String {
    const MOST: usize = 20;
    let mut texts: Vec<String> = names
        .iter()
        .take(MOST)
        .map(|name| format!("`{name}`"))
        .collect();
    if names.len() > MOST {
        texts.push(format!("{} more", names.len() - MOST));
    }
    texts.join(", ")
}

/// A text of a client's as messages quote it.
pub(super) fn shown(text: &str) -> String {
    format!("`{}`", short(text))
}

/// What kind of JSON value a text is, by its first character.
pub(super) fn kind(text: &str) -> &'static str {
    match text.trim_ascii_start().bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        Some(_) => "no JSON",
        None => "nothing",
    }
}

fn short(text: &str) -> String {
    let line = defuse_line(text);
    match line.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn syntax(place: &str, text: &str, expected: &str, error: &serde_json::Error) -> Refusal {
    let found = kind(text);
    if found != expected && error.is_data() {
        return Refusal::at(place, format!("{expected} belongs here, not {found}"));
    }
    Refusal::at(place, format!("{expected} belongs here: {error}"))
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if members.len() == MAX_KEYS {
                return Err(de::Error::custom(format_args!("more than {MAX_KEYS} keys")));
            }
            if !seen.insert(key.clone()) {
                let key = shown(&key);
                return Err(de::Error::custom(format_args!(
                    "the key {key} stands there twice"
                )));
            }
            members.push((key, map.next_value()?));
        }
        Ok(members)
    }
}

struct Elements {
    limit: usize,
}

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            if elements.len() == self.limit {
                let limit = self.limit;
                return Err(de::Error::custom(format_args!(
                    "more than {limit} elements"
                )));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}
