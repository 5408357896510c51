//! The grammar that a request demands of output, from `response_format` or from a `tool_choice`
//! that requires a call.

use serde_json::{Map, Value, json};

use super::super::value::kind;
use super::{ConstraintError, schema};

/// Whitespace allowed between JSON tokens. It is enough for any indented JSON. Without a limit, a
/// model may fill the rest of its answer with spaces.
const WHITESPACE_PATTERN: &str = r"(\x20|\x0D?\x0A[\x20\x09]{0,32}|\x0A\x0A[\x20\x09]{0,32})";

/// A JSON schema that output must follow.
#[derive(Debug, Clone, PartialEq)]
pub struct Grammar {
    /// The field of the request that demands it, for error messages.
    pub(super) field: String,
    /// The checked schema.
    pub(super) schema: Value,
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Callable {
    /// Its name.
    pub name: String,
    /// The schema of its arguments; `None` allows any object.
    pub parameters: Option<Value>,
}

/// The functions that output must call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallChoice<'c> {
    /// One or more calls of any function.
    Any,
    /// Only calls of the function with this name.
    Named(&'c str),
}

impl Grammar {
    /// Reads the field `response_format`. Returns `None` if the output is plain text.
    pub fn of_response_format(format: Option<&Value>) -> Result<Option<Self>, ConstraintError> {
        let format = match format {
            None | Some(Value::Null) => return Ok(None),
            Some(format) => format,
        };
        let fields = object(format, "response_format")?;
        match fields.get("type").and_then(Value::as_str) {
            Some("text") => Ok(None),
            Some("json_object") => match fields.get("schema") {
                None | Some(Value::Null) => {
                    let schema = json!({"type": "object"});
                    Self::of_schema(&schema, "response_format").map(Some)
                }
                Some(schema) => Self::of_schema(schema, "response_format.schema").map(Some),
            },
            Some("json_schema") => {
                let field = "response_format.json_schema";
                let named = fields.get("json_schema").unwrap_or(&Value::Null);
                let field_of_schema = format!("{field}.schema");
                let schema = object(named, field)?.get("schema").unwrap_or(&Value::Null);
                Self::of_schema(schema, &field_of_schema).map(Some)
            }
            _ => Err(ConstraintError::Field {
                field: "response_format.type".to_owned(),
                expected: "`text`, `json_object` or `json_schema`".to_owned(),
                found: fields.get("type").unwrap_or(&Value::Null).to_string(),
            }),
        }
    }

    /// Makes the grammar of a JSON schema that stands at `field` of the request.
    pub fn of_schema(schema: &Value, field: &str) -> Result<Self, ConstraintError> {
        Ok(Self {
            field: field.to_owned(),
            schema: with_whitespace_setting(schema::checked_schema(schema, field)?),
        })
    }

    /// Makes the grammar of a list of calls, each an object with the function's `name` and its
    /// `arguments`. `several` allows more than one call.
    pub fn of_calls(
        tools: &[Callable],
        choice: CallChoice<'_>,
        several: bool,
    ) -> Result<Self, ConstraintError> {
        let chosen = tools.iter().enumerate().filter(|(_, tool)| match choice {
            CallChoice::Any => true,
            CallChoice::Named(name) => tool.name == name,
        });
        let mut calls = Vec::new();
        let mut size = schema::SchemaSize::default();
        for (place, tool) in chosen {
            let field = format!("tools[{place}].function.parameters");
            let any = json!({"type": "object"});
            let parameters = tool.parameters.as_ref().unwrap_or(&any);
            // The size limit applies to all parameters together, because they become one schema.
            size.add(parameters, "tools")?;
            let mut parameters = schema::checked_schema(parameters, &field)?;
            let root = format!("#/items/anyOf/{}/properties/arguments", calls.len());
            schema::move_references(&mut parameters, &root);
            calls.push(json!({
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": parameters},
                "required": ["name", "arguments"],
                "additionalProperties": false,
            }));
        }
        if calls.is_empty() {
            let found = match choice {
                CallChoice::Any => "required without any tool".to_owned(),
                CallChoice::Named(name) => Value::from(name).to_string(),
            };
            return Err(ConstraintError::Field {
                field: "tool_choice".to_owned(),
                expected: "the name of one of `tools`".to_owned(),
                found,
            });
        }
        let mut schema = json!({"type": "array", "minItems": 1, "items": {"anyOf": calls}});
        if !several {
            schema["maxItems"] = json!(1);
        }
        Ok(Self {
            field: "tools".to_owned(),
            schema: with_whitespace_setting(schema),
        })
    }
}

fn object<'v>(value: &'v Value, field: &str) -> Result<&'v Map<String, Value>, ConstraintError> {
    value.as_object().ok_or_else(|| ConstraintError::Field {
        field: field.to_owned(),
        expected: "an object".to_owned(),
        found: kind(value).to_owned(),
    })
}

/// Adds the library's whitespace setting to the schema. Settings from the client were removed
/// before.
fn with_whitespace_setting(schema: Value) -> Value {
    let mut fields = match schema {
        Value::Object(fields) => fields,
        // `true` allows anything, `false` nothing.
        other => Map::from_iter([("allOf".to_owned(), json!([other]))]),
    };
    let settings = json!({"whitespace_pattern": WHITESPACE_PATTERN});
    fields.insert("x-guidance".to_owned(), settings);
    Value::Object(fields)
}
