//! Parses JSON text to a tree in which every node knows its byte span.
//!
//! The module `positions` builds the tree and accepts exactly what `serde_json` accepts (strict RFC
//! 8259). A rejected text is parsed again for a good error message: by `jsonc-parser` with its
//! extensions disabled, or else by `serde_json`. Invariant: nesting, number of values and key
//! length of a [`Document`] are limited by [`MAX_DEPTH`], [`MAX_VALUES`] and [`MAX_KEY_BYTES`]. The tree
//! keeps all members of a repeated key; look-ups find the last one, as in `serde_json`.

use std::borrow::Cow;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use serde_json::error::Category;

pub use super::key::Key;
pub use super::node::{JsonValue, MAX_DEPTH, MAX_KEY_BYTES, MAX_VALUES, Member, Node};
pub use super::syntax::SyntaxError;

use super::sound::ValidJson;
use super::{LineIndex, Span, positions, slips};

/// Remedy if nothing more specific is known.
const RULES_OF_JSON: &str =
    "strings are in double quotes, `,` stands between members, and there are no comments";

const TOO_MANY_HELP: &str = "a config has some hundreds; is this the right file?";

const DEPTH_HELP: &str = "a config needs no more than 10 levels";

/// A parsed JSON text.
#[derive(Debug, Clone)]
pub struct Document {
    /// The tree with positions.
    pub root: Node,
    /// True if any object has a repeated key.
    pub repeats: bool,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Into an object's member.
    Key(Key),
    /// Into an array's element.
    Index(usize),
}

/// A path from the root of a document to a value, equivalent to a JSON Pointer (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct JsonPath(Vec<Step>);

impl Document {
    /// Parses `text`.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        if let Some((root, repeats)) = positions::tree(text) {
            return Ok(Self { root, repeats });
        }
        Err(
            jsonc_error(text).unwrap_or_else(|| match serde_json::from_str(text) {
                Ok(ValidJson) => SyntaxError {
                    message: "Too large".to_owned(),
                    span: Span::new(0, text.len()),
                    help: TOO_MANY_HELP.into(),
                },
                Err(error) => {
                    // To `jsonc-parser` such characters are white space.
                    let error = serde_error(text, &error);
                    slips::foreign_character(text, &error).unwrap_or(error)
                }
            }),
        )
    }

    /// Returns the node at `path`.
    pub fn node(&self, path: &JsonPath) -> Option<&Node> {
        path.0.iter().try_fold(&self.root, child)
    }

    /// Returns the span of the value at `path`, or of the deepest existing value on the way there.
    pub fn value_span(&self, path: &JsonPath) -> Span {
        let mut node = &self.root;
        for step in &path.0 {
            match child(node, step) {
                Some(next) => node = next,
                None => break,
            }
        }
        node.span
    }

    /// Returns the span of the member's key at `path`; the span of the value if it is not a member.
    pub fn key_span(&self, path: &JsonPath) -> Span {
        let member = path
            .parent()
            .and_then(|(parent, last)| self.node(&parent)?.member(last.as_key()?));
        member.map_or_else(|| self.value_span(path), |member| member.key_span)
    }
}

fn child<'n>(node: &'n Node, step: &Step) -> Option<&'n Node> {
    match step {
        Step::Key(key) => node.get(key),
        Step::Index(index) => node.elements().get(*index),
    }
}

impl JsonPath {
    /// Returns the path to the root.
    pub fn root() -> Self {
        Self::default()
    }

    /// Returns this path extended by a member's key.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.then(Step::Key(key.into()))
    }

    /// Returns this path extended by an element's index.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    /// Returns the steps from the root.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Splits the path into its parent and its last step; `None` for the root.
    pub fn parent(&self) -> Option<(Self, &Step)> {
        let (last, rest) = self.0.split_last()?;
        Some((Self(rest.to_vec()), last))
    }

    /// Returns whether this path is `other` or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// Returns the JSON Pointer, `""` for the root.
    pub fn to_pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.0 {
            pointer.push('/');
            match step {
                Step::Key(key) => pointer.push_str(&key.replace('~', "~0").replace('/', "~1")),
                Step::Index(index) => pointer.push_str(&index.to_string()),
            }
        }
        pointer
    }

    fn then(&self, step: Step) -> Self {
        let mut steps = Vec::with_capacity(self.0.len() + 1);
        steps.extend_from_slice(&self.0);
        steps.push(step);
        Self(steps)
    }
}

impl Step {
    fn as_key(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(key),
            Self::Index(_) => None,
        }
    }
}

impl FromIterator<Step> for JsonPath {
    fn from_iter<T: IntoIterator<Item = Step>>(steps: T) -> Self {
        Self(steps.into_iter().collect())
    }
}

/// Returns the error that `jsonc-parser` finds in a text, or the exceeded limit.
fn jsonc_error(text: &str) -> Option<SyntaxError> {
    let better = |error: SyntaxError| slips::name(text, &error).unwrap_or(error);
    let measured = parse_tree(text).map_err(better);
    measured.and_then(|tree| check_limits(&tree, &mut 0)).err()
}

fn parse_tree(text: &str) -> Result<ast::Value<'_>, SyntaxError> {
    let strict = jsonc_parser::ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed =
        jsonc_parser::parse_to_ast(text, &jsonc_parser::CollectOptions::default(), &strict)
            .map_err(|error| SyntaxError {
                message: match error.kind() {
                    ParseErrorKind::NestingDepthExceeded => too_deep(),
                    kind => kind.to_string(),
                },
                span: Span::new(error.range().start, error.range().end),
                help: advice(error.kind()).into(),
            })?;
    parsed.value.ok_or_else(|| SyntaxError {
        message: "Expected a JSON value, found only white space".to_owned(),
        span: Span::new(0, text.len()),
        help: RULES_OF_JSON.into(),
    })
}

/// Rejects values that exceed the limits.
fn check_limits(value: &ast::Value<'_>, values: &mut usize) -> Result<(), SyntaxError> {
    *values += 1;
    if *values > MAX_VALUES {
        let range = value.range();
        return Err(SyntaxError {
            message: format!("Too many values: more than {MAX_VALUES}"),
            span: Span::new(range.start, range.end),
            help: TOO_MANY_HELP.into(),
        });
    }
    match value {
        ast::Value::Array(array) => array
            .elements
            .iter()
            .try_for_each(|e| check_limits(e, values)),
        ast::Value::Object(object) => object.properties.iter().try_for_each(|property| {
            let length = property.name.as_str().len();
            if length > MAX_KEY_BYTES {
                let range = property.name.range();
                return Err(SyntaxError {
                    message: format!(
                        "Too long a key: {length} bytes, the limit is {MAX_KEY_BYTES}"
                    ),
                    span: Span::new(range.start, range.end),
                    help: "shorten it".into(),
                });
            }
            check_limits(&property.value, values)
        }),
        _ => Ok(()),
    }
}

fn too_deep() -> String {
    format!("Too deeply nested: more than {MAX_DEPTH} levels")
}

fn advice(kind: &ParseErrorKind) -> &'static str {
    match kind {
        ParseErrorKind::CommentsNotAllowed => "JSON has no comments: delete it",
        ParseErrorKind::TrailingCommasNotAllowed => "delete the comma after the last one",
        ParseErrorKind::SingleQuotedStringsNotAllowed => "write double quotes",
        ParseErrorKind::ExpectedComma => "write `,` between two members or elements",
        ParseErrorKind::String(_) => advice_on_string(&kind.to_string()),
        ParseErrorKind::UnterminatedArray | ParseErrorKind::UnterminatedObject => {
            "its closing bracket is missing: is the file cut off?"
        }
        ParseErrorKind::MultipleRootJsonValues => "the file holds one value; delete what follows",
        ParseErrorKind::NestingDepthExceeded => DEPTH_HELP,
        _ => RULES_OF_JSON,
    }
}

fn advice_on_string(message: &str) -> &'static str {
    if message.starts_with("Unterminated") {
        "a string ends with a double quote on the line where it begins"
    } else {
        r#"escapes are \" \\ \/ \b \f \n \r \t and \u with 4 hex digits, surrogates in pairs"#
    }
}

fn serde_error(text: &str, error: &serde_json::Error) -> SyntaxError {
    let line = LineIndex::new(text).line_start(error.line().saturating_sub(1));
    let at = (line + error.column().saturating_sub(1)).min(text.len());
    let full = error.to_string();
    let message = full.split(" at line ").next().unwrap_or(&full);
    let mut letters = message.chars();
    let message = letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    });
    if error.classify() == Category::Syntax && full.starts_with("recursion limit") {
        return SyntaxError {
            message: too_deep(),
            span: Span::new(at, (at + 1).min(text.len())),
            help: DEPTH_HELP.into(),
        };
    }
    SyntaxError {
        help: Cow::Borrowed(match message.as_str() {
            "Number out of range" => "write a number that fits 64 bits",
            control if control.starts_with("Control character") => {
                r"escape it: \t, \n, or \u with 4 hex digits"
            }
            _ => RULES_OF_JSON,
        }),
        message,
        span: Span::new(at, (at + 1).min(text.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"a": [1, {"b/~": "x"}], "a": null, "c": [10.0, -1]}"#;

    fn text_at(span: Span) -> &'static str {
        &TEXT[span.start..span.end]
    }

    #[test]
    fn paths_lead_to_spans() {
        let document = Document::parse(TEXT).expect("JSON");
        let c = JsonPath::root().key("c");
        assert!(document.repeats);
        assert_eq!(text_at(document.key_span(&c)), "\"c\"");
        assert_eq!(text_at(document.value_span(&c.index(1))), "-1");
        assert_eq!(
            text_at(document.value_span(&c.index(7).key("x"))),
            "[10.0, -1]",
            "the deepest that exists"
        );
        assert_eq!(
            document.node(&c.index(0)).and_then(Node::as_i64),
            Some(10),
            "a whole float is an integer"
        );
        let huge = Document::parse("[-1e99, 99999999999999999999, 1.5]").expect("JSON");
        let huge: Vec<_> = huge.root.elements().iter().map(Node::as_i64).collect();
        assert_eq!(huge, [Some(i64::MIN), Some(i64::MAX), None]);
        let a = document.root.get("a").expect("a");
        assert!(a.is_null(), "the last of repeated keys");
        assert_eq!(document.root.members().len(), 3);
        assert_eq!(
            JsonPath::root().key("b/~").index(0).to_pointer(),
            "/b~1~0/0"
        );
    }

    #[test]
    fn leniencies_are_off() {
        for bad in [
            "",
            " ",
            "{",
            "[1,]",
            "{a:1}",
            "'a'",
            "// c\n1",
            "0x1",
            "+1",
            ".5",
            "5.",
            "NaN",
            "01",
            "1 2",
            "[1 2]",
            "\"\\x41\"",
            "\"\n\"",
            "1e999",
            "\"\\ud800\"",
            "tru",
            "{\"a\" 1}",
            "{\"a\":1,}",
            "\u{feff}1",
            "-",
            "\u{a0}1",
            "\u{2028}1",
        ] {
            let error = Document::parse(bad).expect_err(bad);
            assert!(error.span.end <= bad.len(), "{bad:?}: {error:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        Document::parse(&nested(MAX_DEPTH)).expect("as deep as allowed");
        for depth in [MAX_DEPTH + 1, 5000, 1_000_000] {
            Document::parse(&nested(depth)).expect_err("too deep");
            Document::parse(&"[{\"a\":".repeat(depth)).expect_err("too deep and open");
        }
    }
}
