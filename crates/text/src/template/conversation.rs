//! The conversation that a chat template renders.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A conversation in the form that templates expect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Messages as objects with `role`, `content` and other fields that the template knows.
    /// Reasoning may have any of its usual names.
    pub messages: Vec<Value>,
    /// Tools as objects, as the caller wrote them; `None` without tools.
    pub tools: Option<Vec<Value>>,
    /// True if the prompt ends with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// Further template variables. They override those of the package and the fields above, except
    /// for messages and tools.
    pub variables: Map<String, Value>,
}

impl Conversation {
    /// Creates a conversation of these messages that awaits an answer.
    pub fn of(messages: Vec<Value>) -> Self {
        Self {
            messages,
            tools: None,
            add_generation_prompt: true,
            variables: Map::new(),
        }
    }
}

/// Field names that templates use for an assistant's reasoning, most common first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Copies a message's reasoning to all names that templates use, as `transformers` does.
pub(super) fn with_reasoning(message: &Value) -> Cow<'_, Value> {
    let Some(fields) = message.as_object() else {
        return Cow::Borrowed(message);
    };
    let said = |name: &&str| fields.get(*name).filter(|value| !value.is_null());
    let Some(reasoning) = REASONING.iter().find_map(said) else {
        return Cow::Borrowed(message);
    };
    let mut named = Map::new();
    named.insert("thinking".to_owned(), reasoning.clone());
    named.extend(fields.clone());
    named.insert("reasoning_content".to_owned(), reasoning.clone());
    Cow::Owned(named.into())
}
