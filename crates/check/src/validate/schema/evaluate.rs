//! Evaluates a JSON Schema by the library `jsonschema`, and turns its errors into faults.
//!
//! Invariant: nothing is fetched, patterns take linear time, and faults are in the order of the
//! document. Of one value, the most basic fault is first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{Draft, PatternOptions, Registry, ValidationError, Validator};
use serde_json::{Value, json};

use super::short;
use super::tree::SchemaTree;
use super::uri::is_uri;
use pkgtool_base::source::json::{self, Node};
use pkgtool_base::source::{Document, JsonPath};

/// The name of every schema while it is compiled. Its own `$id` is not used.
const SCHEMA_NAME: &str = "urn:pkgtool:schema";
/// The pattern of tokens in the schemas of this repository.
const TOKEN_PATTERN: &str = "^[a-z0-9_]+$";
/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 64 * 1024;

/// A schema and its compiled form.
#[derive(Debug)]
pub(super) struct Schema {
    value: Value,
    validator: Validator<SchemaTree>,
    /// Validators of parts of the schema, by JSON pointer; `None` for an unusable part.
    parts: Mutex<HashMap<String, Option<Arc<Validator<SchemaTree>>>>>,
}

/// A violated keyword.
pub(super) struct KeywordFault<'a> {
    /// The path of the value.
    pub(super) path: JsonPath,
    /// The value.
    pub(super) value: &'a Node,
    /// The expectation that the value violates.
    pub(super) expected: Expectation<'a>,
    /// The JSON pointer of the schema that contains the keyword.
    pub(super) part: String,
}

/// The expectation of a keyword.
pub(super) enum Expectation<'a> {
    /// A different value.
    Value(ExpectedValue<'a>),
    /// Unique elements.
    Unique,
    /// A member with this key.
    Key(String),
    /// Only the keys that the schema lists, not these.
    Known {
        unknown: Vec<String>,
        allowed: Vec<&'a str>,
    },
}

/// The expectation for a value, the most basic one first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ExpectedValue<'a> {
    /// One of these words.
    OneOf(Vec<&'a str>),
    /// One of these types, as JSON Schema names them.
    Type(Vec<&'a str>),
    /// A non-empty string.
    Text,
    /// Only the characters allowed in a token.
    Token,
    /// A URI.
    Uri,
    /// At least this size, in bytes.
    Size(u64),
    /// At least this number of elements.
    Items(u64),
    /// At least this number of members.
    Members(u64),
    /// Something else, as the library words it.
    Other(String),
}

impl Schema {
    /// Compiles a schema whose form is known to be right.
    pub(super) fn new(mut value: Value) -> Result<Self, ValidationError<'static>> {
        if let Value::Object(keywords) = &mut value {
            keywords.remove("$id");
        }
        Ok(Self {
            validator: compiled(&value, "")?,
            value,
            parts: Mutex::default(),
        })
    }

    /// Returns whether the part of the schema at a JSON pointer accepts a value.
    pub(super) fn accepts(&self, part: &str, value: &Value) -> bool {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let compile = || compiled(&self.value, part).ok().map(Arc::new);
        let validator = parts.entry(part.to_owned()).or_insert_with(compile).clone();
        drop(parts);
        let parsed = Document::parse(&value.to_string());
        validator.is_some_and(|it| parsed.is_ok_and(|document| it.is_valid(&document.root)))
    }

    /// Returns the words that the `enum` at a JSON pointer lists; empty for anything else.
    pub(super) fn words(&self, pointer: &str) -> Vec<&str> {
        self.value
            .pointer(pointer)
            .and_then(strings)
            .unwrap_or_default()
    }

    /// Returns the faults of a document, at most one `Expectation::Value` for each value.
    pub(super) fn faults<'a>(&'a self, root: &'a Node) -> Vec<KeywordFault<'a>> {
        if self.validator.is_valid(root) {
            return Vec::new();
        }
        let errors = self.validator.iter_errors(root);
        let mut faults: Vec<KeywordFault<'_>> =
            errors.map(|error| self.fault(&error, root)).collect();
        faults.sort_by(|one, other| {
            let start = |fault: &KeywordFault<'_>| fault.value.span.start;
            let order = start(one).cmp(&start(other));
            order.then_with(|| one.expected.order(&other.expected))
        });
        faults.dedup_by(|next, kept| {
            let are_values = matches!(
                (&next.expected, &kept.expected),
                (Expectation::Value(_), Expectation::Value(_))
            );
            are_values && std::ptr::eq(next.value, kept.value)
        });
        faults
    }

    fn fault<'a>(&'a self, error: &ValidationError<'_>, root: &'a Node) -> KeywordFault<'a> {
        let (path, value) = follow(root, error.instance_path().as_str());
        let keyword = error.schema_path().as_str();
        let part = keyword.rsplit_once('/').map_or("", |(part, _)| part);
        let schema = self.value.pointer(part).unwrap_or(&self.value);
        let other = || ExpectedValue::Other(describe(error, value));
        let expected = match error.kind() {
            Kind::AdditionalProperties { unexpected } => Expectation::Known {
                unknown: unexpected.clone(),
                allowed: keys(schema),
            },
            Kind::Required { property } => {
                Expectation::Key(property.as_str().unwrap_or_default().to_owned())
            }
            Kind::UniqueItems => Expectation::Unique,
            kind => Expectation::Value(expected_value(kind, schema, &path).unwrap_or_else(other)),
        };
        KeywordFault {
            path,
            value,
            expected,
            part: part.to_owned(),
        }
    }
}

impl Expectation<'_> {
    /// Compares by how basic the expectations are.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |one: &Self| match one {
            Self::Value(_) => 0,
            Self::Unique => 1,
            Self::Key(_) => 2,
            Self::Known { .. } => 3,
        };
        match (self, other) {
            (Self::Value(one), Self::Value(other)) => one.cmp(other),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

/// Compiles the part of a schema at a JSON pointer.
///
/// The library validates the schema that it is given against its draft's meta-schema, whose own
/// compilation takes several times as long as that of ours. It is given only a reference, of the
/// draft with the smallest meta-schema; the target is of draft 2020-12.
fn compiled(schema: &Value, part: &str) -> Result<Validator<SchemaTree>, ValidationError<'static>> {
    let resource = Draft::Draft202012.create_resource_ref(schema);
    let registry = Registry::new().draft(Draft::Draft202012);
    let registry = registry.add(SCHEMA_NAME, resource)?.prepare()?;
    jsonschema::options_for::<SchemaTree>()
        .with_draft(Draft::Draft4)
        .with_registry(&registry)
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
        .should_validate_formats(true)
        .with_format("uri", is_uri)
        .build(&json!({ "$ref": format!("{SCHEMA_NAME}#{part}") }))
}

/// Returns the expectation of a keyword, if its violation has a message of its own.
fn expected_value<'a>(
    kind: &Kind,
    schema: &'a Value,
    path: &JsonPath,
) -> Option<ExpectedValue<'a>> {
    let is_size = || matches!(path.steps(), [.., json::Step::Key(key)] if &**key == "size_bytes");
    Some(match kind {
        Kind::Enum { .. } => ExpectedValue::OneOf(strings(&schema["enum"])?),
        Kind::Type { .. } => {
            let mut types = strings(&schema["type"])?;
            types.sort_unstable();
            ExpectedValue::Type(types)
        }
        Kind::MinLength { limit: 1 } => ExpectedValue::Text,
        Kind::Pattern { pattern } if pattern == TOKEN_PATTERN => ExpectedValue::Token,
        Kind::Format { format } if format == "uri" => ExpectedValue::Uri,
        Kind::Minimum { limit } if is_size() => ExpectedValue::Size(limit.as_u64()?),
        Kind::MinItems { limit } => ExpectedValue::Items(*limit),
        Kind::MinProperties { limit } => ExpectedValue::Members(*limit),
        _ => return None,
    })
}

/// Returns one string or an array of strings as a list.
fn strings(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(one) => Some(vec![one]),
        several => several.as_array()?.iter().map(Value::as_str).collect(),
    }
}

/// Returns the keys that a schema lists, in order.
fn keys(schema: &Value) -> Vec<&str> {
    let keys = schema["properties"].as_object().into_iter().flatten();
    let mut keys: Vec<&str> = keys.map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    keys
}

/// Returns the node at a JSON pointer, or the deepest existing one on the way there.
fn follow<'a>(root: &'a Node, pointer: &str) -> (JsonPath, &'a Node) {
    let mut found = (JsonPath::root(), root);
    for step in pointer.split('/').skip(1) {
        let (path, node) = &found;
        let next = if node.is_object() {
            let key = step.replace("~1", "/").replace("~0", "~");
            node.get(&key).map(|value| (path.key(&key), value))
        } else {
            let index = step.parse().ok();
            index.and_then(|index| Some((path.index(index), node.elements().get(index)?)))
        };
        match next {
            Some(next) => found = next,
            None => break,
        }
    }
    found
}

/// Describes the violation of a keyword that has no message of its own.
fn describe(error: &ValidationError<'_>, value: &Node) -> String {
    let noun = match &value.kind {
        json::JsonValue::Array(_) => "the array".to_owned(),
        json::JsonValue::Object(_) => "the object".to_owned(),
        json::JsonValue::Number(written) => short::cut(written),
        _ => short::cut(&value.to_value().to_string()),
    };
    match error.kind() {
        Kind::Not { .. } => format!("{noun} satisfies a schema that `not` excludes"),
        Kind::FalseSchema => format!("{noun} is not allowed here"),
        _ => short::reason(&error.masked_with(noun)),
    }
}
