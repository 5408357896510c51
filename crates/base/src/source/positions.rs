//! Builds the tree of a JSON text with byte spans, in one pass.
//!
//! Invariant: a text has a tree if and only if `serde_json` accepts it, which a property test
//! checks. That includes strings with escapes and numbers that may exceed 64 bits. Texts beyond
//! [`MAX_DEPTH`], [`MAX_VALUES`] and [`MAX_KEY_BYTES`] have no tree.

use compact_str::CompactString;
use serde_json::Number;

use super::Span;
use super::node::{JsonValue, MAX_DEPTH, MAX_KEY_BYTES, MAX_VALUES, Member, Members, Node};

/// Number of digits that surely fit a 64-bit float, whose limit is 308.
const MAX_FINITE_DIGITS: usize = 300;

/// Number of bytes that are processed together.
const WORD_BYTES: usize = 8;

/// Initial capacity of a list of members or elements.
const INITIAL_CAPACITY: usize = 4;

/// Returns the tree of a JSON text, and whether any object has a repeated key. Returns `None` if
/// the text is invalid or too large.
pub(super) fn tree(text: &str) -> Option<(Node, bool)> {
    let mut scan = TreeScanner {
        text,
        at: 0,
        values: 0,
        depth: 0,
        repeats: false,
    };
    let root = scan.value()?;
    scan.next_byte().is_none().then_some((root, scan.repeats))
}

/// A scanner of the text.
struct TreeScanner<'t> {
    text: &'t str,
    at: usize,
    values: usize,
    depth: usize,
    repeats: bool,
}

impl TreeScanner<'_> {
    fn value(&mut self) -> Option<Node> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return None;
        }
        let first = self.next_byte()?;
        let start = self.at;
        let kind = match first {
            b'{' => {
                let members = Members::from(self.listed(b'}', Self::member)?);
                self.repeats |= members.repeats();
                JsonValue::Object(members)
            }
            b'[' => JsonValue::Array(self.listed(b']', Self::value)?),
            b'"' => JsonValue::String(self.string()?),
            b't' => self.word("true", JsonValue::Bool(true))?,
            b'f' => self.word("false", JsonValue::Bool(false))?,
            b'n' => self.word("null", JsonValue::Null)?,
            _ => self.number()?,
        };
        let span = Span::new(start, self.at);
        Some(Node { span, kind })
    }

    /// Parses the items between the next bracket and its `closing` one, separated by commas.
    fn listed<T>(&mut self, closing: u8, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut list = Vec::new();
        if self.next_byte()? != closing {
            list.reserve_exact(INITIAL_CAPACITY);
            list.push(read(self)?);
            while self.next_byte()? != closing {
                self.expect(b',')?;
                list.push(read(self)?);
            }
        }
        self.at += 1;
        self.depth -= 1;
        Some(list)
    }

    fn member(&mut self) -> Option<Member> {
        if self.next_byte()? != b'"' {
            return None;
        }
        let start = self.at;
        let key = self.string().filter(|key| key.len() <= MAX_KEY_BYTES)?;
        let key_span = Span::new(start, self.at);
        self.expect(b':')?;
        Some(Member {
            key,
            key_span,
            value: self.value()?,
        })
    }

    /// Skips the next byte, if it is this one.
    fn expect(&mut self, byte: u8) -> Option<()> {
        let is_next = self.next_byte()? == byte;
        self.at += 1;
        is_next.then_some(())
    }

    /// Parses the string that begins here, and resolves its escapes.
    fn string(&mut self) -> Option<CompactString> {
        let start = self.at;
        self.at += 1;
        let mut is_plain = true;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let length = plain_length(rest)?;
            self.at += length + 1;
            match rest[length] {
                b'"' => break,
                b'\\' => self.at += 1,
                _ => return None,
            }
            is_plain = false;
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

    fn word(&mut self, word: &str, kind: JsonValue) -> Option<JsonValue> {
        let rest = self.text.as_bytes().get(self.at..)?;
        self.at += word.len();
        rest.starts_with(word.as_bytes()).then_some(kind)
    }

    fn number(&mut self) -> Option<JsonValue> {
        let rest = self.text.get(self.at..)?;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.as_bytes().iter().take_while(|b| is_part(b)).count();
        let text = &rest[..length];
        self.at += length;
        let is_number = is_plain_number(text) || text.parse::<Number>().is_ok();
        is_number.then(|| JsonValue::Number(text.into()))
    }

    /// Skips spaces, which most white space consists of.
    fn skip_indentation(&mut self) {
        const SPACES: u64 = u64::from_le_bytes([b' '; WORD_BYTES]);
        let bytes = self.text.as_bytes();
        while let Some(eight) = bytes
            .get(self.at..)
            .and_then(<[u8]>::first_chunk::<WORD_BYTES>)
        {
            let others = u64::from_le_bytes(*eight) ^ SPACES;
            self.at += others.trailing_zeros() as usize / 8;
            if others != 0 {
                break;
            }
        }
    }

    /// Moves to the next byte that is not white space, and returns it.
    fn next_byte(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        loop {
            match *bytes.get(self.at)? {
                b'\n' => {
                    self.at += 1;
                    self.skip_indentation();
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }
}

/// Returns the length of a string's plain beginning: up to a quote, a backslash or a control
/// character.
fn plain_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<WORD_BYTES>) {
        let ends = end_marks(u64::from_le_bytes(*eight));
        if ends != 0 {
            return Some(at + ends.trailing_zeros() as usize / 8);
        }
        at += WORD_BYTES;
    }
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
    let rest = bytes[at..].iter().position(ends)?;
    Some(at + rest)
}

/// Marks the highest bit of each byte that ends a plain part of a string. Bytes above the lowest
/// such byte may be marked by mistake.
fn end_marks(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; WORD_BYTES]);
    const HIGH: u64 = ONES << 7;
    let below = |limit: u64, word: u64| word.wrapping_sub(ONES * limit) & !word;
    let is = |byte: u8| below(1, word ^ (ONES * u64::from(byte)));
    (is(b'"') | is(b'\\') | below(0x20, word)) & HIGH
}

/// Returns whether a text is surely a JSON integer in the range of a 64-bit float, as most
/// dimensions and sizes are. Other texts may be numbers too.
fn is_plain_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let is_led = digits.len() == 1 || digits.first().is_some_and(|first| *first != b'0');
    is_led && digits.len() <= MAX_FINITE_DIGITS && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MAX_KEY_BYTES, MAX_VALUES, tree};
    use crate::source::json::{JsonValue, Node};

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
        let (root, repeats) = tree(text).expect("a tree");
        assert!(!repeats);
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
        assert!(matches!(&root.members()[1].value.kind, JsonValue::String(text) if text == "\\"));
    }

    #[test]
    fn plain_parts_end_where_the_first_end_is() {
        let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
        for length in 0..20 {
            for byte in 0..=u8::MAX {
                for filler in [b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xff] {
                    let mut bytes = vec![filler; length];
                    bytes.extend([byte, filler, byte, b'"', 0, filler]);
                    let expected = bytes.iter().position(ends);
                    assert_eq!(super::plain_length(&bytes), expected, "{bytes:?}");
                    bytes.truncate(length);
                    assert_eq!(super::plain_length(&bytes), None);
                }
            }
        }
    }

    #[test]
    fn what_is_too_large_has_no_tree() {
        let wide = |count: usize| format!("[{}]", vec!["0"; count - 1].join(","));
        assert!(tree(&wide(MAX_VALUES)).is_some());
        assert!(tree(&wide(MAX_VALUES + 1)).is_none());
        let long = |length: usize| format!("{{\"{}\": 0}}", "k".repeat(length));
        assert!(tree(&long(MAX_KEY_BYTES)).is_some());
        assert!(tree(&long(MAX_KEY_BYTES + 1)).is_none());
    }

    #[test]
    fn what_is_no_json_has_no_tree() {
        for text in [
            "",
            "{",
            "[",
            "\"",
            "\"\\",
            "{\"a\"",
            "{\"a\":",
            "[x",
            "{x",
            "tru",
            "[1",
            "[[é",
            "-",
            "00",
            "-01",
            "[1,]",
            "{\"a\":1,}",
            "{,}",
            "[,]",
            "1 2",
            "[1 2]",
            "truex",
            "{\"a\" 1}",
            "{1:1}",
            "\"\u{1}\"",
            "\"\\ud800\"",
            "1e999",
            "1.",
            "\u{a0}1",
        ] {
            assert!(tree(text).is_none(), "{text}");
        }
    }

    proptest! {
        /// Texts of characters that occur in JSON, some of which are valid JSON.
        #[test]
        fn what_has_a_tree_is_json_and_the_other_way_round(
            parts in prop::collection::vec(prop::sample::select(PARTS.as_slice()), 0..12)
        ) {
            let text = parts.concat();
            let read: Result<serde_json::Value, _> = serde_json::from_str(&text);
            let tree = tree(&text).map(|(node, _)| node.to_value());
            prop_assert_eq!(tree, read.ok(), "{}", text);
        }
    }

    const PARTS: [&str; 30] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"\"",
        "\"\\n\"",
        "\"\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        "\"é\"",
        "\"",
        "\\",
        "\"\\ud800\"",
        "\"\t\"",
        "0",
        "-",
        "12",
        ".5",
        "e3",
        "E-2",
        "1e400",
        "18446744073709551616",
        "true",
        "null",
        "false",
        " ",
        "\n",
        "{\"a\":",
    ];
}
