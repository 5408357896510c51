//! The text of a document, with edits and positions in the client's units.
//!
//! Invariant: a position beyond the end of a line or inside a character is moved to the nearest one
//! before it (LSP 3.17, "Position"). Lines end with `\n`, `\r\n` or `\r`.

use serde::Deserialize;
use serde_json::{Value, json};

use pkgtool_base::source::Span;

/// The unit in which positions in a line are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PositionEncoding {
    /// Bytes.
    Utf8,
    /// UTF-16 code units, which every client supports.
    #[default]
    Utf16,
}

/// A line and a character in it, both counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) character: usize,
}

/// A range from `start` up to, but not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Range {
    pub(super) start: Position,
    pub(super) end: Position,
}

impl Range {
    /// The whole of any text.
    pub(super) const ALL: Self = Self {
        start: Position {
            line: 0,
            character: 0,
        },
        end: Position {
            line: usize::MAX,
            character: 0,
        },
    };
}

/// A text and the offsets of its lines.
#[derive(Debug, Clone)]
pub(super) struct Text {
    content: String,
    starts: Vec<usize>,
    encoding: PositionEncoding,
}

impl PositionEncoding {
    /// Returns the name in the protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf16 => "utf-16",
        }
    }

    fn length(self, text: &str) -> usize {
        match self {
            Self::Utf8 => text.len(),
            Self::Utf16 => text.chars().map(char::len_utf16).sum(),
        }
    }
}

impl Text {
    pub(super) fn new(text: String, encoding: PositionEncoding) -> Self {
        let starts = line_starts(&text);
        Self {
            content: text,
            starts,
            encoding,
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.content
    }

    /// Replaces `range` by `replacement`. An inverted range is treated as empty.
    pub(super) fn edit(&mut self, range: Range, replacement: &str) {
        let start = self.offset(range.start);
        let end = self.offset(range.end).max(start);
        self.content.replace_range(start..end, replacement);
        self.starts = line_starts(&self.content);
    }

    /// Returns the byte offset of a position.
    pub(super) fn offset(&self, position: Position) -> usize {
        let Some(&start) = self.starts.get(position.line) else {
            return self.content.len();
        };
        let line = self.line(position.line);
        if self.encoding == PositionEncoding::Utf8 {
            return start + line.floor_char_boundary(position.character.min(line.len()));
        }
        let mut left = position.character;
        let mut at = start;
        for c in line.chars() {
            left = match left.checked_sub(c.len_utf16()) {
                Some(left) => left,
                None => break,
            };
            at += c.len_utf8();
        }
        at
    }

    /// Returns the position of a byte offset.
    pub(super) fn position(&self, offset: usize) -> Position {
        let offset = self
            .content
            .floor_char_boundary(offset.min(self.content.len()));
        let line = self.starts.partition_point(|&start| start <= offset) - 1;
        let before = &self.content[self.starts[line]..offset];
        Position {
            line,
            character: self.encoding.length(before),
        }
    }

    /// Converts a span to a range of the protocol.
    pub(super) fn range(&self, span: Span) -> Value {
        let json = |offset| {
            let Position { line, character } = self.position(offset);
            json!({ "line": line, "character": character })
        };
        json!({ "start": json(span.start), "end": json(span.end) })
    }

    /// Converts a range to a span of bytes.
    pub(super) fn span(&self, range: Range) -> Span {
        Span::new(self.offset(range.start), self.offset(range.end))
    }

    /// Returns the leading white space of the line at `offset`.
    pub(super) fn indentation(&self, offset: usize) -> &str {
        let line = self.line(self.position(offset).line);
        let is_space = |c: char| c == ' ' || c == '\t';
        &line[..line.len() - line.trim_start_matches(is_space).len()]
    }

    /// Returns a line without its line end.
    fn line(&self, line: usize) -> &str {
        let start = self.starts[line];
        let end = self.starts.get(line + 1).copied();
        let text = &self.content[start..end.unwrap_or(self.content.len())];
        text.trim_end_matches(['\r', '\n'])
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut starts = vec![0];
    for (at, byte) in bytes.iter().enumerate() {
        let ends = match byte {
            b'\n' => true,
            b'\r' => bytes.get(at + 1) != Some(&b'\n'),
            _ => false,
        };
        if ends {
            starts.push(at + 1);
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Position, PositionEncoding, Range, Text};

    fn at(line: usize, character: usize) -> Position {
        Position { line, character }
    }

    #[test]
    fn positions_count_in_the_clients_units() {
        let text = "a😀b\r\nëc\rd";
        let utf16 = Text::new(text.to_owned(), PositionEncoding::Utf16);
        assert_eq!(utf16.offset(at(0, 1)), 1);
        assert_eq!(utf16.offset(at(0, 2)), 1, "inside a pair");
        assert_eq!(utf16.offset(at(0, 3)), 5);
        assert_eq!(utf16.offset(at(0, 99)), 6, "the line's end");
        assert_eq!(utf16.offset(at(1, 1)), 10);
        assert_eq!(utf16.offset(at(2, 0)), 12);
        assert_eq!(utf16.offset(at(9, 0)), text.len());
        assert_eq!(utf16.position(5), at(0, 3));
        let utf8 = Text::new(text.to_owned(), PositionEncoding::Utf8);
        assert_eq!(utf8.offset(at(0, 5)), 5);
        assert_eq!(utf8.offset(at(0, 3)), 1, "inside a character");
        assert_eq!(utf8.position(10), at(1, 2));
    }

    proptest! {
        #[test]
        fn edits_do_what_they_do_to_a_string(
            text in "[ab\r\n😀é]{0,40}",
            edits in proptest::collection::vec((0usize..50, 0usize..50, "[xy\r\n😀]{0,6}"), 0..8),
            utf8 in any::<bool>(),
        ) {
            let encoding = if utf8 { PositionEncoding::Utf8 } else { PositionEncoding::Utf16 };
            let mut edited = Text::new(text.clone(), encoding);
            let mut plain = text;
            for (from, to, new) in edits {
                let from = plain.floor_char_boundary(from);
                let to = plain.floor_char_boundary(to);
                let (from, to) = (from.min(to), from.max(to));
                let range = Range { start: edited.position(from), end: edited.position(to) };
                // A position between `\r` and `\n` does not exist.
                let inside = |at: usize| at > 0 && plain[..at].ends_with('\r') && plain[at..].starts_with('\n');
                if inside(from) || inside(to) {
                    continue;
                }
                edited.edit(range, &new);
                plain.replace_range(from..to, &new);
                prop_assert_eq!(edited.as_str(), &plain);
            }
        }
    }
}
