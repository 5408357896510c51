//! Checks the form of an overlay before it is compiled: keywords, references, formats and size.
//!
//! Invariant: references form no cycle. The weight of a schema counts each of its values as often as
//! references lead to it, so that it limits the cost of an evaluation.

use std::collections::HashMap;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, ValidationError};
use serde_json::Value;

use super::short;
use pkgtool_base::source::json::{JsonValue, Node, Step};
use pkgtool_base::source::{Document, JsonPath, LineIndex, Span, suggest};

/// The only supported value of `$schema`.
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Maximum nesting of schemas, references included.
pub(super) const MAX_DEPTH: usize = 32;
/// Maximum weight.
const MAX_WEIGHT: usize = 5000;
/// Maximum number of patterns, references included.
const MAX_PATTERNS: usize = 200;

/// Keywords whose value is a schema.
const SCHEMA_KEYWORDS: [&str; 9] = [
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "$defs",
];
/// Keywords whose value is an array of schemas.
const LIST_KEYWORDS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is an object of schemas.
const MAP_KEYWORDS: [&str; 3] = ["dependentSchemas", "patternProperties", "properties"];
/// Keywords without schemas and without a check of their own.
const PLAIN_KEYWORDS: [&str; 25] = [
    "$comment",
    "const",
    "default",
    "dependentRequired",
    "deprecated",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "readOnly",
    "required",
    "title",
    "uniqueItems",
];
/// Keywords with a check of their own.
const CHECKED_KEYWORDS: [&str; 6] = ["$id", "$ref", "$schema", "format", "pattern", "type"];
/// The types of JSON Schema.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// An error in an overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// The place in the file: line and column, and the JSON pointer if there is one.
    pub place: String,
    /// The expected and the found value.
    pub message: String,
    /// The remedy.
    pub help: String,
}

/// The cost of evaluating a schema.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    /// Number of values in the schema, those behind references included.
    pub(super) weight: usize,
    /// Number of patterns, those behind references included.
    pub(super) patterns: usize,
    /// Nesting of schemas, those behind references included.
    depth: usize,
}

/// An error at a path, not yet located.
struct FormFault {
    path: JsonPath,
    message: String,
    help: String,
}

/// Parses and checks a text.
pub(super) fn check(text: &str) -> Result<(Value, Cost), Flaw> {
    let document = Document::parse(text).map_err(|error| Flaw {
        place: position(text, error.span),
        message: format!("invalid JSON: {}", error.message),
        help: error.help.into_owned(),
    })?;
    let locate = |fault: FormFault| Flaw {
        place: located(text, document.key_span(&fault.path), &fault.path),
        message: fault.message,
        help: fault.help,
    };
    let mut checker = FormChecker {
        document: &document,
        known: HashMap::new(),
        depth: 0,
    };
    let cost = checker.root().map_err(locate)?;
    let value = document.root.to_value();
    let form = jsonschema::draft202012::meta::validate(&value);
    form.map_err(|error| Flaw::of(text, &error))?;
    Ok((value, cost))
}

impl Flaw {
    /// Converts an error of the library about the schema in `text`.
    pub(super) fn of(text: &str, error: &ValidationError<'_>) -> Self {
        let path = error.instance_path().as_str();
        let steps = path.split('/').skip(1);
        let steps =
            steps.map(|step| Step::Key(step.replace("~1", "/").replace("~0", "~").as_str().into()));
        let path: JsonPath = steps.collect();
        let span = Document::parse(text).map(|document| document.value_span(&path));
        let (message, help) = match error.kind() {
            ValidationErrorKind::Format { format } if format == "regex" => (
                "expected a regular expression in the syntax of Rust's `regex`, of at most 64 KiB when compiled"
                    .to_owned(),
                "write it without look-around and back-references, and with smaller repetitions",
            ),
            _ => {
                let reason = short::reason(&error.masked_with("the value"));
                (
                    format!("expected JSON Schema of draft 2020-12: {reason}"),
                    "see https://json-schema.org/draft/2020-12 for the keyword",
                )
            }
        };
        Self {
            place: located(text, span.unwrap_or(Span::new(0, 0)), &path),
            message,
            help: help.to_owned(),
        }
    }
}

struct FormChecker<'d> {
    document: &'d Document,
    /// The cost of each schema that was checked; `None` during its check.
    known: HashMap<JsonPath, Option<Cost>>,
    /// Number of schemas around the checked one.
    depth: usize,
}

impl FormChecker<'_> {
    fn root(&mut self) -> Result<Cost, FormFault> {
        let path = JsonPath::root();
        let root = &self.document.root;
        if !root.is_object() {
            return Err(fault(
                &path,
                "expected a JSON object, found another value",
                "write { \"properties\": … }",
            ));
        }
        if self.document.repeats {
            let path = repeated(root, &path).unwrap_or_default();
            return Err(fault(&path, "duplicate key", "remove one of the two"));
        }
        let cost = self.schema(root, &path)?;
        if cost.weight > MAX_WEIGHT {
            let message = format!(
                "expected at most {MAX_WEIGHT} values, found {} (behind each reference, its target counts again)",
                cost.weight
            );
            return Err(fault(&path, message, "make the schema smaller"));
        }
        if cost.patterns > MAX_PATTERNS {
            let message = format!(
                "expected at most {MAX_PATTERNS} patterns, found {} (behind each reference, those of its target count again)",
                cost.patterns
            );
            return Err(fault(&path, message, "make the schema smaller"));
        }
        Ok(cost)
    }

    /// Checks a schema and everything that it refers to.
    fn schema(&mut self, node: &Node, path: &JsonPath) -> Result<Cost, FormFault> {
        if let JsonValue::Bool(_) = node.kind {
            return Ok(Cost::of(1));
        }
        if !node.is_object() {
            return Err(fault(
                path,
                "expected a schema, found another value",
                "write an object, true or false",
            ));
        }
        match self.known.get(path) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => {
                let help = "write the schema without the reference that leads back to it";
                return Err(fault(path, "the references form a cycle", help));
            }
            None => self.known.insert(path.clone(), None),
        };
        let too_deep = || {
            let message = format!("expected at most {MAX_DEPTH} nested schemas, found more");
            fault(path, message, "make the schema flatter")
        };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let mut cost = Cost::of(1);
        for member in node.members() {
            let own = self.keyword(&member.key, &member.value, &path.key(&member.key))?;
            // Definitions cost something only where a reference leads to them.
            if member.key != "$defs" {
                cost.add(own);
            }
        }
        self.depth -= 1;
        cost.depth += 1;
        if cost.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        self.known.insert(path.clone(), Some(cost));
        Ok(cost)
    }

    fn keyword(&mut self, keyword: &str, node: &Node, path: &JsonPath) -> Result<Cost, FormFault> {
        match keyword {
            "$defs" => self.each(node, path),
            _ if SCHEMA_KEYWORDS.contains(&keyword) => self.schema(node, path),
            _ if MAP_KEYWORDS.contains(&keyword) => {
                let mut cost = self.each(node, path)?;
                if keyword == "patternProperties" {
                    cost.patterns = cost.patterns.saturating_add(node.members().len());
                }
                Ok(cost)
            }
            _ if LIST_KEYWORDS.contains(&keyword) => {
                let mut cost = Cost::of(0);
                for (index, element) in node.elements().iter().enumerate() {
                    cost.add(self.schema(element, &path.index(index))?);
                }
                Ok(cost)
            }
            "$ref" => self.reference(node, path),
            "type" | "format" | "$schema" | "$id" => word(keyword, node, path),
            "pattern" => Ok(Cost {
                patterns: 1,
                ..Cost::of(1)
            }),
            _ if PLAIN_KEYWORDS.contains(&keyword) => Ok(Cost::of(count(node))),
            _ => {
                let all = SCHEMA_KEYWORDS
                    .iter()
                    .chain(&LIST_KEYWORDS)
                    .chain(&MAP_KEYWORDS);
                let all = all.chain(&PLAIN_KEYWORDS).chain(&CHECKED_KEYWORDS).copied();
                let help = match suggest::nearest(keyword, all) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "remove it, or write it with other keywords".to_owned(),
                };
                let message = format!("unsupported keyword `{keyword}`");
                Err(fault(path, message, help))
            }
        }
    }

    fn each(&mut self, node: &Node, path: &JsonPath) -> Result<Cost, FormFault> {
        let mut cost = Cost::of(0);
        for member in node.members() {
            cost.add(self.schema(&member.value, &path.key(&member.key))?);
        }
        Ok(cost)
    }

    fn reference(&mut self, node: &Node, path: &JsonPath) -> Result<Cost, FormFault> {
        let text = node.as_str().unwrap_or_default();
        let Some(pointer) = text
            .strip_prefix('#')
            .filter(|it| it.is_empty() || it.starts_with('/'))
        else {
            let message = format!("expected a reference within the file, found `{text}`");
            let help = "write \"#/$defs/NAME\"; nothing is fetched, and no other file is read";
            return Err(fault(path, message, help));
        };
        let mut target = (JsonPath::root(), &self.document.root);
        for step in pointer.split('/').skip(1) {
            let key = step.replace("~1", "/").replace("~0", "~");
            let (at, node) = &target;
            let next = match step.parse() {
                Ok(index) if !node.is_object() => node
                    .elements()
                    .get(index)
                    .map(|value| (at.index(index), value)),
                _ => node.get(&key).map(|value| (at.key(&key), value)),
            };
            let Some(next) = next else {
                let message = format!("expected a reference to a schema, found `{text}`");
                return Err(fault(
                    path,
                    message,
                    "there is nothing at this place of the file",
                ));
            };
            target = next;
        }
        self.schema(target.1, &target.0)
    }
}

impl Cost {
    fn of(weight: usize) -> Self {
        Self {
            weight,
            ..Self::default()
        }
    }

    fn add(&mut self, other: Self) {
        self.weight = self.weight.saturating_add(other.weight);
        self.patterns = self.patterns.saturating_add(other.patterns);
        self.depth = self.depth.max(other.depth);
    }
}

/// Checks a keyword whose values are words.
fn word(keyword: &str, node: &Node, path: &JsonPath) -> Result<Cost, FormFault> {
    let is_root = path.steps().len() == 1;
    let words = match &node.kind {
        JsonValue::Array(several) if keyword == "type" => {
            several.iter().map(Node::as_str).collect()
        }
        _ => node.as_str().map(|word| vec![word]),
    };
    let Some(words) = words else {
        let help = "write a string; `type` may be an array of strings";
        return Err(fault(path, "expected a string, found another value", help));
    };
    for word in &words {
        let options = jsonschema::options();
        let (is_known, expected) = match keyword {
            "type" => (TYPES.contains(word), TYPES.join(", ")),
            "format" => (
                options.is_known_format(Draft::Draft202012, word),
                "a format of draft 2020-12, such as uri, date or email".to_owned(),
            ),
            "$schema" => (
                is_root && word.trim_end_matches('#') == DRAFT,
                DRAFT.to_owned(),
            ),
            _ => (is_root, "it only at the root".to_owned()),
        };
        if !is_known {
            let message = format!("expected {expected}, found `{word}`");
            let help = match suggest::nearest(word, TYPES.into_iter()) {
                Some(meant) if keyword == "type" => format!("did you mean `{meant}`?"),
                _ => format!("correct `{keyword}`, or remove it"),
            };
            return Err(fault(path, message, help));
        }
    }
    Ok(Cost::of(words.len()))
}

/// Returns the path of a member that repeats an earlier key.
fn repeated(node: &Node, path: &JsonPath) -> Option<JsonPath> {
    if let JsonValue::Object(members) = &node.kind {
        let mut all = members.with_repetition();
        if let Some((member, _)) = all.find(|(_, again)| *again) {
            return Some(path.key(&member.key));
        }
        return members
            .iter()
            .find_map(|member| repeated(&member.value, &path.key(&member.key)));
    }
    let mut elements = node.elements().iter().enumerate();
    elements.find_map(|(index, element)| repeated(element, &path.index(index)))
}

fn fault(path: &JsonPath, message: impl Into<String>, help: impl Into<String>) -> FormFault {
    FormFault {
        path: path.clone(),
        message: message.into(),
        help: help.into(),
    }
}

fn located(text: &str, span: Span, path: &JsonPath) -> String {
    match path.to_pointer() {
        pointer if pointer.is_empty() => position(text, span),
        pointer => format!("{} ({pointer})", position(text, span)),
    }
}

fn position(text: &str, span: Span) -> String {
    let position = LineIndex::new(text).position(text, span.start);
    format!("{}:{}", position.line, position.column)
}

/// Returns the number of values in a tree.
pub(super) fn count(node: &Node) -> usize {
    match &node.kind {
        JsonValue::Array(elements) => 1 + elements.iter().map(count).sum::<usize>(),
        JsonValue::Object(members) => {
            let values = members.iter().map(|member| count(&member.value));
            1 + values.sum::<usize>()
        }
        _ => 1,
    }
}
