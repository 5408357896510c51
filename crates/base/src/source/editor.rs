//! Edits JSON text and leaves everything else as its author wrote it: indentation, line endings,
//! order.
//!
//! Invariant: every edit keeps the text valid JSON, and lies inside the object or array that it
//! changes. Packages are handled elsewhere.

use serde_json::Value;

use super::Span;
use super::edit::TextEdit;
use super::json::{Document, Member, Node};
use super::pretty::{Layout, indentation, quoted};

/// Maximum line length after an insertion, in characters.
const MAX_LINE_CHARS: usize = 100;

/// Creates edits of one text.
#[derive(Debug, Clone, Copy)]
pub struct Editor<'a> {
    text: &'a str,
    document: &'a Document,
    layout: &'a Layout,
}

impl<'a> Editor<'a> {
    /// Creates an editor for `text`, which parsed to `document` and has this layout.
    pub fn new(text: &'a str, document: &'a Document, layout: &'a Layout) -> Self {
        Self {
            text,
            document,
            layout,
        }
    }

    /// Returns the document.
    pub fn document(&self) -> &'a Document {
        self.document
    }

    /// Returns the text of a node.
    pub fn text_of(&self, node: &Node) -> &'a str {
        &self.text[node.span.start..node.span.end]
    }

    /// Returns the value of a node.
    pub fn value_of(&self, node: &Node) -> Value {
        // The node is a part of a text that parsed.
        serde_json::from_str(self.text_of(node)).unwrap_or_default()
    }

    /// Replaces a node with another value.
    pub fn replace(&self, node: &Node, value: &Value) -> TextEdit {
        TextEdit::replace(node.span, self.printed(value, node))
    }

    /// Renames the key of a member.
    pub fn rename_key(&self, member: &Member, key: &str) -> TextEdit {
        TextEdit::replace(member.key_span, quoted(key))
    }

    /// Removes the member at this index from an object; returns `None` if it does not exist.
    pub fn remove_member(&self, object: &Node, index: usize) -> Option<TextEdit> {
        remove(object, &member_spans(object), index)
    }

    /// Removes the element at this index from an array; returns `None` if it does not exist.
    pub fn remove_element(&self, array: &Node, index: usize) -> Option<TextEdit> {
        remove(array, &element_spans(array), index)
    }

    /// Inserts a member into an object at `index`, at most after the last member.
    pub fn insert_member(&self, object: &Node, index: usize, key: &str, value: &Value) -> TextEdit {
        let key = format!("{}:{}", quoted(key), self.layout.after_colon);
        self.insert(object, &member_spans(object), index, &key, value)
    }

    /// Inserts an element into an array at `index`, at most after the last element.
    pub fn insert_element(&self, array: &Node, index: usize, value: &Value) -> TextEdit {
        self.insert(array, &element_spans(array), index, "", value)
    }

    fn insert(
        &self,
        parent: &Node,
        items: &[Span],
        index: usize,
        key: &str,
        value: &Value,
    ) -> TextEdit {
        let Some(last) = items.len().checked_sub(1) else {
            return self.fill(parent, key, value);
        };
        let index = index.min(items.len());
        let beside = items[index.min(last)];
        let item = match indentation(self.text, beside.start) {
            Some(margin) => format!("{key}{}", self.layout.print(value, margin)),
            None => format!("{key}{}", self.printed_in_line(value, parent)),
        };
        let gap = self.gap(items, index.min(last));
        if index > last {
            TextEdit::replace(Span::new(beside.end, beside.end), format!(",{gap}{item}"))
        } else {
            let at = beside.start;
            TextEdit::replace(Span::new(at, at), format!("{item},{gap}"))
        }
    }

    /// Returns the white space between an item and its neighbour, without the comma.
    fn gap(&self, items: &[Span], at: usize) -> String {
        if let Some(margin) = indentation(self.text, items[at].start) {
            return format!("{}{margin}", self.layout.newline);
        }
        let before = items[..at].last().map(|before| before.end);
        let between = before.map(|end| &self.text[end..items[at].start]);
        let behind = between.and_then(|between| between.split_once(','));
        behind.map_or_else(
            || self.layout.after_comma.to_owned(),
            |(_, behind)| behind.to_owned(),
        )
    }

    /// Inserts the first item into an empty object or array.
    fn fill(&self, parent: &Node, key: &str, value: &Value) -> TextEdit {
        let brackets = if parent.is_object() {
            ["{", "}"]
        } else {
            ["[", "]"]
        };
        let [open, close] = brackets;
        if self.layout.one_line {
            let pad = self.layout.padding;
            let pad = if parent.is_object() { pad } else { "" };
            let item = self.layout.print_on_one_line(value);
            return TextEdit::replace(parent.span, format!("{open}{pad}{key}{item}{pad}{close}"));
        }
        let margin = line_margin(self.text, parent.span.start);
        let inner = format!("{margin}{}", self.layout.indent);
        let newline = self.layout.newline;
        let item = self.layout.print(value, &inner);
        TextEdit::replace(
            parent.span,
            format!("{open}{newline}{inner}{key}{item}{newline}{margin}{close}"),
        )
    }

    /// Prints a value that replaces a node, on one line if the node is on one line and the value
    /// fits.
    fn printed(&self, value: &Value, node: &Node) -> String {
        let is_container = node.is_object() || !node.elements().is_empty();
        if is_container && !self.text_of(node).contains('\n') {
            return self.printed_in_line(value, node);
        }
        self.layout
            .print(value, line_margin(self.text, node.span.start))
    }

    fn printed_in_line(&self, value: &Value, beside: &Node) -> String {
        let margin = line_margin(self.text, beside.span.start);
        let line = self.layout.print_on_one_line(value);
        if self.layout.one_line || margin.len() + line.chars().count() <= MAX_LINE_CHARS {
            line
        } else {
            self.layout.print(value, margin)
        }
    }
}

fn member_spans(object: &Node) -> Vec<Span> {
    let members = object.members().iter();
    members
        .map(|member| Span::new(member.key_span.start, member.value.span.end))
        .collect()
}

fn element_spans(array: &Node) -> Vec<Span> {
    array.elements().iter().map(|node| node.span).collect()
}

fn remove(parent: &Node, items: &[Span], index: usize) -> Option<TextEdit> {
    let item = *items.get(index)?;
    let span = match (index.checked_sub(1), items.get(index + 1)) {
        (_, Some(next)) => Span::new(item.start, next.start),
        (Some(before), None) => Span::new(items[before].end, item.end),
        // The whole container is replaced, so that no other edit can insert between the brackets.
        (None, None) => {
            let empty = if parent.is_object() { "{}" } else { "[]" };
            return Some(TextEdit::replace(parent.span, empty));
        }
    };
    Some(TextEdit::replace(span, ""))
}

/// Returns the white space at the beginning of the line that contains `at`.
fn line_margin(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..at];
    let margin = line.len() - line.trim_start_matches([' ', '\t']).len();
    &line[..margin]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Editor, Layout};
    use crate::source::edit::{TextEdit, apply};
    use crate::source::{Document, JsonPath};

    fn edited(text: &str, make: impl Fn(&Editor<'_>) -> TextEdit) -> String {
        let document = Document::parse(text).expect("JSON");
        let layout = Layout::of(text, &document.root);
        let edit = make(&Editor::new(text, &document, &layout));
        apply(text, &[edit]).expect("the edit fits")
    }

    #[test]
    fn lines_and_commas_go_with_their_members() {
        let text = "{\n\t\"a\": 1,\n\t\"b\": 2,\n\t\"c\": 3\n}\n";
        let without = |index| {
            edited(text, |e| {
                e.remove_member(&e.document.root, index).expect("it")
            })
        };
        assert_eq!(without(0), "{\n\t\"b\": 2,\n\t\"c\": 3\n}\n");
        assert_eq!(without(1), "{\n\t\"a\": 1,\n\t\"c\": 3\n}\n");
        assert_eq!(without(2), "{\n\t\"a\": 1,\n\t\"b\": 2\n}\n");
        let one = edited("[ 1 ]", |e| {
            e.remove_element(&e.document.root, 0).expect("it")
        });
        assert_eq!(one, "[]");
        let inline = edited("{ \"a\": 1, \"b\": 2 }", |e| {
            e.remove_member(&e.document.root, 1).expect("it")
        });
        assert_eq!(inline, "{ \"a\": 1 }");
    }

    #[test]
    fn what_is_added_looks_like_what_is_there() {
        let text = "{\r\n  \"a\": 1,\r\n  \"b\": {}\r\n}";
        let put = |index| {
            edited(text, |e| {
                e.insert_member(&e.document.root, index, "x", &json!({ "y": [1, 2] }))
            })
        };
        let member = "  \"x\": {\r\n    \"y\": [1, 2]\r\n  }";
        assert_eq!(
            put(0),
            format!("{{\r\n{member},\r\n  \"a\": 1,\r\n  \"b\": {{}}\r\n}}")
        );
        assert_eq!(
            put(1),
            format!("{{\r\n  \"a\": 1,\r\n{member},\r\n  \"b\": {{}}\r\n}}")
        );
        assert_eq!(
            put(9),
            format!("{{\r\n  \"a\": 1,\r\n  \"b\": {{}},\r\n{member}\r\n}}")
        );
        let filled = edited(text, |e| {
            let b = e.document.node(&JsonPath::root().key("b")).expect("b");
            e.insert_member(b, 0, "c", &json!(true))
        });
        assert_eq!(
            filled,
            "{\r\n  \"a\": 1,\r\n  \"b\": {\r\n    \"c\": true\r\n  }\r\n}"
        );
        let tight = edited("{\"a\":1}", |e| {
            e.insert_member(&e.document.root, 1, "b", &json!({ "c": [1, 2] }))
        });
        assert_eq!(tight, "{\"a\":1,\"b\":{\"c\":[1,2]}}");
        let inline = "[\n  { \"a\": 1, \"b\": 2 }\n]";
        let inline = edited(inline, |e| {
            let first = &e.document.root.elements()[0];
            e.insert_member(first, 2, "c", &json!({ "d": 3 }))
        });
        assert_eq!(
            inline,
            "[\n  { \"a\": 1, \"b\": 2, \"c\": { \"d\": 3 } }\n]"
        );
    }

    #[test]
    fn values_keep_to_their_lines() {
        let text = "{\n  \"shape\": [1, 2],\n  \"list\": [\n    1,\n    2\n  ]\n}";
        let shape = edited(text, |e| {
            let node = e.document.root.get("shape").expect("it");
            e.replace(node, &json!([1, -1, 3]))
        });
        assert!(shape.contains("\"shape\": [1, -1, 3],"), "{shape}");
    }
}
