//! The insertion of a key, with its value and the required commas.

use super::cursor::Cursor;
use super::item::{CompletionItem, CompletionKind, InsertText, escaped};
use pkgtool_base::source::Span;
use pkgtool_base::source::edit::TextEdit;
use pkgtool_base::source::json::Member;

/// The place where a key is inserted.
pub(super) struct KeySlot<'a> {
    pub(super) cursor: &'a Cursor<'a>,
    /// The member whose key is being typed.
    pub(super) own: Option<&'a Member>,
    /// The comma that is missing after the previous member.
    pub(super) before: Option<TextEdit>,
}

impl KeySlot<'_> {
    /// Returns an item with the key and its value as a snippet, or with the key alone if a value
    /// exists.
    pub(super) fn item(&self, key: &str, value: &str) -> CompletionItem {
        let span = self.cursor.place.token(self.cursor.offset);
        let text = self.cursor.view.text.as_str();
        let has_colon = self.own.is_some() && text[span.end..].trim_start().starts_with(':');
        let quoted = serde_json::Value::from(key).to_string();
        let insert = if has_colon {
            InsertText::Plain(quoted)
        } else {
            let comma = self.cursor.comma();
            InsertText::Snippet(format!("{}: {value}{comma}", escaped(&quoted)))
        };
        let mut item = CompletionItem::new(key, CompletionKind::Property, insert, span);
        item.other.clone_from(&self.before);
        item
    }
}

/// Returns the comma that is missing after the member before the cursor.
pub(super) fn comma_before(cursor: &Cursor<'_>, others: &[&Member]) -> Option<TextEdit> {
    let start = cursor.place.token(cursor.offset).start;
    let end = |member: &Member| member.value.span.end.max(member.key_span.end);
    let before = others.iter().filter(|member| end(member) <= start);
    let end = before.map(|member| end(member)).max()?;
    let between = cursor.view.text.as_str().get(end..start)?;
    (!between.contains(',')).then(|| TextEdit::replace(Span::new(end, end), ","))
}
