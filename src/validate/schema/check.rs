//! A value against a schema.
//!
//! Invariant: every keyword that does not hold is one fault, in the order in which the merging of
//! faults relies on them: what a value must be besides, then its size, then what it lacks, then its
//! parts, then the keys that it may not have.

use super::keywords::{Format, Others, Schema, Type};
use super::uri::is_uri;
use crate::source::json::{Kind, Member, Node, Step};
use crate::source::{Document, JsonPath, Members};

/// Longest array whose elements are compared each with each.
const COMPARED: usize = 16;

/// A keyword that does not hold.
pub(super) struct Fault<'a> {
    /// Where the value stands.
    pub(super) path: JsonPath,
    /// The value.
    pub(super) value: &'a Node,
    /// What it should have been.
    pub(super) expected: Expected<'a>,
    /// The schema that has the keyword.
    pub(super) schema: &'static Schema,
}

/// What a keyword asks for.
pub(super) enum Expected<'a> {
    /// The value itself should be another.
    Value(Wanted),
    /// No element twice; in a long array it is not known yet whether one is.
    Unique,
    /// A member of this key.
    Key(&'static str),
    /// None of these keys, but those that the schema lists.
    Known {
        unknown: Vec<&'a str>,
        schema: &'static Schema,
    },
}

/// What a value should be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// One of these types.
    Type(&'static [Type]),
    /// One of these words.
    OneOf(&'static [String]),
    /// Only characters of a token.
    Token,
    /// A URI.
    Uri,
    /// A string that is not empty.
    Text,
    /// At least so many elements.
    Items(usize),
    /// At least so many members.
    Members(usize),
    /// At least this.
    AtLeast(u32),
}

/// Whether a value has no fault.
pub(super) fn is_valid(schema: &'static Schema, value: &serde_json::Value) -> bool {
    let parsed = Document::parse(&value.to_string());
    parsed.is_ok_and(|document| faults(schema, &document.root).is_empty())
}

/// The faults of a value.
pub(super) fn faults<'a>(schema: &'static Schema, value: &'a Node) -> Vec<Fault<'a>> {
    let mut faults = Vec::new();
    check(schema, value, &Place::Root, &mut |fault| {
        faults.push(fault);
    });
    faults
}

/// A place in a value, made into a path only if there is a fault.
enum Place<'p> {
    Root,
    Key(&'p Place<'p>, &'p str),
    Index(&'p Place<'p>, usize),
}

impl Place<'_> {
    fn path(&self) -> JsonPath {
        let mut steps = Vec::new();
        let mut place = self;
        loop {
            place = match place {
                Place::Root => break,
                Place::Key(parent, key) => {
                    steps.push(Step::Key((*key).into()));
                    parent
                }
                Place::Index(parent, index) => {
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
    place: &Place<'_>,
    report: &mut dyn FnMut(Fault<'a>),
) {
    if let Some(options) = &schema.options {
        let is_one = |text: &str| options.iter().any(|option| option == text);
        if !value.as_str().is_some_and(is_one) {
            report(fault(
                schema,
                value,
                place,
                Expected::Value(Wanted::OneOf(options)),
            ));
        }
    }
    for one in &schema.all {
        check(one, value, place, report);
    }
    if let Some(condition) = &schema.condition {
        let mut holds = true;
        // Where it does not hold is nobody's concern, so no path is made.
        check(&condition.when, value, &Place::Root, &mut |_| holds = false);
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
            Expected::Value(Wanted::Type(&schema.types)),
        ));
        return;
    }
    let broken = match &value.kind {
        Kind::String(text) => text_fault(schema, text),
        Kind::Number(_) => {
            let limit = schema.minimum.filter(|limit| is_below(value, *limit));
            limit.map(Wanted::AtLeast)
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
        report(fault(schema, value, place, Expected::Value(wanted)));
    }
}

fn fault<'a>(
    schema: &'static Schema,
    value: &'a Node,
    place: &Place<'_>,
    expected: Expected<'a>,
) -> Fault<'a> {
    Fault {
        path: place.path(),
        value,
        expected,
        schema,
    }
}

/// The first keyword that a text does not hold: one fault a value is reported.
fn text_fault(schema: &'static Schema, text: &str) -> Option<Wanted> {
    if text.chars().take(schema.min_length).count() < schema.min_length {
        return Some(Wanted::Text);
    }
    if schema
        .pattern
        .as_ref()
        .is_some_and(|pattern| !pattern.fits(text))
    {
        return Some(Wanted::Token);
    }
    match schema.format {
        Some(Format::Uri) if !is_uri(text) => Some(Wanted::Uri),
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
    place: &Place<'_>,
    report: &mut dyn FnMut(Fault<'a>),
) {
    if elements.len() < schema.min_items {
        report(fault(
            schema,
            value,
            place,
            Expected::Value(Wanted::Items(schema.min_items)),
        ));
    }
    if schema.unique && may_repeat(elements) {
        report(fault(schema, value, place, Expected::Unique));
    }
    if let Some(items) = &schema.items {
        for (index, element) in elements.iter().enumerate() {
            check(items, element, &Place::Index(place, index), report);
        }
    }
}

/// Whether an element stands twice; of a long array it is only said that it may.
fn may_repeat(elements: &[Node]) -> bool {
    let earlier = |(index, element): (usize, &Node)| {
        let mut before = elements[..index].iter();
        before.any(|other| is_same(element, other))
    };
    elements.len() > COMPARED || elements.iter().enumerate().any(earlier)
}

/// Whether two values are equal.
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
    place: &Place<'_>,
    report: &mut dyn FnMut(Fault<'a>),
) {
    if schema.min_properties > 0 && members.effective().count() < schema.min_properties {
        report(fault(
            schema,
            value,
            place,
            Expected::Value(Wanted::Members(schema.min_properties)),
        ));
    }
    for key in &schema.required {
        if members.last(key).is_none() {
            report(fault(schema, value, place, Expected::Key(key)));
        }
    }
    let rest = match &schema.others {
        Others::Each(schema) => Some(&**schema),
        // Nothing is asked of any member.
        Others::Any if schema.properties.is_empty() => return,
        Others::Any | Others::None => None,
    };
    let mut unknown = Vec::new();
    for Member { key, value, .. } in members.effective() {
        match schema.properties.get(key.as_str()).or(rest) {
            Some(schema) => check(schema, value, &Place::Key(place, key), report),
            None if matches!(schema.others, Others::None) => unknown.push(key.as_str()),
            None => {}
        }
    }
    if !unknown.is_empty() {
        report(fault(
            schema,
            value,
            place,
            Expected::Known { unknown, schema },
        ));
    }
}
