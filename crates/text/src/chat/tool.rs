//! Tools that a model may call, and the `tool_choice` that allows, requires or forbids calls.

use serde_json::{Map, Value};

use super::bounds::RequestLimits;
use super::fault::FieldError;
use super::field::RequestField;

/// Maximum length of a function name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A function that a model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// JSON Schema of its arguments.
    pub parameters: Map<String, Value>,
    /// True if arguments must follow the schema exactly.
    pub strict: bool,
    /// The tool as the client sent it. Templates print it.
    pub json: Value,
}

/// The rule for tool calls: forbidden, allowed or required.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model does not see the tools.
    None,
    /// The model decides.
    #[default]
    Auto,
    /// The model must call at least one tool.
    Required,
    /// The model must call this function.
    Function(String),
}

/// Parses the tools of a request.
pub(super) fn tools(
    request: &RequestField,
    bounds: &RequestLimits,
) -> Result<Vec<Tool>, FieldError> {
    for old in ["functions", "function_call"] {
        if let Some(field) = request.get(old).there() {
            let new = if old == "functions" {
                "tools"
            } else {
                "tool_choice"
            };
            return Err(FieldError::at(
                field.path,
                format!("`{new}` instead"),
                "the outdated field",
            ));
        }
    }
    let Some(field) = request.get("tools").there() else {
        return Ok(Vec::new());
    };
    let mut tools: Vec<Tool> = Vec::new();
    for item in field.items("tools", 0, bounds.tools)? {
        let tool = Tool::read(&item)?;
        if tools.iter().any(|known| known.name == tool.name) {
            let name = item.get("function").get("name");
            return Err(name.fault("a name that no other tool has"));
        }
        tools.push(tool);
    }
    Ok(tools)
}

impl Tool {
    fn read(field: &RequestField) -> Result<Self, FieldError> {
        field.object()?;
        let kind = field.get("type");
        if kind.value.as_str() != Some("function") {
            return Err(kind.fault("`function`"));
        }
        let function = field.get("function");
        function.object()?;
        let description = function.get("description");
        if description.is_present() {
            description.text()?;
        }
        let parameters = function.get("parameters").there();
        let parameters = parameters.map(|it| it.object().cloned()).transpose()?;
        Ok(Self {
            name: name(&function.get("name"))?,
            parameters: parameters.unwrap_or_default(),
            strict: function.get("strict").flag()?,
            json: field.value.clone(),
        })
    }
}

impl ToolChoice {
    pub(super) fn read(field: &RequestField, tools: &[Tool]) -> Result<Self, FieldError> {
        let choice = match field.value {
            Value::Null => Self::Auto,
            Value::String(text) => match text.as_str() {
                "none" => Self::None,
                "auto" => Self::Auto,
                "required" => Self::Required,
                _ => return Err(field.fault("`none`, `auto`, `required` or a function")),
            },
            Value::Object(_) => {
                let kind = field.get("type");
                if kind.value.as_str() != Some("function") {
                    return Err(kind.fault("`function`"));
                }
                let name = field.get("function").get("name");
                let wanted = name.text()?;
                if tools.iter().all(|tool| tool.name != wanted) {
                    return Err(name.fault("the name of one of `tools`"));
                }
                Self::Function(wanted.to_owned())
            }
            _ => return Err(field.fault("`none`, `auto`, `required` or a function")),
        };
        if choice == Self::Required && tools.is_empty() {
            return Err(FieldError::at(
                "tools",
                "at least one tool, as `tool_choice` asks",
                "none",
            ));
        }
        Ok(choice)
    }
}

fn name(field: &RequestField) -> Result<String, FieldError> {
    let text = field.text()?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.chars().all(is_part) {
        let expected = format!("1 to {MAX_NAME_BYTES} letters, digits, `_`, `-` and `.`");
        return Err(field.fault(expected));
    }
    Ok(text.to_owned())
}
