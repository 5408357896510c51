//! A tolerant JSON parser, which builds a tree from a text that is still being typed.
//!
//! Invalid JSON is parsed as what it will probably become. An open string ends at the end of its
//! line or at the cursor. A member without a value gets a `null` of length 0. An open array or
//! object ends where its parent ends.
//!
//! Invariant: every text has a tree, and parsing takes one pass. The depth and the number of values
//! are limited as in [`pkgtool_base::source::json`].

use std::collections::HashSet;

use pkgtool_base::source::Span;
use pkgtool_base::source::json::{JsonValue, MAX_DEPTH, MAX_VALUES, Member, Node};

/// A tree, and the arrays and objects that are not closed.
#[derive(Debug)]
pub(super) struct LenientTree {
    pub(super) root: Node,
    open: HashSet<usize>,
}

impl LenientTree {
    /// Parses `text`; `cursor` is the position where the author types.
    pub(super) fn read(text: &str, cursor: Option<usize>) -> Self {
        let mut scan = Scan {
            text,
            at: 0,
            cursor,
            values: 0,
            holders: Vec::new(),
            open: HashSet::new(),
        };
        if text.starts_with('\u{feff}') {
            scan.at = '\u{feff}'.len_utf8();
        }
        let root = match scan.peek() {
            Some(_) => scan.value(),
            None => scan.nothing(),
        };
        Self {
            root,
            open: scan.open,
        }
    }

    /// Returns whether `offset` is between the brackets of an array or object.
    pub(super) fn holds(&self, node: &Node, offset: usize) -> bool {
        let is_open = self.open.contains(&node.span.start);
        node.span.start < offset && (offset < node.span.end || is_open && offset <= node.span.end)
    }
}

struct Scan<'t> {
    text: &'t str,
    at: usize,
    cursor: Option<usize>,
    values: usize,
    /// Opening brackets around the current position.
    holders: Vec<u8>,
    open: HashSet<usize>,
}

impl Scan<'_> {
    fn value(&mut self) -> Node {
        self.values += 1;
        let start = self.at;
        let kind = match self.peek() {
            _ if self.values > MAX_VALUES => {
                self.at = self.text.len();
                JsonValue::Null
            }
            Some(b'{' | b'[') if self.holders.len() >= MAX_DEPTH => {
                self.at = self.text.len();
                JsonValue::Null
            }
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => JsonValue::String(self.string().0.into()),
            _ => self.word(),
        };
        Node {
            span: Span::new(start, self.at),
            kind,
        }
    }

    fn object(&mut self) -> JsonValue {
        let start = self.enter(b'{');
        let mut members = Vec::new();
        loop {
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                Some(b']') if self.holders.contains(&b'[') => {
                    self.open.insert(start);
                    break;
                }
                Some(b',' | b':' | b']') => self.at += 1,
                // Skip a value without a key.
                Some(b'{' | b'[') => drop(self.value()),
                Some(_) => members.push(self.member()),
                None => {
                    self.open.insert(start);
                    break;
                }
            }
        }
        self.holders.pop();
        JsonValue::Object(members.into())
    }

    fn array(&mut self) -> JsonValue {
        let start = self.enter(b'[');
        let mut elements = Vec::new();
        loop {
            match self.peek() {
                Some(b']') => {
                    self.at += 1;
                    break;
                }
                Some(b'}') if self.holders.contains(&b'{') => {
                    self.open.insert(start);
                    break;
                }
                Some(b',' | b':' | b'}') => self.at += 1,
                Some(_) => elements.push(self.value()),
                None => {
                    self.open.insert(start);
                    break;
                }
            }
        }
        self.holders.pop();
        JsonValue::Array(elements)
    }

    fn enter(&mut self, bracket: u8) -> usize {
        let start = self.at;
        self.at += 1;
        self.holders.push(bracket);
        start
    }

    fn member(&mut self) -> Member {
        let start = self.at;
        let key = if self.peek() == Some(b'"') {
            self.string().0
        } else {
            self.bare()
        };
        let key_span = Span::new(start, self.at);
        let end = self.at;
        if self.peek() != Some(b':') {
            // The skipped text belongs to no member.
            self.at = end;
            let value = self.nothing();
            return Member {
                key: key.into(),
                key_span,
                value,
            };
        }
        self.at += 1;
        let colon = self.at;
        let value = match self.peek() {
            None | Some(b',' | b'}' | b']' | b':') => None,
            Some(b'"') if self.is_key() => None,
            Some(_) => Some(self.value()),
        };
        let value = value.unwrap_or_else(|| {
            self.at = colon;
            self.nothing()
        });
        Member {
            key: key.into(),
            key_span,
            value,
        }
    }

    /// Returns whether a colon follows the string that begins here.
    fn is_key(&mut self) -> bool {
        let start = self.at;
        let (_, closed) = self.string();
        let is_key = closed && self.peek() == Some(b':');
        self.at = start;
        is_key
    }

    fn nothing(&self) -> Node {
        Node {
            span: Span::new(self.at, self.at),
            kind: JsonValue::Null,
        }
    }

    /// Parses the string that begins here. Also returns whether it is closed.
    fn string(&mut self) -> (String, bool) {
        let start = self.at;
        let rest = &self.text.as_bytes()[start + 1..];
        let mut escaped = false;
        let mut length = rest.len();
        let mut closed = false;
        for (at, byte) in rest.iter().enumerate() {
            match byte {
                b'\n' | b'\r' => {
                    length = at;
                    break;
                }
                b'"' if !escaped => {
                    (length, closed) = (at, true);
                    break;
                }
                _ => escaped = *byte == b'\\' && !escaped,
            }
        }
        let mut end = start + 1 + length;
        // A quote that opens the next string does not close this one.
        closed &= self.is_end_of_string(start, end);
        if closed {
            self.at = end + 1;
        } else {
            if let Some(cursor) = self.cursor_within(start, end) {
                end = cursor;
            }
            self.at = end;
        }
        let raw = &self.text[start + 1..end];
        let resolved = serde_json::from_str(&format!("\"{raw}\""));
        (resolved.unwrap_or_else(|_| raw.to_owned()), closed)
    }

    /// Returns the cursor, if it is in the string between these offsets.
    fn cursor_within(&self, start: usize, end: usize) -> Option<usize> {
        let cursor = self.cursor?;
        let is_within = (start + 1..end).contains(&cursor) && self.text.is_char_boundary(cursor);
        is_within.then_some(cursor)
    }

    /// Returns whether the quote at `end` closes the string that the author is typing: punctuation
    /// follows it.
    fn is_end_of_string(&self, start: usize, end: usize) -> bool {
        let after = self.text.as_bytes().get(end + 1);
        let is_punctuation = after.is_none_or(|byte| b" \t\r\n,:]}".contains(byte));
        is_punctuation || self.cursor_within(start, end).is_none()
    }

    /// Returns the characters up to white space or punctuation, at least one.
    fn bare(&mut self) -> String {
        let rest = &self.text[self.at..];
        let is_end = |c: char| c.is_whitespace() || ",:{}[]\"".contains(c);
        let mut length = rest.find(is_end).unwrap_or(rest.len());
        if length == 0 {
            length = rest.chars().next().map_or(0, char::len_utf8);
        }
        self.at += length;
        rest[..length].to_owned()
    }

    fn word(&mut self) -> JsonValue {
        let word = self.bare();
        match word.as_str() {
            "null" => JsonValue::Null,
            "true" => JsonValue::Bool(true),
            "false" => JsonValue::Bool(false),
            _ if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                JsonValue::Number(word.into())
            }
            _ => JsonValue::String(word.into()),
        }
    }

    /// Moves to the next byte outside of white space and comments, and returns it.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let length = if trimmed.starts_with("//") {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else if trimmed.starts_with("/*") {
                trimmed.find("*/").map_or(trimmed.len(), |at| at + 2)
            } else {
                return trimmed.bytes().next();
            };
            self.at += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::LenientTree;
    use pkgtool_base::source::Document;
    use pkgtool_base::source::json::{JsonValue, Node};

    /// Converts the tree to JSON.
    fn shown(node: &Node) -> serde_json::Value {
        match &node.kind {
            JsonValue::Null => serde_json::Value::Null,
            JsonValue::Bool(value) => (*value).into(),
            JsonValue::Number(text) => serde_json::from_str(text).unwrap_or(text.as_str().into()),
            JsonValue::String(text) => text.as_str().into(),
            JsonValue::Array(elements) => elements.iter().map(shown).collect(),
            JsonValue::Object(members) => members
                .iter()
                .map(|member| (member.key.clone(), shown(&member.value)))
                .collect(),
        }
    }

    #[test]
    fn half_typed_texts_have_the_tree_they_will_become() {
        for (text, tree) in [
            ("", "null"),
            ("{ \"fi", r#"{"fi":null}"#),
            ("{ fi", r#"{"fi":null}"#),
            ("{\"a\": \n\"b\": 1}", r#"{"a":null,"b":1}"#),
            ("{\"a\": \"x\n\"b\": 1}", r#"{"a":"x","b":1}"#),
            (
                "{\"a\": [1, {\"b\": 2}, \"c\": 3}",
                r#"{"a":[1,{"b":2},"c",3]}"#,
            ),
            ("{\"a\": {\"b\": [1, 2", r#"{"a":{"b":[1,2]}}"#),
            ("[{\"a\": 1, ]", r#"[{"a":1}]"#),
            ("{\"a\": 1 \"b\" 2}", r#"{"a":1,"b":null,"2":null}"#),
            ("{ // c\n \"a\": /* d */ 1,, }", r#"{"a":1}"#),
            ("{\"a\": tr", r#"{"a":"tr"}"#),
        ] {
            let read = shown(&LenientTree::read(text, None).root);
            assert_eq!(read.to_string(), tree, "{text}");
        }
        let text = r#"{"a": [{"b": 1, "pre }], "c": 2}"#;
        let cursor = text.find(" }]");
        let read = shown(&LenientTree::read(text, cursor).root).to_string();
        assert_eq!(read, r#"{"a":[{"b":1,"pre":null}],"c":2}"#);
    }

    #[test]
    fn depth_is_bounded() {
        for open in ["[", "{\"a\":"] {
            LenientTree::read(&open.repeat(100_000), None);
        }
    }

    proptest! {
        #[test]
        fn every_text_has_a_tree(text in "[{}\\[\\],:\"/* a\\\\\n0é]{0,60}", cursor in 0usize..70) {
            LenientTree::read(&text, Some(cursor));
            let tree = LenientTree::read(&text, None);
            if let Ok(document) = Document::parse(&text) {
                prop_assert_eq!(shown(&tree.root).to_string(), shown(&document.root).to_string());
                prop_assert_eq!(tree.root.span, document.root.span);
            }
        }
    }
}
