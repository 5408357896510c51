//! The position of a completion in a document.

use serde_json::Value as Json;

use super::super::place::TreePosition;
use super::super::view::DocumentView;
use super::item::{CompletionItem, CompletionKind, InsertText};

/// The position of the cursor in a document.
pub(super) struct Cursor<'a> {
    pub(super) view: &'a DocumentView<'a>,
    pub(super) place: &'a TreePosition<'a>,
    pub(super) offset: usize,
}

impl Cursor<'_> {
    /// Returns a comma if another member or element follows without one.
    pub(super) fn comma(&self) -> &'static str {
        let after = self.place.token(self.offset).end;
        let rest = self.view.text.as_str()[after..].trim_start();
        if rest.starts_with(['"', '{', '[']) {
            ","
        } else {
            ""
        }
    }

    /// Returns an item that inserts a string here.
    pub(super) fn text(&self, word: &str) -> CompletionItem {
        let span = self.place.token(self.offset);
        let insert = format!("{}{}", Json::from(word), self.comma());
        CompletionItem::new(word, CompletionKind::Value, InsertText::Plain(insert), span)
    }
}
