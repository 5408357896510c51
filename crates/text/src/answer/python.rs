//! Parses tool calls that are written as Python: `f(x=1, y="a")`, in a list or one after another.
//!
//! Invariant: only literals are accepted; nothing is evaluated. Any other text fails as a whole.

use serde_json::{Map, Number, Value};

use super::OfferedTool;
use super::parts::ParsedCall;

/// Maximum nesting of brackets.
const MAX_DEPTH: usize = 64;

/// Parses a text that consists only of calls.
pub(super) fn calls(text: &str, tools: &[OfferedTool]) -> Option<Vec<ParsedCall>> {
    let mut reader = PythonReader {
        rest: text.trim(),
        tools,
    };
    let in_list = reader.takes('[');
    let mut calls = Vec::new();
    loop {
        reader.spaces();
        if in_list && reader.takes(']') || !in_list && reader.rest.is_empty() {
            break;
        }
        calls.push(reader.call()?);
        reader.spaces();
        while reader.takes(',') || !in_list && reader.takes(';') {
            reader.spaces();
        }
    }
    reader.spaces();
    (reader.rest.is_empty() && !calls.is_empty()).then_some(calls)
}

struct PythonReader<'t> {
    rest: &'t str,
    tools: &'t [OfferedTool],
}

impl<'t> PythonReader<'t> {
    fn spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn takes(&mut self, letter: char) -> bool {
        match self.rest.strip_prefix(letter) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn name(&mut self) -> Option<&'t str> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then_some(name)
    }

    fn call(&mut self) -> Option<ParsedCall> {
        let name = self.name()?;
        // Llama's built-in tools are called through a method.
        let plain = name.strip_suffix(".call").unwrap_or(name);
        let tool = self
            .tools
            .iter()
            .find(|tool| tool.name == name || tool.name == plain)?;
        self.spaces();
        if !self.takes('(') {
            return None;
        }
        let mut arguments = Map::new();
        loop {
            self.spaces();
            if self.takes(')') {
                break;
            }
            let before = self.rest;
            let named = self.name().filter(|_| {
                self.spaces();
                !self.rest.starts_with("==") && self.takes('=')
            });
            let key = if let Some(key) = named {
                key.to_owned()
            } else {
                self.rest = before;
                parameter(tool, arguments.len())?
            };
            self.spaces();
            let value = self.value(0)?;
            arguments.insert(key, value);
            self.spaces();
            if !self.takes(',') && !self.rest.starts_with(')') {
                return None;
            }
        }
        Some(ParsedCall {
            name: tool.name.clone(),
            arguments: Value::Object(arguments).to_string(),
        })
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        let first = self.rest.chars().next()?;
        match first {
            '[' => Some(Value::Array(self.list(']', depth)?)),
            '(' => Some(Value::Array(self.list(')', depth)?)),
            '{' => self.mapping(depth),
            '"' | '\'' => self.text().map(Value::String),
            '-' | '+' | '.' | '0'..='9' => self.number(),
            _ => match self.name()? {
                "True" | "true" => Some(Value::Bool(true)),
                "False" | "false" => Some(Value::Bool(false)),
                "None" | "null" => Some(Value::Null),
                _ => None,
            },
        }
    }

    fn list(&mut self, close: char, depth: usize) -> Option<Vec<Value>> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        loop {
            self.spaces();
            if self.takes(close) {
                return Some(items);
            }
            items.push(self.value(depth + 1)?);
            self.spaces();
            if !self.takes(',') && !self.rest.starts_with(close) {
                return None;
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Option<Value> {
        self.rest = &self.rest[1..];
        let mut fields = Map::new();
        loop {
            self.spaces();
            if self.takes('}') {
                return Some(Value::Object(fields));
            }
            let key = match self.value(depth + 1)? {
                Value::String(key) => key,
                key @ (Value::Number(_) | Value::Bool(_)) => key.to_string(),
                _ => return None,
            };
            self.spaces();
            if !self.takes(':') {
                return None;
            }
            self.spaces();
            let value = self.value(depth + 1)?;
            fields.insert(key, value);
            self.spaces();
            if !self.takes(',') && !self.rest.starts_with('}') {
                return None;
            }
        }
    }

    fn number(&mut self) -> Option<Value> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        let number = number.replace('_', "");
        let number = number.strip_prefix('+').unwrap_or(&number);
        if let Ok(whole) = number.parse::<i64>() {
            return Some(Value::from(whole));
        }
        if let Ok(whole) = number.parse::<u64>() {
            return Some(Value::from(whole));
        }
        // `inf` and `nan` parse as numbers, but JSON cannot represent them.
        Number::from_f64(number.parse().ok()?).map(Value::Number)
    }

    fn text(&mut self) -> Option<String> {
        let quote = ["\"\"\"", "'''", "\"", "'"];
        let quote = quote
            .into_iter()
            .find(|quote| self.rest.starts_with(quote))?;
        self.rest = &self.rest[quote.len()..];
        let mut text = String::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix(quote) {
                self.rest = rest;
                return Some(text);
            }
            let letter = self.letter()?;
            if letter == '\n' && quote.len() == 1 {
                return None;
            }
            if letter == '\\' {
                self.escape(&mut text)?;
            } else {
                text.push(letter);
            }
        }
    }

    fn letter(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.rest = &self.rest[letter.len_utf8()..];
        Some(letter)
    }

    fn escape(&mut self, text: &mut String) -> Option<()> {
        let letter = self.letter()?;
        let plain = match letter {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            '0' => '\0',
            'x' => self.code(2)?,
            'u' => self.code(4)?,
            'U' => self.code(8)?,
            '\n' => return Some(()),
            '\\' | '\'' | '"' => letter,
            // As in Python, an unknown escape sequence stands for itself.
            other => {
                text.push('\\');
                other
            }
        };
        text.push(plain);
        Some(())
    }

    fn code(&mut self, digits: usize) -> Option<char> {
        let code = self.rest.get(..digits)?;
        self.rest = &self.rest[digits..];
        char::from_u32(u32::from_str_radix(code, 16).ok()?)
    }
}

/// Returns the name of the parameter at a position, in the order of the tool's schema.
fn parameter(tool: &OfferedTool, place: usize) -> Option<String> {
    let properties = tool.parameters.as_ref()?.get("properties")?.as_object()?;
    properties.keys().nth(place).cloned()
}
