//! The format that an answer must have (`response_format`).

use serde_json::{Map, Value};

use super::fault::FieldError;
use super::field::RequestField;

/// The format of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ResponseFormat {
    /// Any text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that follows a schema.
    JsonSchema {
        /// The client's name for the schema.
        name: String,
        /// The JSON schema.
        schema: Map<String, Value>,
    },
}

impl ResponseFormat {
    pub(super) fn read(field: &RequestField) -> Result<Self, FieldError> {
        if !field.is_present() {
            return Ok(Self::Text);
        }
        field.object()?;
        let kind = field.get("type");
        match kind.value.as_str() {
            Some("text") => Ok(Self::Text),
            Some("json_object") => Ok(match field.get("schema").there() {
                None => Self::JsonObject,
                Some(schema) => Self::JsonSchema {
                    name: String::new(),
                    schema: schema.object()?.clone(),
                },
            }),
            Some("json_schema") => {
                let named = field.get("json_schema");
                named.object()?;
                Ok(Self::JsonSchema {
                    name: named.get("name").optional_text()?.unwrap_or_default(),
                    schema: named.get("schema").object()?.clone(),
                })
            }
            _ => Err(kind.fault("`text`, `json_object` or `json_schema`")),
        }
    }
}
