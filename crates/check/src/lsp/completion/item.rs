//! A completion item in the form of the protocol.

use serde_json::{Value, json};

use super::super::view::DocumentView;
use pkgtool_base::source::Span;
use pkgtool_base::source::edit::TextEdit;

/// The kinds of LSP completion items that are used.
#[derive(Debug, Clone, Copy)]
pub(super) enum CompletionKind {
    Property = 10,
    Value = 12,
    Enum = 13,
    File = 17,
    Folder = 19,
}

/// A completion item. Lines after the first are indented relative to the line of the insertion.
#[derive(Debug, Clone)]
pub(super) struct CompletionItem {
    pub(super) label: String,
    pub(super) kind: CompletionKind,
    pub(super) detail: Option<String>,
    pub(super) documentation: Option<String>,
    /// The inserted text. In a snippet, `$1` and so on are placeholders.
    pub(super) insert: InsertText,
    /// The span that the item replaces.
    pub(super) edit: Span,
    /// An additional edit elsewhere in the document.
    pub(super) other: Option<TextEdit>,
    /// Primary sort key of the items. Items of the same rank keep their order.
    pub(super) rank: u8,
}

#[derive(Debug, Clone)]
pub(super) enum InsertText {
    Plain(String),
    Snippet(String),
}

impl CompletionItem {
    pub(super) fn new(label: &str, kind: CompletionKind, insert: InsertText, edit: Span) -> Self {
        Self {
            label: label.to_owned(),
            kind,
            detail: None,
            documentation: None,
            insert,
            edit,
            other: None,
            rank: 5,
        }
    }

    pub(super) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub(super) fn documentation(mut self, text: Option<&str>) -> Self {
        self.documentation = text.map(str::to_owned);
        self
    }

    pub(super) fn rank(mut self, rank: u8) -> Self {
        self.rank = rank;
        self
    }

    /// Returns the item as JSON. `order` is its index among all items.
    pub(super) fn json(self, view: &DocumentView<'_>, order: usize) -> Value {
        let typed = &view.text.as_str()[self.edit.start..self.edit.end];
        // Clients match the filter text with the replaced text, so both must begin alike.
        let filter = if typed.starts_with('"') {
            json!(self.label).to_string()
        } else {
            self.label.clone()
        };
        let (text, is_snippet) = match self.insert {
            InsertText::Snippet(text) if view.client.snippets => (text, true),
            InsertText::Snippet(text) => (without_places(&text), false),
            InsertText::Plain(text) => (text, false),
        };
        let text = if view.client.shifts {
            text
        } else {
            let indentation = view.text.indentation(self.edit.start);
            text.replace('\n', &format!("\n{indentation}"))
        };
        let mut item = json!({
            "label": self.label,
            "kind": self.kind as u8,
            "sortText": format!("{}{order:05}", self.rank),
            "filterText": filter,
            "insertTextFormat": if is_snippet { 2 } else { 1 },
            "textEdit": { "range": view.text.range(self.edit), "newText": text },
        });
        let mut set = |key: &str, value: Value| {
            item[key] = value;
        };
        if view.client.shifts {
            set("insertTextMode", json!(2));
        }
        if let Some(detail) = self.detail {
            set("detail", json!(detail));
        }
        if let Some(text) = self.documentation {
            set("documentation", json!(text));
        }
        if let Some(edit) = self.other {
            let edit = json!({ "range": view.text.range(edit.span), "newText": edit.replacement });
            set("additionalTextEdits", json!([edit]));
        }
        if self.rank == 0 {
            set("preselect", json!(true));
        }
        item
    }
}

/// Escapes text for use in a snippet.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', r"\\")
        .replace('$', r"\$")
        .replace('}', r"\}")
}

fn without_places(snippet: &str) -> String {
    let mut text = String::with_capacity(snippet.len());
    let mut letters = snippet.chars().peekable();
    while let Some(c) = letters.next() {
        match c {
            '\\' => text.extend(letters.next()),
            '$' => while letters.next_if(char::is_ascii_digit).is_some() {},
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{escaped, without_places};

    #[test]
    fn snippets_become_plain_texts() {
        assert_eq!(without_places("\"a\": \"$1\"$0"), "\"a\": \"\"");
        let text = "{ \"$schema\": \"a\\\\b\" }";
        assert_eq!(without_places(&escaped(text)), text);
    }
}
