//! Converts relaxed JSON to strict JSON by a minimal set of edits.
//!
//! It fixes comments, trailing commas, single quotes, unquoted keys, a byte order mark, Python's
//! words, and the spaces and quotation marks of word processors. Invariant: the edits are tested,
//! so the edited text parses. All other bytes are kept.

use super::edit::{TextEdit, apply};
use super::{Document, Span};

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The edits that make a text strict JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrictEdits {
    /// The edits, in order of position.
    pub edits: Vec<TextEdit>,
    /// A description of the edits.
    pub title: String,
}

/// Returns the edits that make `text` valid JSON; `None` if it is valid already, or if it has other
/// errors.
pub fn strict(text: &str) -> Option<StrictEdits> {
    let mut reader = RelaxedReader {
        text,
        at: 0,
        edits: Vec::new(),
        counts: [0; EDIT_KINDS.len()],
        comma: None,
        open: Vec::new(),
    };
    reader.read()?;
    let made = apply(text, &reader.edits)?;
    Document::parse(&made).ok()?;
    (!reader.edits.is_empty()).then(|| StrictEdits {
        title: title(&reader.counts),
        edits: reader.edits,
    })
}

/// The kinds of edits: an imperative, and the names of one and of several things.
const EDIT_KINDS: [(&str, &str, &str); 8] = [
    ("remove the", "byte order mark", "byte order marks"),
    ("remove the", "comment", "comments"),
    (
        "remove the",
        "comma after the last item",
        "commas after last items",
    ),
    (
        "write double quotes around the",
        "text",
        "texts in single quotes",
    ),
    ("quote the", "key", "keys"),
    ("write JSON's word for the", "Python word", "Python words"),
    (
        "write a plain space for the",
        "no-break space",
        "no-break spaces",
    ),
    (
        "write straight quotes around the",
        "text in curly quotes",
        "texts in curly quotes",
    ),
];

fn title(counts: &[usize]) -> String {
    let parts = EDIT_KINDS
        .iter()
        .zip(counts)
        .filter(|(_, count)| **count > 0);
    let parts: Vec<String> = parts
        .map(|((order, one, several), count)| match count {
            1 => format!("{order} {one}"),
            count => format!("{order} {count} {several}"),
        })
        .collect();
    parts.join(", ")
}

struct RelaxedReader<'t> {
    text: &'t str,
    at: usize,
    edits: Vec<TextEdit>,
    counts: [usize; EDIT_KINDS.len()],
    /// The position of a comma, if it was the last token.
    comma: Option<usize>,
    /// The open brackets.
    open: Vec<u8>,
}

impl RelaxedReader<'_> {
    fn read(&mut self) -> Option<()> {
        if self.text.starts_with(BYTE_ORDER_MARK) {
            self.at = BYTE_ORDER_MARK.len_utf8();
            self.change(0, Span::new(0, self.at), "");
        }
        while let Some(byte) = self.text.as_bytes().get(self.at).copied() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                b'/' => self.comment()?,
                b',' => {
                    self.comma = Some(self.at);
                    self.at += 1;
                }
                b'}' | b']' => {
                    if let Some(comma) = self.comma.take() {
                        self.change(2, Span::new(comma, comma + 1), "");
                    }
                    self.open.pop();
                    self.at += 1;
                }
                _ => {
                    self.comma = None;
                    self.token(byte)?;
                }
            }
        }
        Some(())
    }

    fn token(&mut self, byte: u8) -> Option<()> {
        match byte {
            b'{' | b'[' => {
                self.open.push(byte);
                self.at += 1;
            }
            b'"' => self.at = self.string_end(b'"')?,
            b'\'' => {
                let start = self.at;
                self.at = self.string_end(b'\'')?;
                let inner = &self.text[start + 1..self.at - 1];
                let double = requoted(inner);
                self.change(3, Span::new(start, self.at), &double);
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => self.word(),
            0x80.. => self.foreign()?,
            _ => self.at += 1,
        }
        Some(())
    }

    /// Handles a character that word processors put in place of an ASCII one.
    fn foreign(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let first = rest.chars().next()?;
        let start = self.at;
        match first {
            '\u{a0}' | '\u{202f}' => {
                self.at += first.len_utf8();
                self.change(6, Span::new(start, self.at), " ");
            }
            '\u{201c}'..='\u{201f}' => {
                let inner = &rest[first.len_utf8()..];
                let ends = |c: char| matches!(c, '\u{201c}'..='\u{201f}' | '"' | '\n');
                let length = inner.find(ends)?;
                let end = inner[length..].chars().next().filter(|c| *c != '\n')?;
                self.at += first.len_utf8() + length + end.len_utf8();
                let straight = format!("\"{}\"", &inner[..length]);
                self.change(7, Span::new(start, self.at), &straight);
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns the offset after the string that begins here.
    fn string_end(&self, quote: u8) -> Option<usize> {
        let mut escaped = false;
        let rest = self.text.as_bytes().get(self.at + 1..)?;
        let length = rest.iter().position(|byte| {
            let ends = !escaped && (*byte == quote || *byte == b'\n');
            escaped = !escaped && *byte == b'\\';
            ends
        })?;
        (rest[length] == quote).then_some(self.at + length + 2)
    }

    fn comment(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/")? + 2
        } else {
            return None;
        };
        let (start, mut end) = (self.at, self.at + length);
        self.at = end;
        if self.text[..end].ends_with('\r') && self.text[end..].starts_with('\n') {
            end -= 1;
        }
        let before = self.text[..start].trim_end_matches([' ', '\t']).len();
        let behind =
            end + (self.text[end..].len() - self.text[end..].trim_start_matches([' ', '\t']).len());
        let begins_line = before == 0 || self.text[..before].ends_with('\n');
        let line_end = ["\r\n", "\n"]
            .into_iter()
            .find(|line_end| self.text[behind..].starts_with(line_end));
        let span = match line_end {
            // A comment on a line of its own is removed with the line.
            Some(line_end) if begins_line => Span::new(before, behind + line_end.len()),
            Some(_) => Span::new(before, end),
            None => Span::new(start, end),
        };
        self.at = self.at.max(span.end);
        self.change(1, span, "");
        Some(())
    }

    fn word(&mut self) {
        let start = self.at;
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == '-';
        let rest = &self.text[start..];
        self.at += rest.len() - rest.trim_start_matches(is_part).len();
        let word = &self.text[start..self.at];
        let span = Span::new(start, self.at);
        let is_key = self.open.last() == Some(&b'{')
            && self.text[self.at..].trim_ascii_start().starts_with(':');
        if is_key {
            let quoted = format!("\"{word}\"");
            self.change(4, span, &quoted);
            return;
        }
        let meant = match word {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            _ => return,
        };
        self.change(5, span, meant);
    }

    fn change(&mut self, kind: usize, span: Span, replacement: &str) {
        self.counts[kind] += 1;
        self.edits.push(TextEdit::replace(span, replacement));
    }
}

/// Converts the content of a single-quoted string to a double-quoted string.
fn requoted(inner: &str) -> String {
    let mut out = String::from("\"");
    let mut characters = inner.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' if characters.peek() == Some(&'\'') => {}
            '\\' => {
                out.push('\\');
                out.extend(characters.next());
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::strict;
    use crate::source::edit::apply;

    fn made(text: &str) -> Option<String> {
        apply(text, &strict(text)?.edits)
    }

    #[test]
    fn liberties_are_taken_back() {
        let text = "\u{feff}{\n  // the model\n  \"a\": 1, // one\n  b: 'it\\'s \"x\"', /* c */ \"d\": [True, None,],\n}\n";
        let expected = "{\n  \"a\": 1,\n  \"b\": \"it's \\\"x\\\"\",  \"d\": [true, null]\n}\n";
        assert_eq!(made(text).as_deref(), Some(expected));
        let title = strict(text).expect("edits").title;
        assert!(
            title.starts_with("remove the byte order mark, remove the 3 comments"),
            "{title}"
        );
        assert_eq!(
            made("{\"a\": \"// no, }\",}").as_deref(),
            Some("{\"a\": \"// no, }\"}")
        );
        assert_eq!(made("[1, // c\r\n]\r\n").as_deref(), Some("[1\r\n]\r\n"));
        assert_eq!(made("[1\n  , // c\n  ]").as_deref(), Some("[1\n  \n  ]"));
        let curly = "{\u{a0}\u{201c}a\u{201d}: \u{201c}b\u{201d},\u{a0}\"c\u{a0}\": 1}";
        assert_eq!(
            made(curly).as_deref(),
            Some("{ \"a\": \"b\", \"c\u{a0}\": 1}")
        );
    }

    #[test]
    fn what_is_otherwise_wrong_is_left() {
        for text in [
            "{}",
            "[1,,]",
            "{\"a\" 1,}",
            "{a b: 1}",
            "'",
            "/",
            "/* ",
            "{\"a\": NaN,}",
            "[1 2,]",
            "",
            ",",
            "\"\\",
            "'\\",
            "// only",
            "{\u{201c}a: 1}",
            "{\"a\": é,}",
        ] {
            assert_eq!(strict(text), None, "{text}");
        }
    }
}
