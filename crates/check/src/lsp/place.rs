//! Maps an offset in a config to the value or key there, and to the object or array around it.

use super::lenient::LenientTree;
use pkgtool_base::source::json::{JsonValue, Member, Node};
use pkgtool_base::source::{JsonPath, Span};

/// A position in a tree.
#[derive(Debug)]
pub(super) struct TreePosition<'t> {
    /// The path of the value, or of the member with the key. For a missing key, the path of the
    /// object.
    pub(super) path: JsonPath,
    /// The array or object around the position; `None` for the root.
    pub(super) container: Option<&'t Node>,
    pub(super) part: SyntaxElement<'t>,
}

/// The syntax element at a position.
#[derive(Debug)]
pub(super) enum SyntaxElement<'t> {
    /// The key of a member.
    Key(&'t Member),
    /// A position where a key is possible.
    NewKey,
    /// A value. For an array or object, the position is on a bracket.
    Value(&'t Node),
    /// A position where a value is possible.
    NewValue,
}

impl<'t> TreePosition<'t> {
    /// Finds the position of `offset` in the tree of `text`.
    pub(super) fn at(text: &str, tree: &'t LenientTree, offset: usize) -> Self {
        let mut place = Self {
            path: JsonPath::root(),
            container: None,
            part: SyntaxElement::Value(&tree.root),
        };
        let mut node = &tree.root;
        if node.span.is_empty() {
            place.part = SyntaxElement::NewValue;
            return place;
        }
        while tree.holds(node, offset) {
            let next = match &node.kind {
                JsonValue::Object(_) => place.enter_object(text, node, offset),
                JsonValue::Array(_) => place.enter_array(node, offset),
                _ => break,
            };
            place.container = Some(node);
            match next {
                Some(next) => node = next,
                None => return place,
            }
        }
        place.part = SyntaxElement::Value(node);
        place
    }

    /// Returns the span that a completion replaces. It is empty and at `offset` if nothing was
    /// typed.
    pub(super) fn token(&self, offset: usize) -> Span {
        match self.part {
            SyntaxElement::Key(member) => member.key_span,
            SyntaxElement::Value(node) => node.span,
            SyntaxElement::NewKey | SyntaxElement::NewValue => Span::new(offset, offset),
        }
    }

    fn enter_object(&mut self, text: &str, node: &'t Node, offset: usize) -> Option<&'t Node> {
        self.part = SyntaxElement::NewKey;
        for member in node.members() {
            let value = &member.value;
            if touches(member.key_span, offset) {
                self.path = self.path.key(&member.key);
                self.part = SyntaxElement::Key(member);
                return None;
            }
            if value.span.is_empty() {
                let between = text.get(member.key_span.end..offset).unwrap_or(",");
                if between.trim() == ":" {
                    self.path = self.path.key(&member.key);
                    self.part = SyntaxElement::NewValue;
                    return None;
                }
            } else if touches(value.span, offset) {
                self.path = self.path.key(&member.key);
                return Some(value);
            }
        }
        None
    }

    fn enter_array(&mut self, node: &'t Node, offset: usize) -> Option<&'t Node> {
        self.part = SyntaxElement::NewValue;
        let elements = node.elements();
        let before = elements.iter().take_while(|one| one.span.end < offset);
        let index = before.count();
        self.path = self.path.index(index);
        elements.get(index).filter(|one| touches(one.span, offset))
    }
}

fn touches(span: Span, offset: usize) -> bool {
    (span.start..=span.end).contains(&offset)
}

#[cfg(test)]
mod tests {
    use super::{LenientTree, SyntaxElement, TreePosition};

    #[test]
    fn the_cursor_knows_where_it_is() {
        for (text, expected) in [
            ("|", "value  new"),
            ("{|}", "key  new"),
            ("{ \"fi|", "key /fi"),
            ("{\"a\": |}", "value /a new"),
            ("{\"a\": \"x|\"}", "value /a"),
            ("{\"a\": 1, |}", "key  new"),
            ("{\"a\": [1, |]}", "value /a/1 new"),
            ("{\"a\": [{\"b\": {|", "key /a/0/b new"),
            ("{\"a\": [{\"b\": 1}], \"c|", "key /c"),
            ("{\"a\": {\"b\": 1}|}", "value /a"),
            ("{\"a\": [\"x\", \"|\"]}", "value /a/1"),
            ("{\"a\": |\n \"b\": 1}", "value /a new"),
        ] {
            let offset = text.find('|').expect("a cursor");
            let text = text.replace('|', "");
            let tree = LenientTree::read(&text, Some(offset));
            let place = TreePosition::at(&text, &tree, offset);
            let path = place.path.to_pointer();
            let found = match place.part {
                SyntaxElement::Key(_) => format!("key {path}"),
                SyntaxElement::NewKey => format!("key {path} new"),
                SyntaxElement::Value(_) => format!("value {path}"),
                SyntaxElement::NewValue => format!("value {path} new"),
            };
            assert_eq!(found, expected, "{text}");
        }
    }
}
