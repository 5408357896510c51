//! Writes responses: the answer of a chat as output items, whole or item by item.

use serde_json::{Map, Value, json};

use crate::database::Timestamp;

/// Writes one response.
pub(super) struct ResponseWriter {
    /// The fields that the response repeats.
    echo: Map<String, Value>,
    /// The unique part of the ids.
    id: String,
    created_at: i64,
}

/// The end of a response.
#[derive(Debug, Default)]
pub(super) struct ResponseEnd {
    /// Why the chat ended.
    pub(super) finish: Option<String>,
    /// The usage, as a chat reports it.
    pub(super) usage: Value,
}

impl ResponseWriter {
    /// Creates the writer of a response.
    pub(super) fn new(echo: Map<String, Value>) -> Self {
        Self {
            echo,
            id: uuid::Uuid::now_v7().simple().to_string(),
            created_at: Timestamp::now().0 / 1000,
        }
    }

    /// Returns the id of an output item.
    pub(super) fn item_id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}{index:02x}", self.id)
    }

    /// Converts a chat completion. Any other answer gives `None`.
    pub(super) fn whole(&self, completion: &Value) -> Option<Value> {
        let choice = completion.get("choices")?.get(0)?;
        let message = choice.get("message")?;
        let mut output = Vec::new();
        if let Some(text) = message["reasoning_content"]
            .as_str()
            .filter(|it| !it.is_empty())
        {
            let id = self.item_id("rs", output.len());
            output.push(reasoning(&id, text));
        }
        if let Some(text) = message["content"].as_str() {
            let id = self.item_id("msg", output.len());
            output.push(message_item(&id, "completed", text));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = self.item_id("fc", output.len());
            let function = &call["function"];
            let arguments = function["arguments"].as_str().unwrap_or_default();
            let name = function["name"].as_str().unwrap_or_default();
            let call = (call["id"].as_str().unwrap_or_default(), name);
            output.push(function_call(&id, "completed", call, arguments));
        }
        let end = ResponseEnd {
            finish: choice["finish_reason"].as_str().map(str::to_owned),
            usage: completion["usage"].clone(),
        };
        Some(self.ended(&output, &end))
    }

    /// Returns the response at its begin.
    pub(super) fn begun(&self) -> Value {
        self.response("in_progress", &[])
    }

    /// Returns the response at its end.
    pub(super) fn ended(&self, output: &[Value], end: &ResponseEnd) -> Value {
        let is_cut = end.finish.as_deref() == Some("length");
        let status = if is_cut { "incomplete" } else { "completed" };
        let mut response = self.response(status, output);
        if is_cut {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        } else {
            response["completed_at"] = json!(Timestamp::now().0 / 1000);
        }
        let count = |name: &str| end.usage[name].as_u64().unwrap_or(0);
        let cached = end.usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        let reasoned = end.usage["completion_tokens_details"]["reasoning_tokens"].as_u64();
        response["usage"] = json!({
            "input_tokens": count("prompt_tokens"),
            "input_tokens_details": {"cached_tokens": cached.unwrap_or(0)},
            "output_tokens": count("completion_tokens"),
            "output_tokens_details": {"reasoning_tokens": reasoned.unwrap_or(0)},
            "total_tokens": count("total_tokens"),
        });
        response
    }

    /// Returns the response after an error.
    pub(super) fn failed(&self, output: &[Value], code: &str, message: &str) -> Value {
        let mut response = self.response("failed", output);
        response["error"] = json!({"code": code, "message": message});
        response
    }

    fn response(&self, status: &str, output: &[Value]) -> Value {
        let echo = |name: &str, otherwise: Value| self.echo.get(name).cloned().unwrap_or(otherwise);
        json!({
            "id": format!("resp_{}", self.id),
            "object": "response",
            "created_at": self.created_at,
            "completed_at": null,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": echo("instructions", Value::Null),
            "max_output_tokens": echo("max_output_tokens", Value::Null),
            "metadata": echo("metadata", json!({})),
            "model": echo("model", Value::Null),
            "output": output,
            "parallel_tool_calls": echo("parallel_tool_calls", json!(true)),
            "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null},
            "store": false,
            "temperature": echo("temperature", Value::Null),
            "text": echo("text", json!({"format": {"type": "text"}})),
            "tool_choice": echo("tool_choice", json!("auto")),
            "tools": echo("tools", json!([])),
            "top_p": echo("top_p", Value::Null),
            "truncation": "disabled",
            "usage": null,
            "user": null,
        })
    }
}

/// A part of a message with text.
pub(super) fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// An output item with a message.
pub(super) fn message_item(id: &str, status: &str, text: &str) -> Value {
    let content = if status == "in_progress" {
        Vec::new()
    } else {
        vec![text_part(text)]
    };
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
}

/// An output item with the call of a function, given by the call's id and the function's name.
pub(super) fn function_call(
    id: &str,
    status: &str,
    (call, name): (&str, &str),
    arguments: &str,
) -> Value {
    json!({
        "id": id, "type": "function_call", "status": status, "call_id": call, "name": name,
        "arguments": arguments,
    })
}

/// An output item with what the model thought.
pub(super) fn reasoning(id: &str, text: &str) -> Value {
    let content = if text.is_empty() {
        json!([])
    } else {
        json!([{"type": "reasoning_text", "text": text}])
    };
    json!({"id": id, "type": "reasoning", "summary": [], "content": content})
}
