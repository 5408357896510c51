//! Checks a JSON value against a JSON Schema and collects one fault per violated keyword.
//!
//! Invariant: the faults are in the order that the merging of faults in the parent module relies
//! on: `allOf` and references, then the size, then missing keys, then members, then unknown keys.

use super::keywords::{AdditionalProperties, Format, Schema, Type};
use super::uri::is_uri;
use pkgtool_base::source::json::{Kind, Member, Node, Step};
use pkgtool_base::source::{Document, JsonPath, Members};

/// Maximum length of an array whose elements are compared pairwise.
const MAX_PAIRWISE_ELEMENTS: usize = 16;

/// A violated keyword.
pub(super) struct Fault<'a> {
    /// The path of the value.
    pub(super) path: JsonPath,
    /// The value.
    pub(super) value: &'a Node,
    /// The expectation that the value violates.
    pub(super) expected: Expectation<'a>,
    /// The schema that contains the keyword.
    pub(super) schema: &'static Schema,
}

/// The expectation of a keyword.
pub(super) enum Expectation<'a> {
    /// A different value.
    Value(ExpectedValue),
    /// Unique elements. For a long array it is not yet known whether an element is repeated.
    Unique,
    /// A member with this key.
    Key(&'static str),
    /// Only the keys that the schema lists, not these.
    Known {
        unknown: Vec<&'a str>,
        schema: &'static Schema,
    },
}

/// The expectation for a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum ExpectedValue {
    /// One of these types.
    Type(&'static [Type]),
    /// One of these words.
    OneOf(&'static [String]),
    /// Only the characters allowed in a token.
    Token,
    /// A URI.
    Uri,
    /// A non-empty string.
    Text,
    /// At least this number of elements.
    Items(usize),
    /// At least this number of members.
    Members(usize),
    /// At least this number.
    AtLeast(u32),
}

/// Returns whether a value satisfies the schema.
pub(super) fn is_valid(schema: &'static Schema, value: &serde_json::Value) -> bool {
    let parsed = Document::parse(&value.to_string());
    parsed.is_ok_and(|document| faults(schema, &document.root).is_empty())
}

/// Returns the faults of a value.
pub(super) fn faults<'a>(schema: &'static Schema, value: &'a Node) -> Vec<Fault<'a>> {
    let mut faults = Vec::new();
    check(schema, value, &Location::Root, &mut |fault| {
        faults.push(fault);
    });
    faults
}

/// A location in a value, converted to a path only for a fault.
enum Location<'p> {
    Root,
    Key(&'p Location<'p>, &'p str),
    Index(&'p Location<'p>, usize),
}

impl Location<'_> {
    fn path(&self) -> JsonPath {
        let mut steps = Vec::new();
        let mut place = self;
        loop {
            place = match place {
                Location::Root => break,
                Location::Key(parent, key) => {
                    steps.push(Step::Key((*key).into()));
                    parent
                }
                Location::Index(parent, index) => {
                    steps.push(Step::Index(*index));
                    parent
                }
            };
        }
        steps.into_iter().rev().collect()
    }
}

fn check<'a>(
    schema: &'static Schema,
    value: &'a Node,
    place: &Location<'_>,
    report: &mut dyn FnMut(Fault<'a>),
) {
    if let Some(options) = &schema.options {
        let is_one = |text: &str| options.iter().any(|option| option == text);
        if !value.as_str().is_some_and(is_one) {
            report(fault(
                schema,
                value,
                place,
                Expectation::Value(ExpectedValue::OneOf(options)),
            ));
        }
    }
    for one in &schema.all {
        check(one, value, place, report);
    }
    if let Some(condition) = &schema.condition {
        let mut holds = true;
        // The location is irrelevant in a condition, so no path is built.
        check(&condition.when, value, &Location::Root, &mut |_| {
            holds = false;
        });
        let branch = if holds {
            &condition.then
        } else {
            &condition.otherwise
        };
        check(branch, value, place, report);
    }
    if !schema.types.is_empty() && !schema.types.iter().any(|one| one.is_of(value)) {
        report(fault(
            schema,
            value,
            place,
            Expectation::Value(ExpectedValue::Type(&schema.types)),
        ));
        return;
    }
    let broken = match &value.kind {
        Kind::String(text) => text_fault(schema, text),
        Kind::Number(_) => {
            let limit = schema.minimum.filter(|limit| is_below(value, *limit));
            limit.map(ExpectedValue::AtLeast)
        }
        Kind::Array(elements) => {
            check_array(schema, value, elements, place, report);
            None
        }
        Kind::Object(members) => {
            check_object(schema, value, members, place, report);
            None
        }
        Kind::Null | Kind::Bool(_) => None,
    };
    if let Some(wanted) = broken {
        report(fault(schema, value, place, Expectation::Value(wanted)));
    }
}

fn fault<'a>(
    schema: &'static Schema,
    value: &'a Node,
    place: &Location<'_>,
    expected: Expectation<'a>,
) -> Fault<'a> {
    Fault {
        path: place.path(),
        value,
        expected,
        schema,
    }
}

/// Returns the first keyword that a text violates; each value gets at most one fault.
fn text_fault(schema: &'static Schema, text: &str) -> Option<ExpectedValue> {
    if text.chars().take(schema.min_length).count() < schema.min_length {
        return Some(ExpectedValue::Text);
    }
    if schema
        .pattern
        .as_ref()
        .is_some_and(|pattern| !pattern.fits(text))
    {
        return Some(ExpectedValue::Token);
    }
    match schema.format {
        Some(Format::Uri) if !is_uri(text) => Some(ExpectedValue::Uri),
        _ => None,
    }
}

fn is_below(value: &Node, limit: u32) -> bool {
    let Some(number) = value.as_number() else {
        return false;
    };
    match number.as_u64() {
        Some(number) => number < u64::from(limit),
        None => {
            number.is_i64()
                || number
                    .as_f64()
                    .is_some_and(|number| number < f64::from(limit))
        }
    }
}

fn check_array<'a>(
    schema: &'static Schema,
    value: &'a Node,
    elements: &'a [Node],
    place: &Location<'_>,
    report: &mut dyn FnMut(Fault<'a>),
) {
    if elements.len() < schema.min_items {
        report(fault(
            schema,
            value,
            place,
            Expectation::Value(ExpectedValue::Items(schema.min_items)),
        ));
    }
    if schema.unique && may_repeat(elements) {
        report(fault(schema, value, place, Expectation::Unique));
    }
    if let Some(items) = &schema.items {
        for (index, element) in elements.iter().enumerate() {
            check(items, element, &Location::Index(place, index), report);
        }
    }
}

/// Returns whether an element may be repeated: compared for a short array, assumed for a long one.
fn may_repeat(elements: &[Node]) -> bool {
    let earlier = |(index, element): (usize, &Node)| {
        let mut before = elements[..index].iter();
        before.any(|other| is_same(element, other))
    };
    elements.len() > MAX_PAIRWISE_ELEMENTS || elements.iter().enumerate().any(earlier)
}

/// Returns whether two values are equal.
fn is_same(one: &Node, other: &Node) -> bool {
    match (&one.kind, &other.kind) {
        (Kind::String(one), Kind::String(other)) => one == other,
        _ => one.to_value() == other.to_value(),
    }
}

fn check_object<'a>(
    schema: &'static Schema,
    value: &'a Node,
    members: &'a Members,
    place: &Location<'_>,
    report: &mut dyn FnMut(Fault<'a>),
) {
    if schema.min_properties > 0 && members.effective().count() < schema.min_properties {
        report(fault(
            schema,
            value,
            place,
            Expectation::Value(ExpectedValue::Members(schema.min_properties)),
        ));
    }
    for key in &schema.required {
        if members.last(key).is_none() {
            report(fault(schema, value, place, Expectation::Key(key)));
        }
    }
    let rest = match &schema.others {
        AdditionalProperties::Each(schema) => Some(&**schema),
        // The schema places no requirement on members.
        AdditionalProperties::Any if schema.properties.is_empty() => return,
        AdditionalProperties::Any | AdditionalProperties::None => None,
    };
    let mut unknown = Vec::new();
    for Member { key, value, .. } in members.effective() {
        match schema.properties.get(key.as_str()).or(rest) {
            Some(schema) => check(schema, value, &Location::Key(place, key), report),
            None if matches!(schema.others, AdditionalProperties::None) => {
                unknown.push(key.as_str());
            }
            None => {}
        }
    }
    if !unknown.is_empty() {
        report(fault(
            schema,
            value,
            place,
            Expectation::Known { unknown, schema },
        ));
    }
}
