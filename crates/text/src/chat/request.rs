//! Parses a chat completion request.

use serde_json::{Map, Value, json};

use super::bounds::RequestLimits;
use super::fault::FieldError;
use super::field::RequestField;
use super::format::ResponseFormat;
use super::message::{Content, ContentPart, Message};
use super::picture::ChatPicture;
use super::shared::{Streaming, choices, max_tokens, model};
use super::tool::{Tool, ToolChoice, tools};

/// Template variables that come from the request itself.
const RESERVED_VARIABLES: [&str; 2] = ["messages", "tools"];

/// A chat completion request.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The requested model, if any.
    pub model: Option<String>,
    /// The messages; at least one.
    pub messages: Vec<Message>,
    /// Functions that the model may call.
    pub tools: Vec<Tool>,
    /// The rule for tool calls.
    pub tool_choice: ToolChoice,
    /// True if the model may make several calls in one answer.
    pub parallel_tool_calls: bool,
    /// The format of the answer.
    pub response_format: ResponseFormat,
    /// Streaming options.
    pub streaming: Streaming,
    /// Number of answers.
    pub choices: u32,
    /// Maximum number of tokens of an answer; `None` allows the rest of the context.
    pub max_tokens: Option<u32>,
    /// Template variables (`chat_template_kwargs`, `reasoning_effort`, `documents`).
    pub variables: Map<String, Value>,
    /// All other fields, unparsed: sampling settings (`temperature`, `top_p`, `top_k`, `min_p`,
    /// penalties, `seed`, `logit_bias`, `logprobs`, `top_logprobs`) and stop strings (`stop`).
    pub fields: Map<String, Value>,
}

impl ChatRequest {
    /// Creates a request for an answer of at most `max_tokens` tokens about a picture, which errors name as `place`.
    pub fn about_picture(
        (picture, place): (&[u8], &str),
        question: &str,
        max_tokens: u32,
    ) -> Result<Self, FieldError> {
        let messages = json!([{"role": "user", "content": question}]);
        let request = json!({"messages": messages, "max_tokens": max_tokens});
        let mut read = Self::read(&request, &RequestLimits::default())?;
        let picture = ContentPart::Picture(ChatPicture::new(picture, place));
        let question = ContentPart::Text(question.to_owned());
        read.messages[0].content = Content::Parts(vec![picture, question]);
        Ok(read)
    }

    /// Parses a request.
    pub fn read(request: &Value, bounds: &RequestLimits) -> Result<Self, FieldError> {
        let root = RequestField::root(request);
        root.object()?;
        let messages = root.get("messages");
        let messages = messages.items("messages", 1, bounds.messages)?;
        let tools = tools(&root, bounds)?;
        let read = Self {
            model: model(&root)?,
            messages: messages
                .map(|message| Message::read(&message, bounds))
                .collect::<Result<_, _>>()?,
            tool_choice: ToolChoice::read(&root.get("tool_choice"), &tools)?,
            tools,
            parallel_tool_calls: parallel(&root)?,
            response_format: ResponseFormat::read(&root.get("response_format"))?,
            streaming: Streaming::read(&root)?,
            choices: choices(&root, bounds)?,
            max_tokens: max_tokens(&root, 1, bounds)?,
            variables: variables(&root)?,
            fields: unparsed_fields(&root, &PARSED_FIELDS)?,
        };
        if let Some(beyond) = read.pictures().nth(bounds.pictures) {
            let expected = format!("at most {} pictures in all messages", bounds.pictures);
            return Err(FieldError::at(&beyond.path, expected, "one more"));
        }
        Ok(read)
    }
}

/// Fields that this module parses.
const PARSED_FIELDS: [&str; 14] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "stream",
    "stream_options",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "chat_template_kwargs",
    "reasoning_effort",
    "documents",
];

/// Returns the fields that are not in `read`.
pub(super) fn unparsed_fields(
    request: &RequestField,
    read: &[&str],
) -> Result<Map<String, Value>, FieldError> {
    let fields = request.object()?.iter();
    let unread = fields.filter(|(name, _)| !read.contains(&name.as_str()));
    Ok(unread
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect())
}

fn parallel(request: &RequestField) -> Result<bool, FieldError> {
    let field = request.get("parallel_tool_calls");
    if field.is_present() {
        field.flag()
    } else {
        Ok(true)
    }
}

fn variables(request: &RequestField) -> Result<Map<String, Value>, FieldError> {
    let mut variables = Map::new();
    if let Some(effort) = request.get("reasoning_effort").there() {
        variables.insert("reasoning_effort".to_owned(), effort.text()?.into());
    }
    if let Some(documents) = request.get("documents").there() {
        for document in documents.items("documents", 0, usize::MAX)? {
            document.object()?;
        }
        variables.insert("documents".to_owned(), documents.value.clone());
    }
    let Some(field) = request.get("chat_template_kwargs").there() else {
        return Ok(variables);
    };
    for (name, value) in field.object()? {
        if RESERVED_VARIABLES.contains(&name.as_str()) {
            let expected = format!("nothing: `{name}` is a field of the request itself");
            return Err(field.get(name).fault(expected));
        }
        variables.insert(name.clone(), value.clone());
    }
    Ok(variables)
}
