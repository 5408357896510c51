//! Overlays: a project's own JSON Schema, which its configs satisfy in addition to the built-in one.
//!
//! An overlay loosens the built-in schema in two ways only: it may add capabilities, and keys of the
//! root and of variants. The text is untrusted. Invariant: it refers to nothing outside itself, and
//! the cost of an evaluation is limited by the sizes of the schema and of the config.

use std::sync::Arc;

use serde_json::Value;

use super::evaluate::Schema;
use super::form::{self, Flaw, MAX_DEPTH, count};
use super::{CAPABILITIES, Violation, config_schema};
use pkgtool_base::diagnostic::Anchor;
use pkgtool_base::source::JsonPath;
use pkgtool_base::source::json::Node;

/// Maximum size of an overlay, in bytes.
pub const MAX_OVERLAY_BYTES: u64 = 256 * 1024;
/// Maximum product of a schema's weight and the number of values in a config.
const MAX_STEPS: usize = 2_000_000;
/// Maximum product of the number of patterns and the size of a config, in bytes.
const MAX_PATTERN_STEPS: usize = 4 * 1024 * 1024;

/// The places of the built-in schema that an overlay may extend, each with the place in the overlay
/// that declares the additions.
const EXTENSIBLE: [(&str, &[&str]); 3] = [
    (
        CAPABILITIES,
        &["properties", "capabilities", "items", "enum"],
    ),
    ("/properties", &["properties"]),
    (
        "/$defs/variant/properties",
        &["properties", "variants", "items", "properties"],
    ),
];

/// A project's schema.
#[derive(Debug, Clone)]
pub struct Overlay {
    file: String,
    schema: Arc<Schema>,
    cost: form::Cost,
    /// The additions to the built-in schema: a JSON pointer, and a word or key there.
    additions: Vec<(&'static str, String)>,
    /// The built-in schema with the additions.
    extended: Option<Arc<Schema>>,
}

impl Overlay {
    /// Parses the text of the file that reports show as `file`.
    pub fn parse(text: &str, file: String) -> Result<Self, Flaw> {
        let (value, cost) = form::check(text)?;
        let mut extended = config_schema();
        let additions = extend(&mut extended, &value);
        let extended = (!additions.is_empty()).then(|| Schema::new(extended));
        let extended = extended
            .transpose()
            .map_err(|error| Flaw::of(text, &error))?;
        let schema = Schema::new(value).map_err(|error| Flaw::of(text, &error))?;
        Ok(Self {
            file,
            schema: Arc::new(schema),
            cost,
            additions,
            extended: extended.map(Arc::new),
        })
    }

    /// Returns the file's path as reports show it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the overlay without its additions to the built-in schema.
    #[must_use]
    pub fn tightening(&self) -> Self {
        Self {
            additions: Vec::new(),
            extended: None,
            ..self.clone()
        }
    }

    /// Returns whether the overlay adds anything to the built-in schema that none of `others` adds.
    pub fn loosens(&self, others: &[Arc<Self>]) -> bool {
        let is_known = |addition: &&(&str, String)| {
            others
                .iter()
                .any(|other| other.additions.contains(addition))
        };
        !self.additions.iter().all(|addition| is_known(&addition))
    }

    /// Returns the capabilities that the overlay adds.
    pub fn capabilities(&self) -> impl Iterator<Item = &str> {
        self.added_at(CAPABILITIES)
    }

    /// Returns whether the overlay adds a key to variants.
    pub fn adds_variant_key(&self, key: &str) -> bool {
        self.added_at(EXTENSIBLE[2].0).any(|known| known == key)
    }

    /// Returns the built-in schema with the additions, if there are any.
    pub(super) fn extended(&self) -> Option<&Schema> {
        self.extended.as_deref()
    }

    /// Returns the schema if a config is small enough for it, else a violation that says so.
    pub(super) fn schema_for(&self, root: &Node) -> Result<&Schema, Box<Violation>> {
        let bytes = root.span.end - root.span.start;
        let is_small = self.cost.weight.saturating_mul(count(root)) <= MAX_STEPS
            && self.cost.patterns.saturating_mul(bytes) <= MAX_PATTERN_STEPS;
        if is_small {
            return Ok(&self.schema);
        }
        Err(Box::new(Violation {
            path: JsonPath::root(),
            anchor: Anchor::Value(JsonPath::root()),
            message: format!("the file is too large to be checked{}", self.suffix()),
            help: Some("make the file or the overlay smaller".to_owned()),
            mend: None,
        }))
    }

    /// Returns the end of a message about a violation.
    pub(super) fn suffix(&self) -> String {
        format!(" (overlay `{}`)", self.file)
    }

    fn added_at(&self, place: &str) -> impl Iterator<Item = &str> {
        let additions = self.additions.iter();
        additions.filter_map(move |(known, word)| (*known == place).then_some(word.as_str()))
    }
}

/// Adds the words and keys of an overlay to the built-in schema, and returns them.
fn extend(built_in: &mut Value, overlay: &Value) -> Vec<(&'static str, String)> {
    let mut additions = Vec::new();
    for (place, source) in EXTENSIBLE {
        let words: Vec<String> = match declared(overlay, source) {
            Some(Value::Object(members)) => members.keys().cloned().collect(),
            Some(Value::Array(words)) => {
                let words = words.iter().filter_map(Value::as_str);
                words.map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        for word in words {
            let is_new = match built_in.pointer_mut(place) {
                Some(Value::Array(known)) if !known.iter().any(|one| *one == word) => {
                    known.push(Value::from(word.as_str()));
                    true
                }
                Some(Value::Object(known)) if !known.contains_key(&word) => {
                    known.insert(word.clone(), Value::Bool(true));
                    true
                }
                _ => false,
            };
            if is_new {
                additions.push((place, word));
            }
        }
    }
    additions
}

/// Returns the value below these keywords. Each schema on the way may be behind references.
fn declared<'v>(overlay: &'v Value, keywords: &[&str]) -> Option<&'v Value> {
    let mut value = overlay;
    for keyword in keywords {
        for _ in 0..MAX_DEPTH {
            let reference = value.get("$ref").and_then(Value::as_str);
            let Some(target) = reference.and_then(|it| overlay.pointer(it.strip_prefix('#')?))
            else {
                break;
            };
            value = target;
        }
        value = value.get(keyword)?;
    }
    Some(value)
}
