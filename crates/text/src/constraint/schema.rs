//! Checks a client's JSON schema before it is passed to the grammar library.
//!
//! Invariant: size, nesting and the nesting through references are limited. A keyword that the
//! library would not follow is rejected with its name and path, never ignored.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::super::value::kind;
use super::ConstraintError;

/// Maximum number of values in a schema.
const MAX_VALUES: usize = 20_000;

/// Maximum total size of a schema's strings, in bytes.
const MAX_TEXT_BYTES: usize = 512 << 10;

/// Maximum nesting of schemas.
const MAX_DEPTH: usize = 64;

/// Maximum nesting including references, computed as the sum over all targets, which is an upper
/// limit.
const MAX_DEPTH_WITH_REFERENCES: usize = 2048;

/// Maximum number of properties in all objects of a schema, including `patternProperties`. The
/// library's work grows with the square of this number: a thousand properties take some tenths of a
/// second.
const MAX_PROPERTIES: usize = 1024;

/// Maximum length of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 4096;

/// Maximum divisor, and maximum number that its digits make without the decimal point. The library
/// needs a state for each remainder.
const MAX_DIVISOR: u64 = 10_000;

/// Unsupported keywords and their remedies.
const UNSUPPORTED_KEYWORDS: [(&str, &str); 18] = [
    ("not", "describe the allowed values instead"),
    ("if", "use anyOf"),
    ("then", "use anyOf"),
    ("else", "use anyOf"),
    ("contains", "describe all `items`"),
    ("minContains", "describe all `items`"),
    ("maxContains", "describe all `items`"),
    ("uniqueItems", "leave it out and check the answer"),
    ("propertyNames", "use patternProperties"),
    ("dependencies", "use anyOf"),
    ("dependentRequired", "use anyOf"),
    ("dependentSchemas", "use anyOf"),
    ("unevaluatedItems", "use items"),
    ("unevaluatedProperties", "use additionalProperties"),
    ("$dynamicRef", "use $ref"),
    ("$dynamicAnchor", "use $ref"),
    ("$recursiveRef", "use $ref"),
    ("$recursiveAnchor", "use $ref"),
];

/// Keywords that hold one schema.
const SCHEMA_KEYWORDS: [&str; 3] = ["items", "additionalItems", "additionalProperties"];

/// Keywords that hold a list of schemas. (`items` did in older drafts.)
const SCHEMA_LIST_KEYWORDS: [&str; 5] = ["prefixItems", "items", "anyOf", "oneOf", "allOf"];

/// Keywords that map names to schemas.
const SCHEMA_MAP_KEYWORDS: [&str; 2] = ["properties", "patternProperties"];

/// Checks the schema at `field` and returns it without keywords that have no effect.
pub(super) fn checked_schema(schema: &Value, field: &str) -> Result<Value, ConstraintError> {
    let mut size = SchemaSize::default();
    size.add(schema, field)?;
    let mut schema = schema.clone();
    if !schema.is_object() && !schema.is_boolean() {
        return Err(ConstraintError::Field {
            field: field.to_owned(),
            expected: "a JSON schema, which is an object".to_owned(),
            found: kind(&schema).to_owned(),
        });
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("x-guidance");
    }
    remove_no_op_keywords(&mut schema);
    let mut look = SchemaWalk {
        root: &schema,
        field,
        targets: HashMap::new(),
        pending: Vec::new(),
        properties: 0,
    };
    let mut sum = look.schema(&schema, &mut field.to_owned(), 1)?;
    let mut done: HashSet<&str> = HashSet::new();
    while let Some(reference) = look.pending.pop() {
        if done.insert(reference) {
            let target = look.targets[reference];
            sum += look.schema(target, &mut format!("{field}{}", &reference[1..]), 1)?;
            check_limit(field, "levels of nesting", sum, MAX_DEPTH_WITH_REFERENCES)?;
        }
    }
    Ok(schema)
}

/// Rewrites the references of a schema that becomes part of another one at the path `root`.
pub(super) fn move_references(schema: &mut Value, root: &str) {
    match schema {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| move_references(item, root)),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(reference) if key == "$ref" => {
                        if let Some(path) = reference.strip_prefix('#') {
                            *reference = format!("{root}{}", path.trim_end_matches('/'));
                        }
                    }
                    // These keywords hold plain values, not schemas.
                    _ if matches!(key.as_str(), "const" | "enum" | "default" | "examples") => {}
                    value => move_references(value, root),
                }
            }
        }
        _ => {}
    }
}

/// Removes unsupported keywords with values that have no effect. Schema exporters often add them.
fn remove_no_op_keywords(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(remove_no_op_keywords),
        Value::Object(fields) => {
            fields.retain(|key, value| match key.as_str() {
                "uniqueItems" | "unevaluatedProperties" | "unevaluatedItems" => {
                    *value != Value::Bool(key != "uniqueItems")
                }
                "propertyNames" => !is_any_text(value),
                _ => true,
            });
            fields.values_mut().for_each(remove_no_op_keywords);
        }
        _ => {}
    }
}

fn is_any_text(schema: &Value) -> bool {
    match schema {
        Value::Bool(any) => *any,
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| key == "type" && value == "string"),
        _ => false,
    }
}

fn check_limit(
    field: &str,
    what: &'static str,
    found: usize,
    limit: usize,
) -> Result<(), ConstraintError> {
    if found <= limit {
        return Ok(());
    }
    Err(ConstraintError::Large {
        field: field.to_owned(),
        what,
        found,
        limit,
    })
}

fn is_small_divisor(divisor: &Value) -> bool {
    let text = divisor.to_string();
    let digits = text.split('e').next().unwrap_or_default().replace('.', "");
    let few = digits
        .parse()
        .is_ok_and(|digits: u64| digits <= MAX_DIVISOR);
    few && divisor.as_f64().is_some_and(|divisor| divisor <= 1e4)
}

/// A running count of a schema's values and string bytes.
#[derive(Default)]
pub(super) struct SchemaSize {
    values: usize,
    text: usize,
}

impl SchemaSize {
    /// Counts a value and everything nested in it.
    pub(super) fn add(&mut self, value: &Value, field: &str) -> Result<(), ConstraintError> {
        self.values += 1;
        check_limit(field, "values", self.values, MAX_VALUES)?;
        match value {
            Value::String(text) => self.text(text, field),
            Value::Array(items) => items.iter().try_for_each(|item| self.add(item, field)),
            Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
                self.text(key, field)?;
                self.add(value, field)
            }),
            _ => Ok(()),
        }
    }

    fn text(&mut self, text: &str, field: &str) -> Result<(), ConstraintError> {
        self.text += text.len();
        check_limit(field, "bytes of text", self.text, MAX_TEXT_BYTES)
    }
}

/// A walk over nested schemas. Definitions are visited only if a reference leads to them.
struct SchemaWalk<'s> {
    root: &'s Value,
    field: &'s str,
    targets: HashMap<&'s str, &'s Value>,
    pending: Vec<&'s str>,
    properties: usize,
}

impl<'s> SchemaWalk<'s> {
    /// Checks a schema and those nested in it, and returns their maximum depth.
    fn schema(
        &mut self,
        schema: &'s Value,
        path: &mut String,
        depth: usize,
    ) -> Result<usize, ConstraintError> {
        check_limit(self.field, "levels of nesting", depth, MAX_DEPTH)?;
        let Some(fields) = schema.as_object() else {
            return Ok(depth);
        };
        Self::keywords(fields, path)?;
        let mut deepest = depth;
        let length = path.len();
        for (key, value) in fields {
            let key = key.as_str();
            let step = format!(".{key}");
            match value {
                Value::Array(items) if SCHEMA_LIST_KEYWORDS.contains(&key) => {
                    for (place, item) in items.iter().enumerate() {
                        path.push_str(&step);
                        path.extend(["[", &place.to_string(), "]"]);
                        deepest = deepest.max(self.schema(item, path, depth + 1)?);
                        path.truncate(length);
                    }
                }
                Value::Object(named) if SCHEMA_MAP_KEYWORDS.contains(&key) => {
                    self.properties += named.len();
                    check_limit(self.field, "properties", self.properties, MAX_PROPERTIES)?;
                    for (name, item) in named {
                        path.extend([&step, ".", name.as_str()]);
                        deepest = deepest.max(self.schema(item, path, depth + 1)?);
                        path.truncate(length);
                    }
                }
                _ if SCHEMA_KEYWORDS.contains(&key) => {
                    path.push_str(&step);
                    deepest = deepest.max(self.schema(value, path, depth + 1)?);
                    path.truncate(length);
                }
                Value::String(reference) if key == "$ref" => {
                    self.record_reference(reference, path)?;
                }
                _ => {}
            }
        }
        Ok(deepest)
    }

    fn keywords(fields: &Map<String, Value>, path: &str) -> Result<(), ConstraintError> {
        for (keyword, help) in UNSUPPORTED_KEYWORDS {
            if fields.contains_key(keyword) {
                return Err(ConstraintError::Keyword {
                    field: path.to_owned(),
                    keyword: keyword.to_owned(),
                    help,
                });
            }
        }
        let patterns = fields.get("patternProperties").and_then(Value::as_object);
        let patterns = patterns.into_iter().flat_map(Map::keys).map(String::as_str);
        let own = fields.get("pattern").and_then(Value::as_str);
        for pattern in patterns.chain(own) {
            check_limit(path, "bytes in a pattern", pattern.len(), MAX_PATTERN_BYTES)?;
        }
        match fields.get("multipleOf") {
            Some(divisor) if !is_small_divisor(divisor) => Err(ConstraintError::Field {
                field: format!("{path}.multipleOf"),
                expected: format!("a number with few digits, at most {MAX_DIVISOR}"),
                found: divisor.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// Records the target of a reference, to be visited later.
    fn record_reference(&mut self, reference: &'s str, path: &str) -> Result<(), ConstraintError> {
        if self.targets.contains_key(reference) {
            return Ok(());
        }
        let wrong = |expected: &str| ConstraintError::Field {
            field: format!("{path}.$ref"),
            expected: expected.to_owned(),
            found: Value::from(reference).to_string(),
        };
        let target = match reference.strip_prefix('#') {
            Some("" | "/") => Some(self.root),
            Some(pointer) if pointer.contains('~') || pointer.contains('%') => {
                return Err(wrong("a path without `~` and `%`"));
            }
            Some(pointer) => self.root.pointer(pointer),
            None => return Err(wrong("a path within the schema, like `#/$defs/name`")),
        };
        let target = target.ok_or_else(|| wrong("the path of an existing schema"))?;
        self.targets.insert(reference, target);
        self.pending.push(reference);
        Ok(())
    }
}
