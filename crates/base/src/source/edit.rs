//! Edits of a text that replace byte spans.

use super::Span;

/// The replacement of a byte span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEdit {
    /// The bytes to be replaced; an empty span inserts.
    pub span: Span,
    /// The replacement text.
    pub replacement: String,
}

impl TextEdit {
    /// Replaces `span` with `replacement`.
    pub fn replace(span: Span, replacement: impl Into<String>) -> Self {
        Self {
            span,
            replacement: replacement.into(),
        }
    }
}

/// Applies all edits. Returns `None` if two of them overlap, or if one lies outside the text or
/// inside a character. Insertions at the same place keep their order.
pub fn apply(text: &str, edits: &[TextEdit]) -> Option<String> {
    let mut sorted: Vec<&TextEdit> = edits.iter().collect();
    sorted.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for edit in sorted {
        if edit.span.end < edit.span.start {
            return None;
        }
        out.push_str(text.get(at..edit.span.start)?);
        text.get(edit.span.start..edit.span.end)?;
        out.push_str(&edit.replacement);
        at = edit.span.end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::{TextEdit, apply};
    use crate::source::Span;

    fn edit(start: usize, end: usize, text: &str) -> TextEdit {
        TextEdit::replace(Span::new(start, end), text)
    }

    #[test]
    fn edits_are_made_together_or_not_at_all() {
        let text = "abcdef";
        let both = [edit(4, 5, "E"), edit(1, 2, "")];
        assert_eq!(apply(text, &both).as_deref(), Some("acdEf"));
        let at_one_place = [edit(3, 3, "1"), edit(3, 3, "2")];
        assert_eq!(apply(text, &at_one_place).as_deref(), Some("abc12def"));
        assert_eq!(apply(text, &[edit(1, 3, ""), edit(2, 4, "")]), None);
        assert_eq!(apply(text, &[edit(5, 9, "")]), None);
        assert_eq!(apply("é", &[edit(1, 2, "")]), None);
    }
}
