//! Messages of a conversation.

use serde_json::{Map, Value};

use super::bounds::RequestLimits;
use super::fault::{FieldError, quoted};
use super::field::RequestField;
use super::picture::ChatPicture;

/// Maximum length of a name or id, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The role of a message's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions. Newer clients also send the role as `developer`.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// The result of a tool. Older clients also send the role as `function`.
    Tool,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// No content: the assistant only calls tools.
    Absent,
    /// One text.
    Text(String),
    /// A list of parts.
    Parts(Vec<ContentPart>),
}

/// A part of a message's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentPart {
    /// A text.
    Text(String),
    /// A picture.
    Picture(ChatPicture),
}

/// A call of a tool by the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Id of the call, chosen by the server that answered.
    pub id: Option<String>,
    /// The function's name.
    pub name: String,
    /// The function's arguments by name.
    pub arguments: Map<String, Value>,
    /// The arguments as the client sent them.
    pub arguments_text: String,
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its author.
    pub role: Role,
    /// Its content.
    pub content: Content,
    /// Name of the author, or of the function that answers.
    pub name: Option<String>,
    /// The model's reasoning before its answer.
    pub reasoning: Option<String>,
    /// Tool calls of the model.
    pub tool_calls: Vec<ToolCall>,
    /// Id of the call that this message answers.
    pub tool_call_id: Option<String>,
}

impl Message {
    pub(super) fn read(field: &RequestField, bounds: &RequestLimits) -> Result<Self, FieldError> {
        field.object()?;
        let role = Role::read(&field.get("role"))?;
        let message = Self {
            role,
            content: content(&field.get("content"), bounds)?,
            name: name(&field.get("name"))?,
            reasoning: reasoning(field)?,
            tool_calls: calls(&field.get("tool_calls"), role, bounds)?,
            tool_call_id: name(&field.get("tool_call_id"))?,
        };
        if field.get("function_call").is_present() {
            let old = field.get("function_call");
            return Err(FieldError::at(
                old.path,
                "`tool_calls` instead",
                "the outdated field",
            ));
        }
        let speaks = message.content != Content::Absent || !message.tool_calls.is_empty();
        if speaks || (role == Role::Assistant && message.reasoning.is_some()) {
            return Ok(message);
        }
        let expected = match role {
            Role::Assistant => "a string, a list of parts, or `tool_calls` beside it",
            _ => "a string or a list of parts",
        };
        Err(field.get("content").fault(expected))
    }
}

impl Role {
    /// Returns the role's name in templates.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }

    fn read(field: &RequestField) -> Result<Self, FieldError> {
        match field.value.as_str() {
            Some("system" | "developer") => Ok(Self::System),
            Some("user") => Ok(Self::User),
            Some("assistant") => Ok(Self::Assistant),
            Some("tool" | "function") => Ok(Self::Tool),
            _ => Err(field.fault("`system`, `developer`, `user`, `assistant` or `tool`")),
        }
    }
}

fn content(field: &RequestField, bounds: &RequestLimits) -> Result<Content, FieldError> {
    match field.value {
        Value::Null => Ok(Content::Absent),
        Value::String(text) => Ok(Content::Text(text.clone())),
        Value::Array(_) => {
            let parts = field.items("parts", 1, bounds.parts)?;
            Ok(Content::Parts(
                parts.map(|part| part_of(&part)).collect::<Result<_, _>>()?,
            ))
        }
        _ => Err(field.fault("a string or a list of parts")),
    }
}

/// Reads a part, such as `{"type": "text", "text": "…"}`.
fn part_of(part: &RequestField) -> Result<ContentPart, FieldError> {
    part.object()?;
    let kind = part.get("type");
    let text = |key: &str| Ok(ContentPart::Text(part.get(key).text()?.to_owned()));
    match kind.text()? {
        // Some clients send back answers in the format of the newer API.
        "text" | "input_text" | "output_text" => text("text"),
        "refusal" => text("refusal"),
        "image_url" | "input_image" => ChatPicture::read(part).map(ContentPart::Picture),
        _ => Err(kind.fault("`text` or `image_url`: audio and files are not supported")),
    }
}

fn name(field: &RequestField) -> Result<Option<String>, FieldError> {
    let Some(field) = field.clone().there() else {
        return Ok(None);
    };
    let text = field.text()?;
    if text.len() > MAX_NAME_BYTES {
        let expected = format!("a string of at most {MAX_NAME_BYTES} bytes");
        return Err(field.fault(expected));
    }
    Ok(Some(text.to_owned()))
}

fn reasoning(message: &RequestField) -> Result<Option<String>, FieldError> {
    let names = ["reasoning_content", "reasoning", "thinking"];
    let said = names.map(|name| message.get(name));
    match said.into_iter().find(RequestField::is_present) {
        Some(field) => field.optional_text(),
        None => Ok(None),
    }
}

fn calls(
    field: &RequestField,
    role: Role,
    bounds: &RequestLimits,
) -> Result<Vec<ToolCall>, FieldError> {
    if !field.is_present() {
        return Ok(Vec::new());
    }
    let calls = field.items("calls", 0, bounds.parts)?;
    if role != Role::Assistant && calls.len() > 0 {
        return Err(field.fault("nothing: only the assistant calls tools"));
    }
    calls.map(|call| called(&call)).collect()
}

fn called(call: &RequestField) -> Result<ToolCall, FieldError> {
    call.object()?;
    let kind = call.get("type");
    if kind.is_present() && kind.text()? != "function" {
        return Err(kind.fault("`function`"));
    }
    let function = call.get("function");
    function.object()?;
    let (arguments, arguments_text) = arguments(&function.get("arguments"))?;
    let called = function.get("name");
    if called.text()?.is_empty() {
        return Err(called.fault("a function's name"));
    }
    Ok(ToolCall {
        id: name(&call.get("id"))?,
        name: name(&called)?.unwrap_or_default(),
        arguments,
        arguments_text,
    })
}

/// Parses the arguments of a call: JSON text, or an object from some clients. An empty text is a
/// call without arguments.
fn arguments(field: &RequestField) -> Result<(Map<String, Value>, String), FieldError> {
    let expected = "a string that holds a JSON object";
    match field.value {
        Value::Null => Ok((Map::new(), "{}".to_owned())),
        Value::Object(object) => Ok((object.clone(), field.value.to_string())),
        Value::String(text) if text.trim().is_empty() => Ok((Map::new(), "{}".to_owned())),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Ok((object, text.clone())),
            Ok(_) => Err(field.fault(expected)),
            Err(error) => {
                let found = format!("{} ({error})", quoted(text));
                Err(FieldError::at(&field.path, expected, found))
            }
        },
        _ => Err(field.fault(expected)),
    }
}
