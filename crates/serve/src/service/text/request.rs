//! Parses chat and completion requests, either as separate data and config or as one object.
//!
//! Invariant: a parsed request is within its bounds before anything is loaded or run.

use serde_json::{Map, Value};

use super::super::Refusal;
use super::super::adapter::{AdapterCall, AdapterMethod, AdapterMode};
use super::super::json;
use super::wire::{AnswerForm, AnswerKind};
use pkgtool_text::chat::{
    ChatPicture, ChatRequest, CompletionRequest, FieldError, Prompt, RequestLimits, Streaming,
    read_json,
};

/// A parsed request.
#[derive(Debug)]
pub(in super::super) enum TextRequest {
    /// The next message of a chat.
    Chat(Box<ChatRequest>),
    /// Words about a picture, without a chat around them.
    Reply(Box<ChatRequest>),
    /// The continuation of a text.
    Completion(Box<CompletionRequest>),
}

impl TextRequest {
    /// Parses a request from data and config. `chosen` are the config keys that select the model
    /// and do not belong to the request. Returns the request, and a config with only those keys.
    pub(in super::super) fn read(
        call: AdapterCall,
        body: &[u8],
        config: Option<&str>,
        chosen: &[&str],
    ) -> Result<(Self, Option<String>), Refusal> {
        let bounds = RequestLimits::default();
        let (fields, choice) = merged(call, body, config, chosen)?;
        let fields = Value::Object(fields);
        let asked = match call.method {
            AdapterMethod::Completion => {
                let asked = CompletionRequest::read(&fields, &bounds).map_err(|it| refusal(&it))?;
                Self::Completion(Box::new(asked))
            }
            AdapterMethod::Chat | AdapterMethod::Embeddings => {
                let asked = ChatRequest::read(&fields, &bounds).map_err(|it| refusal(&it))?;
                Self::Chat(Box::new(asked))
            }
        };
        Ok((asked, choice))
    }

    /// Returns its chat, if it is one.
    pub(super) fn chat(&self) -> Option<&ChatRequest> {
        match self {
            Self::Chat(chat) | Self::Reply(chat) => Some(chat),
            Self::Completion(_) => None,
        }
    }

    /// Returns the place of a picture in the client's request.
    pub(super) fn place(&self, picture: &ChatPicture) -> String {
        match self {
            Self::Reply(_) => picture.path.clone(),
            Self::Chat(_) | Self::Completion(_) => format!("$.{}", picture.path),
        }
    }

    /// Returns how its answer is streamed.
    pub(super) fn streaming(&self) -> Streaming {
        match self {
            Self::Chat(chat) | Self::Reply(chat) => chat.streaming,
            Self::Completion(asked) => asked.streaming,
        }
    }

    /// Returns the number of prompts; 1 for a chat.
    pub(super) fn prompts(&self) -> usize {
        match self {
            Self::Chat(_) | Self::Reply(_) => 1,
            Self::Completion(asked) => asked.prompts.len(),
        }
    }

    /// Returns the number of answers per prompt.
    pub(super) fn choices(&self) -> usize {
        match self {
            Self::Chat(chat) | Self::Reply(chat) => chat.choices as usize,
            Self::Completion(asked) => asked.choices as usize,
        }
    }

    /// Returns the form of the answer. `model` is the service's name, used if the request names no
    /// model.
    pub(super) fn form(&self, model: &str, has_logprobs: bool) -> AnswerForm {
        let (kind, named, echo) = match self {
            Self::Chat(chat) | Self::Reply(chat) => (AnswerKind::Chat, &chat.model, Vec::new()),
            Self::Completion(asked) => {
                let prompts = asked.prompts.iter().filter(|_| asked.echo);
                let texts = prompts.map(|prompt| match prompt {
                    Prompt::Text(text) => text.clone(),
                    Prompt::Tokens(_) => String::new(),
                });
                (AnswerKind::Text, &asked.model, texts.collect())
            }
        };
        AnswerForm {
            kind,
            model: named.clone().unwrap_or_else(|| model.to_owned()),
            includes_usage: self.streaming().include_usage,
            has_logprobs,
            echo,
        }
    }
}

/// Merges the fields of a request's data and config. The `chosen` keys are returned separately, as
/// their own config.
pub(in super::super) fn merged(
    call: AdapterCall,
    body: &[u8],
    config: Option<&str>,
    chosen: &[&str],
) -> Result<(Map<String, Value>, Option<String>), Refusal> {
    let bounds = RequestLimits::default();
    let mut fields = object(json::text(body)?, "$", &bounds)?;
    let mut choice = Map::new();
    if let Some(config) = config.filter(|config| !matches!(config.trim(), "" | "null")) {
        for (key, value) in object(config, "$.config", &bounds)? {
            if chosen.contains(&key.as_str()) {
                choice.insert(key, value);
            } else if call.mode == AdapterMode::Standard {
                // Data takes precedence: a config cannot change the request.
                fields.entry(key).or_insert(value);
            }
        }
    }
    let choice = (!choice.is_empty()).then(|| Value::Object(choice).to_string());
    Ok((fields, choice))
}

fn object(text: &str, place: &str, bounds: &RequestLimits) -> Result<Map<String, Value>, Refusal> {
    if let Value::Object(fields) = read_json(text.as_bytes(), bounds).map_err(|it| refusal(&it))? {
        return Ok(fields);
    }
    let found = json::kind(text);
    let message = format!("expected an object, got {found}");
    Err(Refusal::at(place, message))
}

fn refusal(fault: &FieldError) -> Refusal {
    let place = if fault.path.is_empty() {
        "$".to_owned()
    } else {
        format!("$.{}", fault.path)
    };
    Refusal::at(place, fault.to_string())
}
