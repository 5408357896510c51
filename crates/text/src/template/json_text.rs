//! The filter `tojson`: writes JSON as Python's `json.dumps` does, because models were trained on
//! that format.
//!
//! Invariant: text is not escaped for HTML, and escaped to ASCII only on request. Keys keep their
//! order unless sorting is requested. Too deep nesting is an error.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Maximum nesting. Conversations are less deep, and Python would fail at a thousand.
const MAX_DEPTH: usize = 256;

/// `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the library passes arguments by value"
)]
pub(super) fn tojson(
    value: &Value,
    arguments: Rest<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let mut given = arguments.iter();
    let mut argument = |name: &str| match given.next() {
        Some(value) => Ok(Some(value.clone())),
        None => kwargs.get::<Option<Value>>(name),
    };
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let ascii = is_true(argument("ensure_ascii")?);
    let indent = indent(argument("indent")?)?;
    let (item, key) = separators(argument("separators")?, indent.is_some())?;
    let sorted = is_true(argument("sort_keys")?);
    kwargs.assert_all_used()?;
    let mut writer = JsonWriter {
        out: String::new(),
        ascii,
        indent,
        item,
        key,
        sorted,
    };
    writer.value(value, 0)?;
    Ok(writer.out)
}

fn indent(value: Option<Value>) -> Result<Option<String>, Error> {
    let Some(value) = value.filter(|value| !value.is_none() && !value.is_undefined()) else {
        return Ok(None);
    };
    if let Some(text) = value.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let count = value.as_i64().filter(|count| *count <= 64);
    let count = count.ok_or_else(|| wrong("`indent` must be a string or a number up to 64"))?;
    Ok(Some(" ".repeat(usize::try_from(count).unwrap_or(0))))
}

fn separators(value: Option<Value>, indented: bool) -> Result<(String, String), Error> {
    let Some(value) = value.filter(|value| !value.is_none() && !value.is_undefined()) else {
        let item = if indented { "," } else { ", " };
        return Ok((item.to_owned(), ": ".to_owned()));
    };
    let parts: Vec<Value> = value.try_iter()?.take(3).collect();
    match &parts[..] {
        [item, key] => Ok((item.to_string(), key.to_string())),
        _ => Err(wrong("`separators` must be two strings")),
    }
}

fn wrong(detail: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

struct JsonWriter {
    out: String,
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sorted: bool,
}

impl JsonWriter {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(wrong("the value is nested too deeply for JSON"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.object(value, depth)?,
            kind => {
                let detail = format!("{kind} cannot be converted to JSON");
                return Err(Error::new(ErrorKind::BadSerialization, detail));
            }
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()?.checked() {
            self.between(empty, depth + 1);
            empty = false;
            self.value(&item?, depth + 1)?;
        }
        self.close(empty, depth, ']');
        Ok(())
    }

    fn object(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('{');
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sorted {
            keys.sort();
        }
        let empty = keys.is_empty();
        for (place, key) in keys.iter().enumerate() {
            self.between(place == 0, depth + 1);
            match key.kind() {
                ValueKind::String => self.text(key.as_str().unwrap_or_default()),
                ValueKind::None => self.text("null"),
                ValueKind::Bool => self.text(if key.is_true() { "true" } else { "false" }),
                ValueKind::Number => self.text(&number(key)),
                kind => {
                    let detail = format!("{kind} cannot be a JSON key");
                    return Err(Error::new(ErrorKind::NonKey, detail));
                }
            }
            self.out.push_str(&self.key);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.close(empty, depth, '}');
        Ok(())
    }

    fn between(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push_str(&self.item);
        }
        self.line(depth);
    }

    fn close(&mut self, empty: bool, depth: usize, bracket: char) {
        if !empty {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// Formats a number as Python does.
pub(super) fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => float_text(float),
        _ => value.to_string(),
    }
}

/// Formats with the shortest exact digits, and with an exponent below 1e-4 and from 1e16 on.
fn float_text(float: f64) -> String {
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = float.to_string();
        return if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (float, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (123_456_789.123, "123456789.123"),
        ] {
            assert_eq!(float_text(float), text);
        }
    }
}
