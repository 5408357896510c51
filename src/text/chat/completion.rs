//! A text completion as a client asks for it.

use serde_json::{Map, Value};

use super::bounds::Bounds;
use super::fault::Fault;
use super::field::Field;
use super::request::rest;
use super::shared::{Streaming, choices, max_tokens, model};

/// What is to be continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// A text.
    Text(String),
    /// Tokens by their ids, at least one.
    Tokens(Vec<u32>),
}

/// A request for text completions.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The model that is asked, where the request names it.
    pub model: Option<String>,
    /// At least one.
    pub prompts: Vec<Prompt>,
    /// Whether answers begin with the prompt.
    pub echo: bool,
    /// What comes after the answer, for models that fill in.
    pub suffix: Option<String>,
    /// Of so many answers the best `choices` are given; at least these.
    pub best_of: u32,
    /// How it is sent.
    pub streaming: Streaming,
    /// Number of answers to each prompt.
    pub choices: u32,
    /// Most tokens of an answer; 0 only with `echo`. Up to the context where nobody says.
    pub max_tokens: Option<u32>,
    /// All fields but the above, unread: as in [`ChatRequest`](super::ChatRequest::fields), where `logprobs` is a number.
    pub fields: Map<String, Value>,
}

impl CompletionRequest {
    /// Reads a request.
    pub fn read(request: &Value, bounds: &Bounds) -> Result<Self, Fault> {
        let root = Field::root(request);
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
            fields: rest(&root, &READ)?,
        })
    }
}

/// Fields that are read here.
const READ: [&str; 10] = [
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

/// A text, texts, tokens, or lists of tokens.
fn prompts(field: &Field, bounds: &Bounds) -> Result<Vec<Prompt>, Fault> {
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

fn tokens(field: &Field) -> Result<Prompt, Fault> {
    // One path for each of a hundred thousand tokens would be a waste: it is made for the fault alone.
    let expected = "a token id";
    let items = field.value.as_array();
    let items = items.filter(|items| !items.is_empty());
    let items = items.ok_or_else(|| field.fault("a list of token ids"))?;
    let id = |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids: Option<Vec<u32>> = items.iter().map(id).collect();
    ids.map(Prompt::Tokens).ok_or_else(|| {
        let place = items.iter().position(|item| id(item).is_none());
        let place = place.unwrap_or_default();
        let item = Field {
            path: format!("{}[{place}]", field.path),
            value: &items[place],
        };
        item.fault(expected)
    })
}
