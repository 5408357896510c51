//! Completion of keys, words, file names and values from models. It also works in incomplete JSON.

mod cursor;
mod file;
mod item;
mod key;
mod model;
mod slot;
mod value;

use serde_json::{Value, json};

use super::place::{SyntaxElement, TreePosition};
use super::view::DocumentView;
use cursor::Cursor;
use item::CompletionItem;

/// Maximum number of items in an answer.
const MAX_ITEMS: usize = 2000;

/// Returns the completions at `offset`.
pub(super) fn complete(view: &DocumentView<'_>, offset: usize) -> Value {
    let place = TreePosition::at(view.text.as_str(), &view.tree, offset);
    let cursor = Cursor {
        view,
        place: &place,
        offset,
    };
    let mut items: Vec<CompletionItem> = match place.part {
        SyntaxElement::Key(_) | SyntaxElement::NewKey => key::keys(&cursor),
        SyntaxElement::Value(_) | SyntaxElement::NewValue => value::values(&cursor),
    };
    items.truncate(MAX_ITEMS);
    let items: Vec<Value> = items
        .into_iter()
        .enumerate()
        .map(|(order, item)| item.json(view, order))
        .collect();
    json!({ "isIncomplete": false, "items": items })
}
