//! Parses JSON objects and arrays of requests one level at a time. Members stay JSON text, so large
//! data is not built into a tree and nesting uses no stack.
//!
//! Invariant: for any text, the result is either the members or a [`Refusal`] with its place.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Refusal;
use pkgtool_base::source::suggest;
use pkgtool_base::source::text::defuse_line;

/// Maximum number of keys in an object; typical requests have fewer than ten.
const MAX_KEYS: usize = 64;

/// Maximum length of client text in a message, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// Members of an object in order, with values as JSON text.
pub(crate) type Object<'a> = Vec<(String, &'a RawValue)>;

/// Returns the text of a body.
pub(crate) fn text(body: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        Refusal::at(
            "$",
            format!("byte {at} is invalid UTF-8; JSON must be UTF-8"),
        )
    })
}

/// Returns the body, or the decoded string if the body is a JSON string that contains an object or
/// an array.
pub(super) fn unwrapped(text: &str) -> Result<Cow<'_, str>, Refusal> {
    if !text.trim_ascii_start().starts_with('"') {
        return Ok(Cow::Borrowed(text));
    }
    let inner: String = serde_json::from_str(text)
        .map_err(|error| Refusal::at("$", format!("invalid JSON: {error}")))?;
    if inner.trim_ascii_start().starts_with(['{', '[']) {
        return Ok(Cow::Owned(inner));
    }
    Ok(Cow::Borrowed(text))
}

/// Parses an object and rejects duplicate keys.
pub(crate) fn members<'a>(text: &'a str, place: &str) -> Result<Object<'a>, Refusal> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let members = deserializer.deserialize_any(ObjectVisitor);
    let members = members.and_then(|members| deserializer.end().map(|()| members));
    members.map_err(|error| syntax_error(place, text, "an object", &error))
}

/// Parses an object without the member `key`, and the array of objects in that member, with at most
/// `limit` elements.
///
/// Everything is read in one pass over the text. Reading each level separately would scan large
/// data once per level.
pub(super) fn with_list<'a>(
    text: &'a str,
    key: &str,
    limit: usize,
) -> Result<(Object<'a>, Option<Vec<Object<'a>>>), Refusal> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = deserializer.deserialize_any(WithList { key, limit });
    if let Ok(read) = read
        && deserializer.end().is_ok()
    {
        return Ok(read);
    }
    // Parsing level by level finds the place of the fault.
    let mut rest = members(text, "$")?;
    let Some(at) = rest.iter().position(|(known, _)| known == key) else {
        return Ok((rest, None));
    };
    let place = format!("$.{key}");
    let list = elements(rest.remove(at).1.get(), limit, &place)?;
    let list = list.iter().enumerate();
    let list: Result<_, _> = list
        .map(|(at, element)| members(element.get(), &format!("{place}[{at}]")))
        .collect();
    Ok((rest, Some(list?)))
}

/// Parses an array with at most `limit` elements.
pub(crate) fn elements<'a>(
    text: &'a str,
    limit: usize,
    place: &str,
) -> Result<Vec<&'a RawValue>, Refusal> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let elements = deserializer.deserialize_any(Elements::<PhantomData<_>> {
        limit,
        seed: || PhantomData,
    });
    let elements = elements.and_then(|elements| deserializer.end().map(|()| elements));
    elements.map_err(|error| syntax_error(place, text, "an array", &error))
}

/// Parses a string.
pub(crate) fn string<'a>(value: &'a RawValue, place: &str) -> Result<Cow<'a, str>, Refusal> {
    let text = value.get();
    // A string without escapes, the usual case, is borrowed.
    if let Ok(borrowed) = serde_json::from_str::<&str>(text) {
        return Ok(Cow::Borrowed(borrowed));
    }
    serde_json::from_str::<String>(text)
        .map(Cow::Owned)
        .map_err(|error| syntax_error(place, text, "a string", &error))
}

/// Returns the refusal of an unknown key.
pub(super) fn unknown_key(place: &str, key: &str, known: &[&str]) -> Refusal {
    let meant = suggest::nearest(key, known.iter().copied());
    let meant = meant.map(|meant| format!(", did you mean `{meant}`?"));
    let meant = meant.unwrap_or_default();
    let message = format!(
        "unknown key {}{meant}; supported keys: {}",
        shown(key),
        listed(known)
    );
    Refusal::at(format!("{place}.{}", short(key)), message)
}

/// Formats names as `` `a`, `b` ``, at most 20 of them.
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

/// Quotes and shortens client text for a message.
pub(crate) fn shown(text: &str) -> String {
    format!("`{}`", short(text))
}

/// Returns the kind of a JSON value, judged by its first character.
pub(crate) fn kind(text: &str) -> &'static str {
    match text.trim_ascii_start().bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        Some(_) => "invalid JSON",
        None => "nothing",
    }
}

fn short(text: &str) -> String {
    let line = defuse_line(text);
    match line.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn syntax_error(place: &str, text: &str, expected: &str, error: &serde_json::Error) -> Refusal {
    let found = kind(text);
    if found != expected && error.is_data() {
        return Refusal::at(place, format!("expected {expected}, got {found}"));
    }
    Refusal::at(place, format!("expected {expected}: {error}"))
}

/// Reads the key of a new member.
fn new_key<'de, A: MapAccess<'de>>(
    map: &mut A,
    seen: &mut HashSet<String>,
) -> Result<Option<String>, A::Error> {
    let Some(key) = map.next_key::<String>()? else {
        return Ok(None);
    };
    if seen.len() == MAX_KEYS {
        return Err(de::Error::custom(format_args!("more than {MAX_KEYS} keys")));
    }
    if !seen.insert(key.clone()) {
        let key = shown(&key);
        return Err(de::Error::custom(format_args!("duplicate key {key}")));
    }
    Ok(Some(key))
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut members, mut seen) = (Vec::new(), HashSet::new());
        while let Some(key) = new_key(&mut map, &mut seen)? {
            members.push((key, map.next_value()?));
        }
        Ok(members)
    }
}

impl<'de> DeserializeSeed<'de> for ObjectVisitor {
    type Value = Object<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// Elements of an array, each deserialized with a seed.
struct Elements<S> {
    limit: usize,
    seed: fn() -> S,
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Elements<S> {
    type Value = Vec<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element_seed((self.seed)())? {
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

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Elements<S> {
    type Value = Vec<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

struct WithList<'k> {
    key: &'k str,
    limit: usize,
}

impl<'de> Visitor<'de> for WithList<'_> {
    type Value = (Object<'de>, Option<Vec<Object<'de>>>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut rest, mut list) = (Vec::new(), None);
        let mut seen = HashSet::new();
        while let Some(key) = new_key(&mut map, &mut seen)? {
            if key == self.key {
                list = Some(map.next_value_seed(Elements {
                    limit: self.limit,
                    seed: || ObjectVisitor,
                })?);
            } else {
                rest.push((key, map.next_value()?));
            }
        }
        Ok((rest, list))
    }
}
