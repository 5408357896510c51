//! Parses a JSON Schema into the checks of this validator.
//!
//! Invariant: exactly the keywords that the schemas of this repository use are supported, with the
//! semantics of JSON Schema 2020-12; any other keyword is an error. References lead to definitions
//! of the same schema, without cycles.

use std::str::FromStr;

use serde_json::{Map, Value};

use pkgtool_base::source::json::{Kind, Node};

/// Prefix of references to definitions.
const DEFINITIONS: &str = "#/$defs/";

/// Keywords that are documentation or targets of references and check nothing.
const IGNORED_KEYWORDS: [&str; 5] = ["$schema", "$id", "$defs", "title", "description"];

/// Maximum length of a chain of references; a longer one is a cycle.
const MAX_REFERENCE_DEPTH: usize = 16;

/// A parsed schema. A schema without keywords accepts every value.
#[derive(Debug, Default)]
pub(super) struct Schema {
    /// `type`; empty for any type.
    pub(super) types: Vec<Type>,
    /// `enum`, of strings.
    pub(super) options: Option<Vec<String>>,
    /// For strings: the minimum length in characters, and the form.
    pub(super) min_length: usize,
    pub(super) pattern: Option<Pattern>,
    pub(super) format: Option<Format>,
    /// For numbers.
    pub(super) minimum: Option<u32>,
    /// For arrays.
    pub(super) min_items: usize,
    pub(super) unique: bool,
    pub(super) items: Option<Box<Schema>>,
    /// For objects.
    pub(super) min_properties: usize,
    pub(super) required: Vec<String>,
    pub(super) properties: Properties,
    pub(super) others: AdditionalProperties,
    /// `$ref` and `allOf`: all of them must hold.
    pub(super) all: Vec<Schema>,
    pub(super) condition: Option<Box<Condition>>,
}

/// `properties`, in the order of the keys. There are so few that a linear search is fastest.
#[derive(Debug, Default)]
pub(super) struct Properties(Vec<(String, Schema)>);

/// `additionalProperties`.
#[derive(Debug, Default)]
pub(super) enum AdditionalProperties {
    #[default]
    Any,
    None,
    Each(Box<Schema>),
}

/// `if`, `then` and `else`.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) when: Schema,
    pub(super) then: Schema,
    pub(super) otherwise: Schema,
}

/// The supported types of JSON Schema, in the order in which messages list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Type {
    Array,
    Integer,
    Null,
    Object,
    String,
}

/// `^[…]+$`: one or more characters from these ranges.
#[derive(Debug)]
pub(super) struct Pattern {
    ranges: Vec<(char, char)>,
    /// The ASCII characters of the ranges, as a bit set.
    ascii: u128,
}

/// The supported formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Uri,
}

impl Schema {
    /// Parses a schema. The definition named `left_out` accepts every value, because a rule checks
    /// it.
    pub(super) fn read(text: &str, left_out: &str) -> Result<Self, String> {
        let root: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let reader = Reader {
            definitions: root.get("$defs").and_then(Value::as_object),
            left_out,
        };
        reader.schema(&root, 0)
    }
}

impl Properties {
    /// Returns the schema of the value with this key.
    pub(super) fn get(&self, key: &str) -> Option<&Schema> {
        let mut properties = self.0.iter();
        let property = properties.find(|(name, _)| name == key);
        property.map(|(_, schema)| schema)
    }

    /// Returns the keys in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Type {
    /// Returns the name in JSON Schema.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Integer => "integer",
            Self::Null => "null",
            Self::Object => "object",
            Self::String => "string",
        }
    }

    /// Returns whether a value has this type. A number without a fraction is an integer, in any
    /// notation.
    pub(super) fn is_of(self, value: &Node) -> bool {
        match (self, &value.kind) {
            (Self::Array, Kind::Array(_))
            | (Self::Null, Kind::Null)
            | (Self::Object, Kind::Object(_))
            | (Self::String, Kind::String(_)) => true,
            (Self::Integer, Kind::Number(written)) => {
                let number = || value.as_number()?.as_f64();
                let may_have_fraction = |byte: u8| matches!(byte, b'.' | b'e' | b'E');
                !written.bytes().any(may_have_fraction)
                    || number().is_some_and(|it| it.fract() == 0.0)
            }
            _ => false,
        }
    }
}

impl FromStr for Type {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let types = [
            Self::Array,
            Self::Integer,
            Self::Null,
            Self::Object,
            Self::String,
        ];
        let of_name = types.into_iter().find(|one| one.name() == name);
        of_name.ok_or_else(|| format!("`type` cannot be `{name}`"))
    }
}

impl Pattern {
    fn read(text: &str) -> Option<Self> {
        let class = text.strip_prefix("^[")?.strip_suffix("]+$")?;
        if class.is_empty() || class.contains(['^', '[', ']', '\\', '&', '~']) {
            return None;
        }
        let mut ranges = Vec::new();
        let mut rest = class.chars();
        while let Some(first) = rest.next() {
            let mut ahead = rest.clone();
            match (ahead.next(), ahead.next()) {
                (Some('-'), Some(last)) => {
                    ranges.push((first, last));
                    rest = ahead;
                }
                (Some('-'), None) => return None,
                _ => ranges.push((first, first)),
            }
        }
        let within = |c: u8| {
            ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&char::from(c)))
        };
        let ascii = (0..128)
            .filter(|c| within(*c))
            .fold(0, |all, c| all | 1 << c);
        Some(Self { ranges, ascii })
    }

    /// Returns whether a text matches the pattern.
    pub(super) fn fits(&self, text: &str) -> bool {
        let within = |c: char| match u8::try_from(c) {
            Ok(c) if c.is_ascii() => self.ascii >> c & 1 == 1,
            _ => {
                let mut ranges = self.ranges.iter();
                ranges.any(|(first, last)| (*first..=*last).contains(&c))
            }
        };
        !text.is_empty() && text.chars().all(within)
    }
}

/// Parses the parts of one schema.
struct Reader<'a> {
    definitions: Option<&'a Map<String, Value>>,
    left_out: &'a str,
}

impl Reader<'_> {
    fn schema(&self, value: &Value, depth: usize) -> Result<Schema, String> {
        let keywords = value.as_object().ok_or("a schema must be an object")?;
        let mut schema = Schema::default();
        for (name, value) in keywords {
            let wrong = || format!("`{name}` is {value}");
            match name.as_str() {
                silent if IGNORED_KEYWORDS.contains(&silent) => {}
                "type" => schema.types = types(value)?,
                "enum" => schema.options = Some(strings(value).ok_or_else(wrong)?),
                "minLength" => schema.min_length = count(value).ok_or_else(wrong)?,
                "pattern" => {
                    let pattern = value.as_str().and_then(Pattern::read);
                    schema.pattern = Some(pattern.ok_or_else(wrong)?);
                }
                "format" if value == "uri" => schema.format = Some(Format::Uri),
                "minimum" => {
                    let minimum = value.as_u64().and_then(|limit| limit.try_into().ok());
                    schema.minimum = Some(minimum.ok_or_else(wrong)?);
                }
                "minItems" => schema.min_items = count(value).ok_or_else(wrong)?,
                "uniqueItems" => schema.unique = value.as_bool().ok_or_else(wrong)?,
                "items" => schema.items = Some(Box::new(self.schema(value, depth)?)),
                "minProperties" => schema.min_properties = count(value).ok_or_else(wrong)?,
                "required" => schema.required = strings(value).ok_or_else(wrong)?,
                "properties" => {
                    let properties = value.as_object().ok_or_else(wrong)?;
                    for (name, value) in properties {
                        let property = self.schema(value, depth)?;
                        schema.properties.0.push((name.clone(), property));
                    }
                    let list = &mut schema.properties.0;
                    list.sort_by(|(one, _), (other, _)| one.cmp(other));
                }
                "additionalProperties" => {
                    schema.others = match value {
                        Value::Bool(true) => AdditionalProperties::Any,
                        Value::Bool(false) => AdditionalProperties::None,
                        value => AdditionalProperties::Each(Box::new(self.schema(value, depth)?)),
                    };
                }
                "$ref" => schema.all.extend(self.definition(value, depth)?),
                "allOf" => {
                    for one in value.as_array().ok_or_else(wrong)? {
                        schema.all.push(self.schema(one, depth)?);
                    }
                }
                "if" => schema.condition = Some(self.condition(keywords, value, depth)?),
                "then" | "else" if keywords.contains_key("if") => {}
                _ => return Err(format!("unsupported keyword `{name}`: {value}")),
            }
        }
        // A schema that contains only a reference is replaced by its target.
        let only_refers =
            |name: &String| name == "$ref" || IGNORED_KEYWORDS.contains(&name.as_str());
        if keywords.keys().all(only_refers)
            && let Some(definition) = schema.all.pop()
        {
            return Ok(definition);
        }
        Ok(schema)
    }

    /// Returns the target of a reference; `None` if that definition is left out.
    fn definition(&self, reference: &Value, depth: usize) -> Result<Option<Schema>, String> {
        let name = reference
            .as_str()
            .and_then(|text| text.strip_prefix(DEFINITIONS));
        let name = name.ok_or_else(|| format!("`$ref` is {reference}"))?;
        if name == self.left_out {
            return Ok(None);
        }
        if depth == MAX_REFERENCE_DEPTH {
            return Err(format!("`$defs` contain a cycle at `{name}`"));
        }
        let definition = self.definitions.and_then(|all| all.get(name));
        let definition = definition.ok_or_else(|| format!("`$defs` lack `{name}`"))?;
        self.schema(definition, depth + 1).map(Some)
    }

    fn condition(
        &self,
        keywords: &Map<String, Value>,
        when: &Value,
        depth: usize,
    ) -> Result<Box<Condition>, String> {
        let branch = |name: &str| match keywords.get(name) {
            Some(value) => self.schema(value, depth),
            None => Ok(Schema::default()),
        };
        Ok(Box::new(Condition {
            when: self.schema(when, depth)?,
            then: branch("then")?,
            otherwise: branch("else")?,
        }))
    }
}

fn types(value: &Value) -> Result<Vec<Type>, String> {
    let mut types = match value {
        Value::String(name) => vec![name.parse()?],
        several => {
            let names = strings(several).ok_or_else(|| format!("`type` is {several}"))?;
            let types: Result<Vec<Type>, String> = names.iter().map(|name| name.parse()).collect();
            types?
        }
    };
    types.sort_unstable();
    Ok(types)
}

fn strings(value: &Value) -> Option<Vec<String>> {
    let strings = value.as_array()?.iter();
    strings.map(|one| one.as_str().map(str::to_owned)).collect()
}

fn count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|count| count.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::{Pattern, Schema};

    #[test]
    fn what_is_not_known_is_not_passed_over() {
        for (schema, error) in [
            (r#"{"maxItems": 3}"#, "unsupported keyword `maxItems`: 3"),
            (
                r#"{"format": "date"}"#,
                r#"unsupported keyword `format`: "date""#,
            ),
            (r#"{"type": "number"}"#, "`type` cannot be `number`"),
            (r#"{"enum": [1]}"#, "`enum` is [1]"),
            (r#"{"pattern": "a+"}"#, r#"`pattern` is "a+""#),
            (r#"{"minimum": -1}"#, "`minimum` is -1"),
            (r#"{"then": {}}"#, "unsupported keyword `then`: {}"),
            (r#"{"$ref": "other.json"}"#, r#"`$ref` is "other.json""#),
            (r##"{"$ref": "#/$defs/a"}"##, "`$defs` lack `a`"),
            (
                r##"{"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}"##,
                "`$defs` contain a cycle at `a`",
            ),
            (
                r#"{"properties": {"a": {"not": {}}}}"#,
                "unsupported keyword `not`: {}",
            ),
            (r#"{"items": true}"#, "a schema must be an object"),
        ] {
            assert_eq!(
                Schema::read(schema, "").err().as_deref(),
                Some(error),
                "{schema}"
            );
        }
        let left_out = r##"{"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}}"##;
        assert!(Schema::read(left_out, "a").is_ok());
    }

    #[test]
    fn patterns_are_classes_of_characters() {
        let pattern = Pattern::read("^[a-z0_9]+$").expect("a class");
        for (text, fits) in [
            ("a", true),
            ("z_09", true),
            ("", false),
            ("1", false),
            ("a\n", false),
        ] {
            assert_eq!(pattern.fits(text), fits, "{text:?}");
        }
        for wrong in [
            "[a]", "^[a]$", "^[]+$", "^[^a]+$", "^[\\d]+$", "^[a-]+$", "^a[b]+$",
        ] {
            assert!(Pattern::read(wrong).is_none(), "{wrong}");
        }
    }
}
