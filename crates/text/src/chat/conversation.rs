//! Converts a chat request into the messages that a chat template renders.
//!
//! Clients send the same content in several forms, and each template accepts only some of them.
//! Invariant: whatever form was sent, the template gets one that it accepts.

use serde_json::{Map, Value, json};

use super::message::{Content, ContentPart, Message, ToolCall};
use super::picture::ChatPicture;
use super::request::ChatRequest;
use super::tool::ToolChoice;
use crate::template::{Conversation, TemplateTakes};

impl ChatRequest {
    /// Builds the conversation for a template that accepts these forms. If `tool_choice` forbids
    /// calls, the template sees no tools. `mark` stands for a picture in texts; without it, pictures are parts.
    pub fn conversation(&self, takes: TemplateTakes, mark: Option<&str>) -> Conversation {
        let messages = self.messages.iter();
        let tools = self.tools.iter().map(|tool| tool.json.clone());
        let with_tools = !self.tools.is_empty() && self.tool_choice != ToolChoice::None;
        Conversation {
            messages: messages.map(|message| message.json(takes, mark)).collect(),
            tools: with_tools.then(|| tools.collect()),
            add_generation_prompt: true,
            variables: self.variables.clone(),
        }
    }

    /// Returns the pictures of all messages, in order.
    pub fn pictures(&self) -> impl Iterator<Item = &ChatPicture> {
        let contents = self.messages.iter().map(|message| &message.content);
        contents.flat_map(|content| {
            let parts = match content {
                Content::Parts(parts) => &parts[..],
                _ => &[],
            };
            parts.iter().filter_map(|part| match part {
                ContentPart::Picture(picture) => Some(picture),
                ContentPart::Text(_) => None,
            })
        })
    }

    /// Makes something of each different picture, in order.
    pub fn each_picture<T, E>(
        &self,
        make: impl FnMut(&ChatPicture) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let mut different: Vec<&ChatPicture> = Vec::new();
        for picture in self.pictures() {
            if different.iter().all(|it| it.id != picture.id) {
                different.push(picture);
            }
        }
        different.into_iter().map(make).collect()
    }

    /// Returns the place of the first message whose text contains this one.
    pub(crate) fn message_with(&self, text: &str) -> Option<usize> {
        let mut contents = self.messages.iter().map(|message| &message.content);
        contents.position(|content| match content {
            Content::Absent => false,
            Content::Text(said) => said.contains(text),
            Content::Parts(parts) => parts
                .iter()
                .any(|part| matches!(part, ContentPart::Text(said) if said.contains(text))),
        })
    }
}

impl Message {
    fn json(&self, takes: TemplateTakes, mark: Option<&str>) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        put("role", self.role.name().into());
        put("content", self.content.json(takes, mark));
        if let Some(name) = &self.name {
            put("name", name.as_str().into());
        }
        if let Some(reasoning) = &self.reasoning {
            put("reasoning_content", reasoning.as_str().into());
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(|call| call.json(takes));
            put("tool_calls", calls.collect());
        }
        if let Some(id) = &self.tool_call_id {
            put("tool_call_id", id.as_str().into());
        }
        fields.into()
    }
}

impl Content {
    /// Returns one string, or a list of parts if the template loops over parts.
    fn json(&self, takes: TemplateTakes, mark: Option<&str>) -> Value {
        let part = |text: &str| json!({"type": "text", "text": text});
        match self {
            // Templates concatenate contents, so a missing one would be an error.
            Self::Absent => "".into(),
            Self::Text(text) if takes.texts => text.as_str().into(),
            Self::Text(text) => json!([part(text)]),
            Self::Parts(parts) if takes.parts => {
                let parts = parts.iter().map(|it| match (it, mark) {
                    (ContentPart::Text(text), _) => part(text),
                    (ContentPart::Picture(_), Some(mark)) => part(mark),
                    (ContentPart::Picture(_), None) => json!({"type": "image"}),
                });
                parts.collect()
            }
            Self::Parts(parts) => {
                let texts = parts.iter().map(|it| match it {
                    ContentPart::Text(text) => text,
                    ContentPart::Picture(_) => mark.unwrap_or_default(),
                });
                texts.collect::<Vec<_>>().join("\n").into()
            }
        }
    }
}

impl ToolCall {
    fn json(&self, takes: TemplateTakes) -> Value {
        let arguments = if takes.argument_objects {
            self.arguments.clone().into()
        } else {
            Value::from(self.arguments_text.as_str())
        };
        let function = json!({"name": self.name, "arguments": arguments});
        match &self.id {
            Some(id) => json!({"id": id, "type": "function", "function": function}),
            None => json!({"type": "function", "function": function}),
        }
    }
}
