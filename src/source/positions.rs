//! A text that is known to be JSON as a tree in which every node knows its byte span.
//!
//! Invariant: `serde_json` has accepted the text, so only where things begin and end is looked for.
//! What is larger than [`MAX_VALUES`] and [`MAX_KEY`] allow has no tree.

use compact_str::CompactString;

use super::Span;
use super::node::{Kind, MAX_KEY, MAX_VALUES, Member, Node};

/// The tree of a JSON text; `None` if it is too large.
pub(super) fn tree(text: &str) -> Option<Node> {
    let mut scan = Scan {
        text,
        at: 0,
        values: 0,
    };
    scan.value()
}

/// A walk through the text.
struct Scan<'t> {
    text: &'t str,
    at: usize,
    values: usize,
}

impl Scan<'_> {
    fn value(&mut self) -> Option<Node> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return None;
        }
        let first = self.next_byte()?;
        let start = self.at;
        let kind = match first {
            b'{' => self.object()?,
            b'[' => self.array()?,
            b'"' => Kind::String(self.string()?),
            b't' => self.word("true", Kind::Bool(true)),
            b'f' => self.word("false", Kind::Bool(false)),
            b'n' => self.word("null", Kind::Null),
            _ => self.number()?,
        };
        let span = Span::new(start, self.at);
        Some(Node { span, kind })
    }

    fn object(&mut self) -> Option<Kind> {
        self.at += 1;
        let mut members = Vec::new();
        loop {
            match self.next_byte()? {
                b'}' => break,
                b'"' => members.push(self.member()?),
                // A comma.
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(Kind::Object(members.into_iter().collect()))
    }

    fn member(&mut self) -> Option<Member> {
        let start = self.at;
        let key = self.string().filter(|key| key.len() <= MAX_KEY)?;
        let key_span = Span::new(start, self.at);
        let colon = self.next_byte()?;
        self.at += usize::from(colon == b':');
        Some(Member {
            key,
            key_span,
            value: self.value()?,
        })
    }

    fn array(&mut self) -> Option<Kind> {
        self.at += 1;
        let mut elements = Vec::new();
        loop {
            match self.next_byte()? {
                b']' => break,
                b',' => self.at += 1,
                _ => elements.push(self.value()?),
            }
        }
        self.at += 1;
        Some(Kind::Array(elements))
    }

    /// The string that begins here, its escapes resolved.
    fn string(&mut self) -> Option<CompactString> {
        let start = self.at;
        self.at += 1;
        let mut is_plain = true;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let length = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
            self.at += length + 1;
            if rest[length] == b'"' {
                break;
            }
            is_plain = false;
            self.at += 1;
        }
        if is_plain {
            self.text
                .get(start + 1..self.at - 1)
                .map(CompactString::from)
        } else {
            let text: Option<String> = serde_json::from_str(self.text.get(start..self.at)?).ok();
            text.map(CompactString::from)
        }
    }

    fn word(&mut self, word: &str, kind: Kind) -> Kind {
        self.at += word.len();
        kind
    }

    fn number(&mut self) -> Option<Kind> {
        let rest = self.text.get(self.at..)?;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.bytes().take_while(is_part).count();
        self.at += length;
        // Whatever has no length would be met again and again.
        (length > 0).then(|| Kind::Number(rest[..length].into()))
    }

    /// The next byte that is no white space, which is where the walk then stands.
    fn next_byte(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().take_while(|byte| is_space(byte)).count();
        self.text.as_bytes().get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_KEY, MAX_VALUES, tree};
    use crate::source::json::{Kind, Node};

    fn parts(node: &Node, text: &str, out: &mut Vec<String>) {
        out.push(text[node.span.start..node.span.end].to_owned());
        for member in node.members() {
            out.push(text[member.key_span.start..member.key_span.end].to_owned());
            parts(&member.value, text, out);
        }
        for element in node.elements() {
            parts(element, text, out);
        }
    }

    #[test]
    fn every_value_knows_its_place() {
        let text = " { \"a\\\"\" : [ true , -1.5E+3,null ] , \"\" : \"\\\\\" } ";
        let root = tree(text).expect("a tree");
        let mut found = Vec::new();
        parts(&root, text, &mut found);
        let array = "[ true , -1.5E+3,null ]";
        let words = [
            text.trim(),
            r#""a\"""#,
            array,
            "true",
            "-1.5E+3",
            "null",
            r#""""#,
            r#""\\""#,
        ];
        assert_eq!(found, words);
        assert_eq!(root.members()[0].key, "a\"");
        assert!(matches!(&root.members()[1].value.kind, Kind::String(text) if text == "\\"));
    }

    #[test]
    fn what_is_too_large_has_no_tree() {
        let wide = |count: usize| format!("[{}]", vec!["0"; count - 1].join(","));
        assert!(tree(&wide(MAX_VALUES)).is_some());
        assert!(tree(&wide(MAX_VALUES + 1)).is_none());
        let long = |length: usize| format!("{{\"{}\": 0}}", "k".repeat(length));
        assert!(tree(&long(MAX_KEY)).is_some());
        assert!(tree(&long(MAX_KEY + 1)).is_none());
    }

    #[test]
    fn what_is_no_json_has_an_end() {
        for text in [
            "", "{", "[", "\"", "\"\\", "{\"a\"", "{\"a\":", "[x", "{x", "tru", "[1", "[[é",
        ] {
            assert!(
                tree(text).is_none_or(|node| node.span.start <= node.span.end),
                "{text}"
            );
        }
    }
}
