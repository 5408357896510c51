//! Lets the library `jsonschema` read the tree of a document, without a copy of its values.
//!
//! Invariant: of a repeated key the last member counts, and integers are recognized as written, of
//! any size.

use std::borrow::Cow;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, JsonNumber, Node as JsonNode, NodeIdentity, Object};
use serde_json::{Number, Value};

use pkgtool_base::source::json::{JsonValue, Node};
use pkgtool_base::source::{Members, Span};

/// The representation of JSON values as nodes of a document.
pub(super) struct SchemaTree;

/// A number as written, and as `serde_json` represents it.
pub(super) struct WrittenNumber<'a> {
    text: &'a str,
    number: Number,
}

impl Json for SchemaTree {
    type Node<'a> = &'a Node;
    type PreparedKey = String;
    type StringBuffer = Option<Node>;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Option<Node>,
        string: &str,
        f: impl FnOnce(&Node) -> T,
    ) -> T {
        f(buffer.insert(Node {
            span: Span::new(0, 0),
            kind: JsonValue::String(string.into()),
        }))
    }
}

impl<'a> JsonNode<'a, SchemaTree> for &'a Node {
    type Object = &'a Members;
    type Array = &'a [Node];
    type Number = WrittenNumber<'a>;

    fn as_object(&self) -> Option<&'a Members> {
        match &self.kind {
            JsonValue::Object(members) => Some(members),
            _ => None,
        }
    }

    fn as_array(&self) -> Option<&'a [Node]> {
        match &self.kind {
            JsonValue::Array(elements) => Some(elements),
            _ => None,
        }
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        Node::as_str(self).map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<WrittenNumber<'a>> {
        match &self.kind {
            JsonValue::Number(text) => Some(WrittenNumber {
                text,
                number: Node::as_number(self)?,
            }),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        match self.kind {
            JsonValue::Bool(truth) => Some(truth),
            _ => None,
        }
    }

    fn is_null(&self) -> bool {
        Node::is_null(self)
    }

    fn json_type(&self) -> JsonType {
        match self.kind {
            JsonValue::Null => JsonType::Null,
            JsonValue::Bool(_) => JsonType::Boolean,
            JsonValue::Number(_) => JsonType::Number,
            JsonValue::String(_) => JsonType::String,
            JsonValue::Array(_) => JsonType::Array,
            JsonValue::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        match (&self.kind, expected) {
            (JsonValue::String(text), Value::String(expected)) => text == expected,
            _ => jsonschema::json::cmp::equal(&Node::to_value(self), expected),
        }
    }

    /// Returns the value for an error, which contains no copy of an array or object: errors are
    /// described by the node at their path.
    fn to_value(&self) -> Cow<'a, Value> {
        match self.kind {
            JsonValue::Array(_) | JsonValue::Object(_) => Cow::Owned(Value::Null),
            _ => Cow::Owned(Node::to_value(self)),
        }
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref::<Node>(self).addr()))
    }
}

impl<'a> Object<'a, SchemaTree> for &'a Members {
    type Node = &'a Node;
    type MemberName = &'a str;
    type MembersIter = Box<dyn Iterator<Item = (&'a str, &'a Node)> + 'a>;

    fn len(&self) -> usize {
        self.effective().count()
    }

    fn get(&self, key: &String) -> Option<&'a Node> {
        self.last(key).map(|member| &member.value)
    }

    fn members(&self) -> Self::MembersIter {
        let members = self.effective();
        Box::new(members.map(|member| (member.key.as_str(), &member.value)))
    }
}

impl<'a> Array<'a, SchemaTree> for &'a [Node] {
    type Node = &'a Node;
    type ElementsIter = std::slice::Iter<'a, Node>;

    fn len(&self) -> usize {
        <[Node]>::len(self)
    }

    fn elements(&self) -> Self::ElementsIter {
        self.iter()
    }

    fn is_unique(&self) -> bool {
        let values: Vec<Value> = self.iter().map(Node::to_value).collect();
        jsonschema::json::unique::is_unique(&values)
    }
}

impl JsonNumber for WrittenNumber<'_> {
    fn as_u64(&self) -> Option<u64> {
        self.number.as_u64()
    }

    fn as_i64(&self) -> Option<i64> {
        self.number.as_i64()
    }

    fn as_f64(&self) -> Option<f64> {
        self.number.as_f64()
    }

    fn as_str(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.text)
    }

    fn to_number(&self) -> Cow<'_, Number> {
        Cow::Borrowed(&self.number)
    }

    fn is_integer(&self) -> bool {
        let may_have_fraction = |byte: u8| matches!(byte, b'.' | b'e' | b'E');
        !self.text.bytes().any(may_have_fraction)
            || self.as_f64().is_some_and(|number| number.fract() == 0.0)
    }
}
