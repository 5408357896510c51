//! Tables: rows of cells, printed in aligned columns for the terminal, or as Markdown.

use std::fmt;

use unicode_width::UnicodeWidthStr;

/// Alignment of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells. A column is as wide as its widest cell. Two spaces separate columns, and lines have
/// no trailing spaces.
#[derive(Debug, Clone)]
pub struct TextTable {
    indent: &'static str,
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates a table with these columns.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = Align>) -> Self {
        Self {
            indent: "",
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Creates a table with columns of text.
    #[must_use]
    pub fn of_text(columns: usize) -> Self {
        Self::new(vec![Align::Left; columns])
    }

    /// Indents every row by two spaces.
    #[must_use]
    pub fn indented(mut self) -> Self {
        self.indent = "  ";
        self
    }

    /// Adds a row, which has at most one cell for each column.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        debug_assert!(cells.len() <= self.columns.len(), "{cells:?}");
        self.rows.push(cells);
    }

    /// Returns the table in Markdown; the first row is the head.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let marks = self.columns.iter().map(|align| match align {
            Align::Left => "---",
            Align::Right => "--:",
        });
        let marks: Vec<String> = marks.map(str::to_owned).collect();
        let mut text = String::new();
        for (place, row) in self.rows.iter().enumerate() {
            let cells = row.iter().map(|cell| cell.replace('|', "\\|"));
            text += &line(&cells.collect::<Vec<_>>());
            if place == 0 {
                text += &line(&marks);
            }
        }
        text
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = vec![0; self.columns.len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.width().max(*width);
            }
        }
        for row in &self.rows {
            let mut line = self.indent.to_owned();
            for (place, (cell, align)) in row.iter().zip(&self.columns).enumerate() {
                if place > 0 {
                    line.push_str("  ");
                }
                let padding = " ".repeat(widths[place] - cell.width());
                match align {
                    Align::Left => line.extend([cell, padding.as_str()]),
                    Align::Right => line.extend([padding.as_str(), cell]),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Align, TextTable};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = TextTable::new([Align::Left, Align::Right, Align::Left]).indented();
        table.row(["name", "size", "note"]);
        table.row(["中文", "7", ""]);
        table.row(["a", "12345"]);
        table.row([] as [&str; 0]);
        let expected = "  name   size  note\n  中文      7\n  a     12345\n\n";
        assert_eq!(table.to_string(), expected);
    }
    #[test]
    fn markdown_has_a_head_and_escapes_bars() {
        let mut table = TextTable::new([Align::Left, Align::Right]);
        table.row(["name", "size"]);
        table.row(["a|b", "1"]);
        let expected = "| name | size |\n| --- | --: |\n| a\\|b | 1 |\n";
        assert_eq!(table.to_markdown(), expected);
    }
}
