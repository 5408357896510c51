//! What a template sees.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A conversation in the form that templates expect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Messages as objects: `role`, `content`, what else the template knows. Reasoning may have any of
    /// its names.
    pub messages: Vec<Value>,
    /// Tools as objects, as the caller wrote them; absent where there are none.
    pub tools: Option<Vec<Value>>,
    /// Whether the text ends with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// Further variables of the template. They go before those of the package and before the above,
    /// but for messages and tools.
    pub variables: Map<String, Value>,
}

impl Conversation {
    /// These messages, to be answered.
    pub fn of(messages: Vec<Value>) -> Self {
        Self {
            messages,
            tools: None,
            add_generation_prompt: true,
            variables: Map::new(),
        }
    }
}

/// Names under which templates look for what an assistant thought, the first one by most.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A message with its reasoning under the names that templates know, as `transformers` has it.
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
