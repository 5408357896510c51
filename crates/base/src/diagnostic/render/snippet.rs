//! Extracts the source lines around a finding, safe and short enough for a terminal.
//!
//! Invariant: the time for extracting a window does not depend on the length of the text. The
//! window contains no control characters except line ends and tabs, so that a file cannot control
//! the terminal. Replacements keep the length in bytes, so that offsets stay valid.

use miette::{MietteError, SourceCode, SourceSpan, SpanContents};

use crate::diagnostic::SourceText;
use crate::source::Span;
use crate::source::text::{defuse, defuse_line};

/// Maximum length of the part of a line that is shown, in bytes.
const MAX_LINE_BYTES: usize = 160;

/// A part of a text, and the span to underline in it.
#[derive(Debug)]
pub(super) struct Snippet {
    data: String,
    window: SourceSpan,
    line: usize,
    column: usize,
    name: String,
    /// The span to underline, in offsets of the whole text, within one line.
    pub(super) underline: Span,
}

impl Snippet {
    /// Extracts the line of the span's start, one line before and one after. Very long lines are
    /// cut. Returns `None` for an empty text.
    pub(super) fn new(source: &SourceText, span: Span) -> Option<Self> {
        if source.text.is_empty() {
            return None;
        }
        let lines = source.lines();
        let at = source.position(span.start);
        let line = at.line - 1;
        let here = line_span(source, line);
        let underline = Span::new(at.offset, span.end.min(here.end).max(at.offset));
        let (first, start, end) = if here.len() > MAX_LINE_BYTES {
            let start = at.offset.saturating_sub(MAX_LINE_BYTES / 2).max(here.start);
            (line, start, (start + MAX_LINE_BYTES).min(here.end))
        } else {
            let short = |line: usize| line_span(source, line).len() <= MAX_LINE_BYTES;
            let before = line > 0 && short(line - 1);
            let after = line + 1 < lines.line_count() && short(line + 1);
            let first = line - usize::from(before);
            let last = line + usize::from(after);
            (first, lines.line_start(first), line_span(source, last).end)
        };
        let start = source.text.floor_char_boundary(start);
        let end = source.text.floor_char_boundary(end);
        let underline = Span::new(underline.start, underline.end.min(end));
        Some(Self {
            data: defuse(&source.text[start..end]),
            window: (start, end - start).into(),
            line: first,
            column: start - lines.line_start(first),
            name: defuse_line(&format!("{}:{}:{}", source.path, at.line, at.column)),
            underline,
        })
    }
}

impl SourceCode for Snippet {
    fn read_span<'a>(
        &'a self,
        _span: &SourceSpan,
        _lines_before: usize,
        _lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        Ok(Box::new(SnippetWindow(self)))
    }
}

struct SnippetWindow<'a>(&'a Snippet);

impl<'a> SpanContents<'a> for SnippetWindow<'a> {
    fn data(&self) -> &'a [u8] {
        self.0.data.as_bytes()
    }

    fn span(&self) -> &SourceSpan {
        &self.0.window
    }

    fn name(&self) -> Option<&str> {
        Some(&self.0.name)
    }

    fn line(&self) -> usize {
        self.0.line
    }

    fn column(&self) -> usize {
        self.0.column
    }

    fn line_count(&self) -> usize {
        self.0.data.lines().count()
    }
}

/// Returns a line without its line end.
fn line_span(source: &SourceText, line: usize) -> Span {
    let start = source.lines().line_start(line);
    let end = if line + 1 < source.lines().line_count() {
        source.lines().line_start(line + 1)
    } else {
        source.text.len()
    };
    let text = source.text[start..end].trim_end_matches(['\n', '\r']);
    Span::new(start, start + text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_short_and_safe() {
        let long = format!("{{\"a\": \"{}\", \"b\": 1}}", "é".repeat(5000));
        let source = SourceText::new("c.json".to_owned(), long);
        for start in [0, 7, 8, 5001, source.text.len() - 4, source.text.len()] {
            let snippet = Snippet::new(&source, Span::new(start, start + 3)).expect("a text");
            assert!(snippet.data.len() <= MAX_LINE_BYTES);
            assert!(snippet.underline.start >= snippet.window.offset());
        }
        let text = "\u{1b}[31m\u{9b}\u{202e}\n";
        let safe = defuse(text);
        assert_eq!(safe.len(), text.len());
        assert_eq!(safe, "?[31m¿\u{fffd}\n");
    }
}
