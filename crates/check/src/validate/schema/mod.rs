//! The schema stage of validation: reports JSON Schema violations, one for each mistake of the
//! author.
//!
//! `check` reports each violated keyword, and this module merges the violations of one mistake.
//! Each value gets one violation. An unknown key that resembles a missing key is a typing error.
//! Mistakes that a dedicated rule explains better (`variant-file-xor-components`,
//! `methods-nesting`, `legacy-field`, `placeholder`) are left to that rule.

mod check;
mod keywords;
mod message;
mod remedy;
mod synonyms;
mod uri;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use check::{Expectation, Fault};
use keywords::Schema;

pub use uri::is_uri;

use super::mend::ValueChange;
use pkgtool_base::diagnostic::{Anchor, Applicability};
use pkgtool_base::package::leftover::{is_legacy_field, is_placeholder};
use pkgtool_base::package::{Config, Methods};
use pkgtool_base::source::json::{Node, Step};
use pkgtool_base::source::suggest;
use pkgtool_base::source::{Document, JsonPath, PathSet};

/// The schema of configs, JSON Schema 2020-12.
pub const CONFIG_SCHEMA: &str = include_str!("../../../../../schemas/config.schema.json");
/// The schema of precision lists, JSON Schema 2020-12.
pub const PRECISIONS_SCHEMA: &str = include_str!("../../../../../schemas/precisions.schema.json");

static CONFIG: LazyLock<Schema> = LazyLock::new(|| embedded(CONFIG_SCHEMA));
static PRECISIONS: LazyLock<Schema> = LazyLock::new(|| embedded(PRECISIONS_SCHEMA));

/// Maximum number of inspected faults: far more than are reported, and far fewer than a hostile
/// file of allowed size can have.
const MAX_FAULTS: usize = 20_000;

/// The definition in the config schema whose violations are reported by another rule.
const RULE_CHECKED_DEFINITION: &str = "fileOrComponents";

/// A violation of the schema.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    /// The value, or the member whose key is wrong.
    pub(super) path: JsonPath,
    /// The location to highlight.
    pub(super) anchor: Anchor,
    /// The expected and the found value.
    pub(super) message: String,
    /// The remedy.
    pub(super) help: Option<String>,
    /// The fix, and whether it is safe.
    pub(super) mend: Option<(Applicability, ValueChange)>,
}

/// Computes the `$schema` identifier for a config that has none; `None` if it is unknown.
pub(super) type SchemaIdOf<'a> = &'a dyn Fn() -> Option<String>;

/// A violation as a single keyword reports it, before merging.
enum RawViolation {
    /// A value is invalid.
    Value {
        path: JsonPath,
        message: String,
        help: Option<String>,
        mend: Option<(Applicability, ValueChange)>,
    },
    /// An object has a key that is not allowed.
    UnknownKey {
        object: JsonPath,
        key: String,
        /// The missing key that it resembles.
        meant: Option<String>,
        /// The remedy.
        help: String,
    },
    /// Keys are missing from an object.
    MissingKeys { object: JsonPath, keys: Vec<String> },
}

/// Returns the capabilities that correspond to a hub's name for a task; empty for an unknown name.
pub(super) fn capabilities_of(word: &str) -> Vec<&'static str> {
    let items = CONFIG
        .properties
        .get("capabilities")
        .and_then(|schema| schema.items.as_ref());
    let options = items
        .and_then(|items| items.options.as_deref())
        .unwrap_or_default();
    synonyms::known(
        word,
        &options.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

/// Returns the violations of a config, in the order of the validator.
pub(super) fn check_config(
    document: &Document,
    config: &Config,
    id: SchemaIdOf<'_>,
) -> Vec<Violation> {
    let faults = check::faults(&CONFIG, &document.root).into_iter();
    let raw = faults.flat_map(|fault| read(fault, id));
    let misnested = config.variants.iter().flat_map(wrong_shapes).cloned();
    let misnested: PathSet = misnested.collect();
    let raw = raw.filter(|raw| !misnested.covers(&raw.path()) && !belongs_to_a_rule(raw, document));
    merge(raw.take(MAX_FAULTS).collect(), id)
}

/// Returns the violations of a precision list, in the order of the validator.
pub(super) fn check_precisions(document: &Document) -> Vec<Violation> {
    let faults = check::faults(&PRECISIONS, &document.root).into_iter();
    let none = || None::<String>;
    let raw = faults.flat_map(|fault| read(fault, &none));
    merge(raw.take(MAX_FAULTS).collect(), &none)
}

/// Returns the parts of a variant's `methods` that the rule `methods-nesting` reports, or that
/// cannot be judged because the variant has both a file and components.
fn wrong_shapes(variant: &pkgtool_base::package::Variant) -> &[JsonPath] {
    match &variant.methods {
        Methods::Absent => &[],
        Methods::Declared { misnested, .. } => misnested,
    }
}

fn belongs_to_a_rule(raw: &RawViolation, document: &Document) -> bool {
    let path = raw.path();
    let in_placeholder = |step: &Step| matches!(step, Step::Key(key) if is_placeholder(key));
    if path.steps().iter().any(in_placeholder) {
        return true;
    }
    match raw {
        RawViolation::UnknownKey { object, key, .. } => is_legacy_field(object, key),
        RawViolation::Value { path, .. } => {
            let text = document.node(path).and_then(|node| node.as_str());
            text.is_some_and(is_placeholder)
        }
        RawViolation::MissingKeys { .. } => false,
    }
}

fn read(fault: Fault<'_>, id: SchemaIdOf<'_>) -> Vec<RawViolation> {
    let Fault {
        path,
        value,
        expected,
        schema: asked,
    } = fault;
    match expected {
        Expectation::Key(key) => vec![RawViolation::MissingKeys {
            object: path,
            keys: vec![key.to_owned()],
        }],
        Expectation::Known { unknown, schema } => {
            let unknown = unknown.into_iter().take(MAX_FAULTS);
            let unknown = unknown.map(|key| RawViolation::UnknownKey {
                object: path.clone(),
                key: key.to_owned(),
                meant: None,
                help: message::unknown_key_help(key, schema, value),
            });
            unknown.collect()
        }
        Expectation::Unique => repeated(&path, value),
        Expectation::Value(wanted) => {
            let plain = value.to_value();
            let found = message::FoundValue {
                value: &plain,
                node: value,
            };
            let (message, help) = message::describe(wanted, &found, &path, id);
            vec![RawViolation::Value {
                mend: remedy::of_value(wanted, asked, &plain, &path, id),
                path,
                message,
                help,
            }]
        }
    }
}

/// Returns one fault for each element that repeats an earlier one.
fn repeated(path: &JsonPath, list: &Node) -> Vec<RawViolation> {
    let mut seen = HashSet::new();
    let items = list
        .elements()
        .iter()
        .map(|item| item.to_value().to_string());
    items
        .enumerate()
        .filter(|(_, item)| !seen.insert(item.clone()))
        .map(|(i, item)| RawViolation::Value {
            path: path.index(i),
            message: format!("{item} is already in the list"),
            help: Some("remove the repeated element".to_owned()),
            mend: Some(remedy::of_repetition(&path.index(i))),
        })
        .collect()
}

fn merge(raw: Vec<RawViolation>, id: SchemaIdOf<'_>) -> Vec<Violation> {
    let missing = missing_keys(&raw);
    let mut typos: HashSet<(JsonPath, String)> = HashSet::new();
    let mut meanings: HashMap<usize, String> = HashMap::new();
    for (at, one) in raw.iter().enumerate() {
        if let RawViolation::UnknownKey { object, key, .. } = one {
            let missing = missing.get(object).into_iter().flatten().copied();
            if let Some(meant) = suggest::nearest(key, missing) {
                typos.insert((object.clone(), meant.to_owned()));
                meanings.insert(at, meant.to_owned());
            }
        }
    }
    let mut seen = HashSet::new();
    // Missing keys of one object are merged into one fault, at the position of the first.
    let mut lacking: HashMap<JsonPath, usize> = HashMap::new();
    let mut merged: Vec<RawViolation> = Vec::new();
    for (at, mut one) in raw.into_iter().enumerate() {
        if let RawViolation::UnknownKey { meant, .. } = &mut one {
            *meant = meanings.remove(&at);
        }
        match one {
            RawViolation::MissingKeys { object, keys } => {
                let is_typo = |key: &String| typos.contains(&(object.clone(), key.clone()));
                let keys: Vec<String> = keys.into_iter().filter(|key| !is_typo(key)).collect();
                if keys.is_empty() {
                    continue;
                }
                let at = *lacking.entry(object.clone()).or_insert(merged.len());
                match merged.get_mut(at) {
                    Some(RawViolation::MissingKeys { keys: known, .. }) => known.extend(keys),
                    _ => merged.push(RawViolation::MissingKeys { object, keys }),
                }
            }
            RawViolation::Value { ref path, .. } if !seen.insert(path.clone()) => {}
            other => merged.push(other),
        }
    }
    merged
        .into_iter()
        .map(|raw| raw.into_violation(id))
        .collect()
}

/// Returns the missing keys of each object.
fn missing_keys(raw: &[RawViolation]) -> HashMap<&JsonPath, Vec<&str>> {
    let mut missing: HashMap<&JsonPath, Vec<&str>> = HashMap::new();
    for one in raw {
        if let RawViolation::MissingKeys { object, keys } = one {
            let known = missing.entry(object).or_default();
            known.extend(keys.iter().map(String::as_str));
        }
    }
    missing
}

impl RawViolation {
    fn path(&self) -> JsonPath {
        match self {
            Self::Value { path, .. } => path.clone(),
            Self::UnknownKey { object, key, .. } => object.key(key),
            Self::MissingKeys { object, .. } => object.clone(),
        }
    }

    fn into_violation(self, id: SchemaIdOf<'_>) -> Violation {
        let path = self.path();
        match self {
            Self::Value {
                message,
                help,
                mend,
                ..
            } => Violation {
                anchor: Anchor::Value(path.clone()),
                path,
                message,
                help,
                mend,
            },
            Self::UnknownKey {
                key, meant, help, ..
            } => Violation {
                mend: meant.map(|meant| remedy::of_typo(path.clone(), &meant)),
                anchor: Anchor::Key(path.clone()),
                path,
                message: format!("unknown key `{key}`"),
                help: Some(help),
            },
            Self::MissingKeys { object, keys } => {
                let lacks_id = keys.iter().any(|key| key == "$schema");
                let id = lacks_id.then(id).flatten();
                Violation {
                    anchor: Anchor::Value(path.clone()),
                    path,
                    message: message::missing_keys(&object, &keys),
                    help: Some(message::missing_keys_help(&keys, id.as_deref())),
                    mend: id.map(|id| remedy::of_missing(&object, &id)),
                }
            }
        }
    }
}

fn embedded(text: &str) -> Schema {
    Schema::read(text, RULE_CHECKED_DEFINITION)
        .expect("the embedded schemas have only keywords that are read")
}
