//! The schema stage of validation: reports JSON Schema violations, one for each mistake of the
//! author.
//!
//! The library `jsonschema` finds each violated keyword (`evaluate`), and this module merges the
//! violations of one mistake. Each value gets one violation. An unknown key that resembles a missing key is a typing error.
//! Mistakes that a dedicated rule explains better (`variant-file-xor-components`,
//! `methods-nesting`, `legacy-field`, `placeholder`) are left to that rule.

mod evaluate;
mod form;
mod message;
mod overlay;
mod remedy;
mod short;
mod synonyms;
mod tree;
mod uri;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use evaluate::{Expectation, KeywordFault, Schema};

pub use form::Flaw;
pub use overlay::{MAX_OVERLAY_BYTES, Overlay};
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

static CONFIG: LazyLock<Schema> = LazyLock::new(|| embedded(config_schema()));
static PRECISIONS: LazyLock<Schema> = LazyLock::new(|| embedded(parsed(PRECISIONS_SCHEMA)));

/// Maximum number of inspected faults: far more than are reported, and far fewer than a hostile
/// file of allowed size can have.
const MAX_FAULTS: usize = 20_000;

/// The definition in the config schema whose violations are reported by another rule.
const RULE_CHECKED_DEFINITION: &str = "/$defs/fileOrComponents";
/// The capabilities in the config schema.
const CAPABILITIES: &str = "/properties/capabilities/items/enum";

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
        /// The end of the message: names the overlay that forbids the key.
        by: String,
    },
    /// Keys are missing from an object.
    MissingKeys {
        object: JsonPath,
        keys: Vec<String>,
        /// The end of the message: names the overlay that requires the keys.
        by: String,
    },
}

/// Returns the capabilities that correspond to a hub's name for a task; empty for an unknown name.
pub(super) fn capabilities_of(word: &str) -> Vec<&'static str> {
    synonyms::known(word, &CONFIG.words(CAPABILITIES))
}

/// Returns the violations of a config, those of the built-in schema first.
pub(super) fn check_config(
    document: &Document,
    config: &Config,
    id: SchemaIdOf<'_>,
    overlays: &[Arc<Overlay>],
) -> Vec<Violation> {
    let root = &document.root;
    let misnested = config.variants.iter().flat_map(wrong_shapes).cloned();
    let misnested: PathSet = misnested.collect();
    let is_ours =
        |raw: &RawViolation| !misnested.covers(&raw.path()) && !belongs_to_a_rule(raw, document);
    let extended = overlays.iter().find_map(|overlay| overlay.extended());
    let mut raw = read_all(extended.unwrap_or(&CONFIG), root, "", id, &is_ours);
    let mut unchecked = Vec::new();
    for overlay in overlays {
        match overlay.schema_for(root) {
            Ok(schema) => raw.extend(read_all(schema, root, &overlay.suffix(), id, &is_ours)),
            Err(too_large) => unchecked.push(*too_large),
        }
    }
    let mut violations = merge(raw, id);
    violations.extend(unchecked);
    violations
}

/// Returns the violations of a precision list.
pub(super) fn check_precisions(document: &Document) -> Vec<Violation> {
    let none = || None::<String>;
    let all = |_: &RawViolation| true;
    merge(
        read_all(&PRECISIONS, &document.root, "", &none, &all),
        &none,
    )
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

/// Returns the violations of a schema that `is_ours` selects; `by` is the end of their messages.
fn read_all(
    schema: &Schema,
    root: &Node,
    by: &str,
    id: SchemaIdOf<'_>,
    is_ours: &dyn Fn(&RawViolation) -> bool,
) -> Vec<RawViolation> {
    let faults = schema.faults(root).into_iter();
    let raw = faults.flat_map(|fault| read(fault, schema, by, id));
    raw.filter(is_ours).take(MAX_FAULTS).collect()
}

fn read(
    fault: KeywordFault<'_>,
    schema: &Schema,
    by: &str,
    id: SchemaIdOf<'_>,
) -> Vec<RawViolation> {
    let KeywordFault {
        path,
        value,
        expected,
        part,
    } = fault;
    match expected {
        Expectation::Key(key) => vec![RawViolation::MissingKeys {
            object: path,
            keys: vec![key],
            by: by.to_owned(),
        }],
        Expectation::Known { unknown, allowed } => {
            let unknown = unknown.into_iter().take(MAX_FAULTS);
            let unknown = unknown.map(|key| RawViolation::UnknownKey {
                object: path.clone(),
                meant: None,
                help: message::unknown_key_help(&key, &allowed, value),
                key,
                by: by.to_owned(),
            });
            unknown.collect()
        }
        Expectation::Unique => repeated(&path, value, by),
        Expectation::Value(wanted) => {
            let plain = value.to_value();
            let found = message::FoundValue {
                value: &plain,
                node: value,
            };
            let (message, help) = message::describe(&wanted, &found, &path, id);
            let accepts = |value: &Value| schema.accepts(&part, value);
            vec![RawViolation::Value {
                mend: remedy::of_value(&wanted, &accepts, &plain, &path, id),
                path,
                message: message + by,
                help,
            }]
        }
    }
}

/// Returns one fault for each element that repeats an earlier one.
fn repeated(path: &JsonPath, list: &Node, by: &str) -> Vec<RawViolation> {
    let mut seen = HashSet::new();
    let items = list
        .elements()
        .iter()
        .map(|item| item.to_value().to_string());
    let again = items
        .enumerate()
        .filter(|(_, item)| !seen.insert(item.clone()));
    let again = again.map(|(i, item)| RawViolation::Value {
        path: path.index(i),
        message: format!("{item} is already in the list{by}"),
        help: Some("remove the repeated element".to_owned()),
        mend: Some(remedy::of_repetition(&path.index(i))),
    });
    let mut found: Vec<RawViolation> = again.collect();
    // Numbers such as 1 and 1.0 are equal, too. In the built-in schemas, lists have only strings.
    if found.is_empty() && !by.is_empty() {
        found.push(RawViolation::Value {
            path: path.clone(),
            message: format!("the elements must differ{by}"),
            help: None,
            mend: None,
        });
    }
    found
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
    let mut known_missing = HashSet::new();
    // Missing keys of one object are merged into one fault, at the position of the first.
    let mut lacking: HashMap<(JsonPath, String), usize> = HashMap::new();
    let mut merged: Vec<RawViolation> = Vec::new();
    for (at, mut one) in raw.into_iter().enumerate() {
        if let RawViolation::UnknownKey { meant, .. } = &mut one {
            *meant = meanings.remove(&at);
        }
        match one {
            RawViolation::MissingKeys {
                object,
                mut keys,
                by,
            } => {
                keys.retain(|key| {
                    let place = (object.clone(), key.clone());
                    !typos.contains(&place) && known_missing.insert(place)
                });
                if keys.is_empty() {
                    continue;
                }
                let entry = lacking.entry((object.clone(), by.clone()));
                let at = *entry.or_insert(merged.len());
                match merged.get_mut(at) {
                    Some(RawViolation::MissingKeys { keys: known, .. }) => known.extend(keys),
                    _ => merged.push(RawViolation::MissingKeys { object, keys, by }),
                }
            }
            other => {
                if seen.insert(other.path()) {
                    merged.push(other);
                }
            }
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
        if let RawViolation::MissingKeys { object, keys, .. } = one {
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
                key,
                meant,
                help,
                by,
                ..
            } => Violation {
                mend: meant.map(|meant| remedy::of_typo(path.clone(), &meant)),
                anchor: Anchor::Key(path.clone()),
                path,
                message: format!("unknown key `{key}`{by}"),
                help: Some(help),
            },
            Self::MissingKeys { object, keys, by } => {
                let lacks_id = keys.iter().any(|key| key == "$schema");
                let id = lacks_id.then(id).flatten();
                Violation {
                    anchor: Anchor::Value(path.clone()),
                    path,
                    message: message::missing_keys(&object, &keys) + &by,
                    help: Some(message::missing_keys_help(&keys, id.as_deref())),
                    mend: id.map(|id| remedy::of_missing(&object, &id)),
                }
            }
        }
    }
}

/// Returns the schema of configs without the part that a rule checks.
fn config_schema() -> Value {
    let mut schema = parsed(CONFIG_SCHEMA);
    if let Some(definition) = schema.pointer_mut(RULE_CHECKED_DEFINITION) {
        *definition = Value::Bool(true);
    }
    schema
}

fn embedded(schema: Value) -> Schema {
    Schema::new(schema).expect("the embedded schemas are schemas")
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("the embedded schemas are JSON")
}

#[cfg(test)]
mod tests {
    use jsonschema::{Draft, Validator};
    use pkgtool_base::package::Config;
    use pkgtool_base::source::Document;
    use pkgtool_testing::mutate::{JsonPart, changes};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::evaluate::Schema;
    use super::{CONFIG, Overlay, PRECISIONS, check_config, config_schema, is_uri, parsed};

    const OVERLAY: &str = r##"{
        "required": ["team"],
        "properties": {
            "team": { "$ref": "#/$defs/team" },
            "capabilities": { "items": { "enum": ["vision", "pose-estimation", "classification"] } },
            "license": { "const": "MIT" },
            "variants": { "maxItems": 2, "uniqueItems": true,
                "items": { "properties": { "size_bytes": { "maximum": 1.5e3 }, "note": {} } } }
        },
        "patternProperties": { "^t": { "not": { "type": "number" } } },
        "propertyNames": { "maxLength": 16 },
        "if": { "properties": { "backend": { "const": "qnn" } } },
        "then": { "required": ["size"] },
        "$defs": { "team": { "type": "string", "pattern": "^[A-Z]", "format": "uri" } }
    }"##;

    /// Returns the library's validator of plain values, without our tree and without a registry.
    fn plain(schema: &Value) -> Validator {
        let options = jsonschema::options().with_draft(Draft::Draft202012);
        let options = options.should_validate_formats(true);
        options
            .with_format("uri", is_uri)
            .build(schema)
            .expect("a schema")
    }

    fn overlay() -> Overlay {
        Overlay::parse(OVERLAY, "overlay.json".to_owned()).expect("an overlay")
    }

    fn config() -> Value {
        json!({
            "$schema": "https://example.com/id", "model": "tiny", "family": "tiny", "size": "s",
            "team": "https:x", "capabilities": ["classification", "vision"], "backend": "xnnpack",
            "license": "MIT", "tokenizer": "a.json",
            "variants": [
                { "precision": "fp32", "file": "a.pte", "size_bytes": 12, "methods": { "forward": {
                    "inputs": [{ "name": "x", "shape": [2, -1], "dtype": "float32" }],
                    "outputs": [{ "shape": [2.0], "dtype": "int8" }] } } },
                { "precision": "int8", "components": { "a": "a.pte", "b": "b.pte" },
                    "methods": { "a": { "forward": { "inputs": [], "outputs": [] } } } },
            ],
        })
    }

    #[test]
    fn the_seeds_are_valid() {
        let mut config = config();
        let faults = |schema: &Schema, value: &Value| {
            let document = Document::parse(&value.to_string()).expect("JSON");
            schema.faults(&document.root).len()
        };
        assert_eq!(faults(overlay().extended().expect("additions"), &config), 0);
        config
            .as_object_mut()
            .and_then(|members| members.remove("team"));
        assert_eq!(faults(&CONFIG, &config), 0);
    }

    proptest! {
        #[test]
        fn verdicts_are_those_of_the_plain_library(
            changes in changes(),
            seed in 0..2_usize,
        ) {
            let list = json!({ "quantized": ["int8", "4w"], "non_quantized": ["fp32"] });
            let mut tree = JsonPart::parse(&[config(), list][seed].to_string());
            for (at, change) in &changes {
                tree.apply(*at, change);
            }
            let Ok(document) = Document::parse(&tree.text()) else {
                return Ok(());
            };
            let value = document.root.to_value();
            let overlay = overlay();
            let extended = overlay.extended().expect("additions");
            let own = overlay.schema_for(&document.root).expect("a small document");
            for (schema, plain) in [
                (&*CONFIG, plain(&config_schema())),
                (&*PRECISIONS, plain(&parsed(super::PRECISIONS_SCHEMA))),
                (own, plain(&parsed(OVERLAY))),
            ] {
                let faults = schema.faults(&document.root);
                prop_assert_eq!(faults.is_empty(), plain.is_valid(&value), "{}", tree.text());
            }
            if CONFIG.faults(&document.root).is_empty() {
                prop_assert!(extended.faults(&document.root).is_empty(), "{}", tree.text());
            }
            let config = Config::from_document(&document);
            let overlays = [std::sync::Arc::new(overlay)];
            for overlays in [&[][..], &overlays] {
                for violation in check_config(&document, &config, &|| None, overlays) {
                    prop_assert!(document.node(&violation.path).is_some(), "{violation:?}");
                }
            }
        }
    }
}
