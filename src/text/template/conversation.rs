//! What a template sees.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A conversation in the form that templates expect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Messages as objects: `role`, `content`, what else the template knows.
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
