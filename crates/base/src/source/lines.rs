//! Converts byte offsets to lines and columns.
//!
//! Invariant: lines and columns count from 1, and a column counts Unicode scalar values. An offset
//! past the end or inside a character yields the nearest position before it.

use serde::Serialize;

/// A position in a text as people and editors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TextPosition {
    /// Line, from 1.
    pub line: usize,
    /// Column in Unicode scalar values, from 1.
    pub column: usize,
    /// Byte offset, from 0.
    pub offset: usize,
}

/// The offsets at which the lines of one text begin.
#[derive(Debug, Clone)]
pub struct LineIndex {
    starts: Vec<usize>,
}

impl LineIndex {
    /// Finds the line starts of `text`.
    pub fn new(text: &str) -> Self {
        let mut starts = vec![0];
        starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { starts }
    }

    /// Returns the position of `offset` in `text`, the text of this index.
    pub fn position(&self, text: &str, offset: usize) -> TextPosition {
        let offset = text.floor_char_boundary(offset);
        let line = self.line_of(offset);
        let column = text[self.starts[line]..offset].chars().count() + 1;
        TextPosition {
            line: line + 1,
            column,
            offset,
        }
    }

    /// Returns the 0-based line that contains `offset`.
    pub fn line_of(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset) - 1
    }

    /// Returns the offset at which the 0-based `line` begins; the last line's offset for lines
    /// beyond the end.
    pub fn line_start(&self, line: usize) -> usize {
        self.starts[line.min(self.starts.len() - 1)]
    }

    /// Returns the number of lines; an empty text has one.
    pub fn line_count(&self) -> usize {
        self.starts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_from_one() {
        let text = "a\nëb\r\nc";
        let index = LineIndex::new(text);
        let at = |offset| {
            let p = index.position(text, offset);
            (p.line, p.column, p.offset)
        };
        assert_eq!(at(0), (1, 1, 0));
        assert_eq!(at(2), (2, 1, 2));
        assert_eq!(at(3), (2, 1, 2), "inside a character");
        assert_eq!(at(4), (2, 2, 4));
        assert_eq!(at(99), (3, 2, text.len()));
        assert_eq!(LineIndex::new("").position("", 7).line, 1);
    }
}
