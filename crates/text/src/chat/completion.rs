//! Parses a text completion request.

use serde_json::{Map, Value};

use super::bounds::RequestLimits;
use super::fault::FieldError;
use super::field::RequestField;
use super::request::unparsed_fields;
use super::shared::{Streaming, choices, max_tokens, model};

/// The prompt to be continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// The prompt as text.
    Text(String),
    /// The prompt as token ids; at least one.
    Tokens(Vec<u32>),
}

/// A text completion request.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The requested model, if any.
    pub model: Option<String>,
    /// The prompts; at least one.
    pub prompts: Vec<Prompt>,
    /// True if answers repeat the prompt.
    pub echo: bool,
    /// The text after the answer, for models that fill in the middle.
    pub suffix: Option<String>,
    /// Number of answers to generate, of which the best `choices` are returned; at least `choices`.
    pub best_of: u32,
    /// Streaming options.
    pub streaming: Streaming,
    /// Number of answers to each prompt.
    pub choices: u32,
    /// Maximum number of tokens of an answer; 0 only with `echo`. `None` allows the rest of the
    /// context.
    pub max_tokens: Option<u32>,
    /// All other fields, unparsed: as in [`ChatRequest`](super::ChatRequest::fields), except that
    /// `logprobs` is a number.
    pub fields: Map<String, Value>,
}

impl CompletionRequest {
    /// Parses a request.
    pub fn read(request: &Value, bounds: &RequestLimits) -> Result<Self, FieldError> {
        let root = RequestField::root(request);
        root.object()?;
        let prompts = prompts(&root.get("prompt"), bounds)?;
        let echo = root.get("echo").flag()?;
        let choices = choices(&root, bounds)?;
        let streaming = Streaming::read(&root)?;
        let best_of = root.get("best_of").count(choices..=bounds.choices)?;
        let best_of = best_of.unwrap_or(choices);
        if best_of > choices && streaming.stream {
            return Err(root.get("best_of").fault("`n` where `stream` is true"));
        }
        Ok(Self {
            model: model(&root)?,
            prompts,
            echo,
            suffix: root.get("suffix").optional_text()?,
            best_of,
            streaming,
            choices,
            max_tokens: max_tokens(&root, u32::from(!echo), bounds)?,
            fields: unparsed_fields(&root, &PARSED_FIELDS)?,
        })
    }
}

/// Fields that this module parses.
const PARSED_FIELDS: [&str; 10] = [
    "model",
    "prompt",
    "echo",
    "suffix",
    "best_of",
    "stream",
    "stream_options",
    "n",
    "max_tokens",
    "max_completion_tokens",
];

/// Parses a text, a list of texts, tokens, or a list of token lists.
fn prompts(field: &RequestField, bounds: &RequestLimits) -> Result<Vec<Prompt>, FieldError> {
    let expected = "a string, a list of strings, token ids, or a list of lists of token ids";
    match field.value {
        Value::String(text) => Ok(vec![Prompt::Text(text.clone())]),
        Value::Array(items) => match items.first() {
            Some(Value::Number(_)) => Ok(vec![tokens(field)?]),
            Some(Value::String(_)) => field
                .items("strings", 1, bounds.prompts)?
                .map(|item| Ok(Prompt::Text(item.text()?.to_owned())))
                .collect(),
            Some(Value::Array(_)) => {
                let lists = field.items("lists of token ids", 1, bounds.prompts)?;
                lists.map(|list| tokens(&list)).collect()
            }
            _ => Err(field.fault(expected)),
        },
        _ => Err(field.fault(expected)),
    }
}

fn tokens(field: &RequestField) -> Result<Prompt, FieldError> {
    // The path of an item is built only for an error: a prompt may have a hundred thousand tokens.
    let expected = "a token id";
    let items = field.value.as_array();
    let items = items.filter(|items| !items.is_empty());
    let items = items.ok_or_else(|| field.fault("a list of token ids"))?;
    let id = |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids: Option<Vec<u32>> = items.iter().map(id).collect();
    ids.map(Prompt::Tokens).ok_or_else(|| {
        let place = items.iter().position(|item| id(item).is_none());
        let place = place.unwrap_or_default();
        let item = RequestField {
            path: format!("{}[{place}]", field.path),
            value: &items[place],
        };
        item.fault(expected)
    })
}
