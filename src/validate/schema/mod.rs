//! The schema stage: JSON Schema violations, one for each fault of the author.
//!
//! A validator reports what each keyword sees; an author made one slip. So violations are merged:
//! one a value; an unknown key that is nearly a missing one is a typing error; what a rule of its
//! own explains better (`variant-file-xor-components`, `methods-nesting`, `legacy-field`,
//! `placeholder`) is left to that rule.

mod generated;
mod message;
mod synonyms;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::{Location, LocationSegment};
use serde_json::{Map, Value};

use crate::diagnostic::Anchor;
use crate::package::leftover::{is_legacy_field, is_placeholder};
use crate::package::{Config, Methods};
use crate::source::json::Step;
use crate::source::suggest;
use crate::source::{Document, JsonPath, PathSet};

/// The schema of configs, JSON Schema 2020-12.
pub const CONFIG_SCHEMA: &str = include_str!("../../../schemas/config.schema.json");
/// The schema of precision lists, JSON Schema 2020-12.
pub const PRECISIONS_SCHEMA: &str = include_str!("../../../schemas/precisions.schema.json");

static CONFIG_VALUE: LazyLock<Value> = LazyLock::new(|| schema_value(CONFIG_SCHEMA));
static PRECISIONS_VALUE: LazyLock<Value> = LazyLock::new(|| schema_value(PRECISIONS_SCHEMA));

/// Most faults that are looked into: far more than are reported, far fewer than a hostile file of
/// allowed size can have.
const MAX_FAULTS: usize = 20_000;

/// Definitions of the config schema whose violations other rules report.
const LEFT_TO_RULES: &str = "/$defs/fileOrComponents/";

/// A fault against the schema.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    /// The value, or the member whose key is at fault.
    pub(super) path: JsonPath,
    /// Where to point.
    pub(super) anchor: Anchor,
    /// What was expected and found.
    pub(super) message: String,
    /// What to do.
    pub(super) help: Option<String>,
}

/// What one keyword saw, still close to the validator's words.
enum Raw {
    /// A value is not as it should be.
    Value {
        path: JsonPath,
        message: String,
        help: Option<String>,
    },
    /// An object has a key that it may not have.
    UnknownKey {
        object: JsonPath,
        key: String,
        allowed: Option<&'static Map<String, Value>>,
    },
    /// An object lacks keys.
    MissingKeys { object: JsonPath, keys: Vec<String> },
}

/// Faults of a config, in the validator's order.
pub(super) fn check_config(document: &Document, config: &Config) -> Vec<Violation> {
    let errors = generated::Config::iter_errors(&document.value);
    let errors = errors.filter(|error| !error.schema_path().as_str().starts_with(LEFT_TO_RULES));
    let raw = errors.flat_map(|error| read(&error, document, &CONFIG_VALUE));
    let misnested = config.variants.iter().flat_map(wrong_shapes).cloned();
    let misnested: PathSet = misnested.collect();
    let raw = raw.filter(|raw| !misnested.covers(&raw.path()) && !belongs_to_a_rule(raw, document));
    merge(raw.take(MAX_FAULTS).collect())
}

/// Faults of a precision list, in the validator's order.
pub(super) fn check_precisions(document: &Document) -> Vec<Violation> {
    let errors = generated::Precisions::iter_errors(&document.value);
    let raw = errors.flat_map(|error| read(&error, document, &PRECISIONS_VALUE));
    merge(raw.take(MAX_FAULTS).collect())
}

/// The parts of a variant's `methods` that `methods-nesting` reports, or that can't be judged
/// because the variant has both a file and components.
fn wrong_shapes(variant: &crate::package::Variant) -> &[JsonPath] {
    match &variant.methods {
        Methods::Absent => &[],
        Methods::Declared { misnested, .. } => misnested,
    }
}

fn belongs_to_a_rule(raw: &Raw, document: &Document) -> bool {
    let path = raw.path();
    let in_placeholder = |step: &Step| matches!(step, Step::Key(key) if is_placeholder(key));
    if path.steps().iter().any(in_placeholder) {
        return true;
    }
    match raw {
        Raw::UnknownKey { object, key, .. } => is_legacy_field(object, key),
        Raw::Value { path, .. } => {
            let text = document.node(path).and_then(|node| node.as_str());
            text.is_some_and(is_placeholder)
        }
        Raw::MissingKeys { .. } => false,
    }
}

fn read(error: &ValidationError<'_>, document: &Document, schema: &'static Value) -> Vec<Raw> {
    let path = to_path(error.instance_path(), document);
    match error.kind() {
        ValidationErrorKind::Required { property } => vec![Raw::MissingKeys {
            object: path,
            keys: vec![property.as_str().unwrap_or_default().to_owned()],
        }],
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let allowed = allowed_keys(error.schema_path().as_str(), schema);
            let unknown = unexpected
                .iter()
                .take(MAX_FAULTS)
                .map(|key| Raw::UnknownKey {
                    object: path.clone(),
                    key: key.clone(),
                    allowed,
                });
            unknown.collect()
        }
        ValidationErrorKind::UniqueItems => repeated(&path, document),
        _ => {
            let (message, help) = message::describe(error, document.node(&path), &path);
            vec![Raw::Value {
                path,
                message,
                help,
            }]
        }
    }
}

/// One fault for each element that stands earlier in the array already.
fn repeated(path: &JsonPath, document: &Document) -> Vec<Raw> {
    let pointer = path.to_pointer();
    let items = document.value.pointer(&pointer).and_then(Value::as_array);
    let mut seen = HashSet::new();
    let items = items.into_iter().flatten().enumerate();
    items
        .filter(|(_, item)| !seen.insert(item.to_string()))
        .map(|(i, item)| Raw::Value {
            path: path.index(i),
            message: format!("{item} is already in the list"),
            help: Some("remove the repetition".to_owned()),
        })
        .collect()
}

fn merge(raw: Vec<Raw>) -> Vec<Violation> {
    let missing = missing_keys(&raw);
    let mut typos: HashSet<(JsonPath, String)> = HashSet::new();
    for one in &raw {
        if let Raw::UnknownKey { object, key, .. } = one {
            let missing = missing.get(object).into_iter().flatten().copied();
            if let Some(meant) = suggest::nearest(key, missing) {
                typos.insert((object.clone(), meant.to_owned()));
            }
        }
    }
    let mut seen = HashSet::new();
    // What one object lacks is one fault, where the first of its keys was missed.
    let mut lacking: HashMap<JsonPath, usize> = HashMap::new();
    let mut merged: Vec<Raw> = Vec::new();
    for one in raw {
        match one {
            Raw::MissingKeys { object, keys } => {
                let is_typo = |key: &String| typos.contains(&(object.clone(), key.clone()));
                let keys: Vec<String> = keys.into_iter().filter(|key| !is_typo(key)).collect();
                if keys.is_empty() {
                    continue;
                }
                let at = *lacking.entry(object.clone()).or_insert(merged.len());
                match merged.get_mut(at) {
                    Some(Raw::MissingKeys { keys: known, .. }) => known.extend(keys),
                    _ => merged.push(Raw::MissingKeys { object, keys }),
                }
            }
            Raw::Value { ref path, .. } if !seen.insert(path.clone()) => {}
            other => merged.push(other),
        }
    }
    merged.into_iter().map(Raw::into_violation).collect()
}

/// The missing keys of each object that lacks any.
fn missing_keys(raw: &[Raw]) -> HashMap<&JsonPath, Vec<&str>> {
    let mut missing: HashMap<&JsonPath, Vec<&str>> = HashMap::new();
    for one in raw {
        if let Raw::MissingKeys { object, keys } = one {
            let known = missing.entry(object).or_default();
            known.extend(keys.iter().map(String::as_str));
        }
    }
    missing
}

impl Raw {
    fn path(&self) -> JsonPath {
        match self {
            Self::Value { path, .. } => path.clone(),
            Self::UnknownKey { object, key, .. } => object.key(key),
            Self::MissingKeys { object, .. } => object.clone(),
        }
    }

    fn into_violation(self) -> Violation {
        let path = self.path();
        match self {
            Self::Value { message, help, .. } => Violation {
                anchor: Anchor::Value(path.clone()),
                path,
                message,
                help,
            },
            Self::UnknownKey { key, allowed, .. } => Violation {
                anchor: Anchor::Key(path.clone()),
                path,
                message: format!("unknown key `{key}`"),
                help: Some(message::unknown_key_help(&key, &names(allowed))),
            },
            Self::MissingKeys { object, keys } => Violation {
                anchor: Anchor::Value(path.clone()),
                path,
                message: message::missing_keys(&object, &keys),
                help: Some(message::missing_keys_help(&keys)),
            },
        }
    }
}

fn to_path(location: &Location, document: &Document) -> JsonPath {
    let mut node = Some(&document.value);
    let mut steps = Vec::new();
    for segment in location {
        let step = match segment {
            LocationSegment::Index(index) => Step::Index(index),
            LocationSegment::Property(key) => match (node, key.parse()) {
                // A location that was made from text does not tell "0" from 0.
                (Some(Value::Array(_)), Ok(index)) => Step::Index(index),
                _ => Step::Key(key.as_ref().into()),
            },
        };
        node = node.and_then(|node| match &step {
            Step::Key(key) => node.get(&**key),
            Step::Index(index) => node.get(index),
        });
        steps.push(step);
    }
    steps.into_iter().collect()
}

/// The properties that the schema at an `additionalProperties` location lists beside it.
fn allowed_keys(schema_path: &str, schema: &'static Value) -> Option<&'static Map<String, Value>> {
    let object = schema_path.strip_suffix("/additionalProperties")?;
    schema.pointer(&format!("{object}/properties"))?.as_object()
}

fn names(properties: Option<&Map<String, Value>>) -> Vec<&str> {
    let keys = properties.into_iter().flat_map(Map::keys);
    keys.map(String::as_str).collect()
}

fn schema_value(text: &str) -> Value {
    serde_json::from_str(text).expect("the embedded schema is JSON")
}
