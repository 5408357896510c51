//! Converts a request for a response to a chat request.
//!
//! Fields that only concern what is stored elsewhere have no effect. Fields that would change the
//! answer and that a chat lacks are refused.

use serde_json::{Map, Value, json};

use crate::service::{Refusal, json};
use pkgtool_text::chat::{RequestLimits, read_json};

/// Fields without an effect: nothing is stored, and there is one kind of service.
const IGNORED: [&str; 12] = [
    "include",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "top_logprobs",
    "truncation",
    "user",
];

/// Fields that need stored responses.
const STATEFUL: [&str; 4] = [
    "background",
    "conversation",
    "previous_response_id",
    "prompt",
];

/// Fields that the response repeats.
const ECHOED: [&str; 10] = [
    "instructions",
    "max_output_tokens",
    "metadata",
    "model",
    "parallel_tool_calls",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
];

/// A chat request, and the fields that the response repeats.
pub(super) struct ChatOfResponse {
    pub(super) chat: Value,
    pub(super) echo: Map<String, Value>,
    pub(super) streams: bool,
}

impl ChatOfResponse {
    /// Reads the body of a request.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let fields = read_json(body, &RequestLimits::default());
        let fields = fields.map_err(|fault| Refusal::at("$", fault.to_string()))?;
        let Value::Object(fields) = fields else {
            return Err(wrong("$", "an object", &fields));
        };
        let echo = fields
            .iter()
            .filter(|(key, _)| ECHOED.contains(&key.as_str()));
        let echo = echo
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let streams = fields.get("stream") == Some(&Value::Bool(true));
        let mut chat = Map::new();
        let mut messages = Vec::new();
        if let Some(text) = fields.get("instructions").filter(|text| !text.is_null()) {
            if !text.is_string() {
                return Err(wrong("$.instructions", "a text", text));
            }
            messages.push(json!({"role": "system", "content": text}));
        }
        messages.extend(messages_of(fields.get("input").unwrap_or(&Value::Null))?);
        chat.insert("messages".to_owned(), Value::Array(messages));
        for (key, value) in fields {
            add(&mut chat, &key, value)?;
        }
        if streams {
            chat.insert("stream_options".to_owned(), json!({"include_usage": true}));
        }
        Ok(Self {
            chat: Value::Object(chat),
            echo,
            streams,
        })
    }
}

/// Adds a field of the request to the chat.
fn add(chat: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), Refusal> {
    if value.is_null() || IGNORED.contains(&key) || ["input", "instructions"].contains(&key) {
        return Ok(());
    }
    if STATEFUL.contains(&key) {
        if value == Value::Bool(false) {
            return Ok(());
        }
        let message = format!(
            "`{key}` needs stored responses, which this server does not have; send the whole conversation in `input`"
        );
        return Err(Refusal::at(format!("$.{key}"), message));
    }
    let (key, value) = match key {
        "max_output_tokens" => ("max_completion_tokens", value),
        "tools" => ("tools", tools(&value)?),
        "tool_choice" => ("tool_choice", tool_choice(value)),
        "text" => match response_format(&value) {
            Some(format) => ("response_format", format),
            None => return Ok(()),
        },
        key => (key, value),
    };
    chat.insert(key.to_owned(), value);
    Ok(())
}

/// Returns the messages of an input.
fn messages_of(input: &Value) -> Result<Vec<Value>, Refusal> {
    let items = match input {
        Value::String(text) => return Ok(vec![json!({"role": "user", "content": text})]),
        Value::Array(items) => items,
        other => return Err(wrong("$.input", "a text or a list of items", other)),
    };
    let mut messages: Vec<Value> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let place = format!("$.input[{at}]");
        let kind = item["type"].as_str().unwrap_or("message");
        match kind {
            "message" => messages.push(message(item, &place)?),
            "function_call" => {
                let call = json!({
                    "id": item["call_id"],
                    "type": "function",
                    "function": {"name": item["name"], "arguments": item["arguments"]},
                });
                // Calls of one turn are one message.
                match messages.last_mut() {
                    Some(last) if last["role"] == "assistant" => match &mut last["tool_calls"] {
                        Value::Array(calls) => calls.push(call),
                        calls => *calls = json!([call]),
                    },
                    _ => messages
                        .push(json!({"role": "assistant", "content": null, "tool_calls": [call]})),
                }
            }
            "function_call_output" => messages.push(json!({
                "role": "tool",
                "tool_call_id": item["call_id"],
                "content": content(&item["output"], &format!("{place}.output"))?,
            })),
            // Earlier thoughts do not belong to the next prompt.
            "reasoning" => {}
            other => {
                let message = format!(
                    "unknown item {}: expected message, function_call, function_call_output or reasoning",
                    json::shown(other)
                );
                return Err(Refusal::at(format!("{place}.type"), message));
            }
        }
    }
    Ok(messages)
}

fn message(item: &Value, place: &str) -> Result<Value, Refusal> {
    if !item.is_object() {
        return Err(wrong(place, "an object", item));
    }
    let content = content(&item["content"], &format!("{place}.content"))?;
    Ok(json!({"role": item["role"], "content": content}))
}

/// Converts the content of a message: a text, or its parts.
fn content(content: &Value, place: &str) -> Result<Value, Refusal> {
    let Value::Array(parts) = content else {
        return Ok(content.clone());
    };
    let parts = parts.iter().enumerate().map(|(at, part)| {
        match part["type"].as_str().unwrap_or_default() {
            "input_text" | "output_text" | "text" => {
                Ok(json!({"type": "text", "text": part["text"]}))
            }
            "refusal" => Ok(json!({"type": "text", "text": part["refusal"]})),
            "input_image" if part["image_url"].is_string() => {
                Ok(json!({"type": "image_url", "image_url": {"url": part["image_url"]}}))
            }
            _ => {
                let place = format!("{place}[{at}]");
                let expected = "a part of type input_text, output_text, refusal, or input_image with `image_url`";
                Err(wrong(&place, expected, part))
            }
        }
    });
    parts
        .collect::<Result<Vec<Value>, Refusal>>()
        .map(Value::Array)
}

/// Converts tools: a function's fields are in an object of their own in a chat.
fn tools(tools: &Value) -> Result<Value, Refusal> {
    let Value::Array(all) = tools else {
        return Err(wrong("$.tools", "a list", tools));
    };
    let converted = all.iter().enumerate().map(|(at, tool)| {
        if tool["type"] != "function" {
            let message = "only functions are supported as tools";
            return Err(Refusal::at(format!("$.tools[{at}].type"), message));
        }
        let mut function = tool.as_object().cloned().unwrap_or_default();
        function.remove("type");
        function.retain(|_, value| !value.is_null());
        Ok(json!({"type": "function", "function": function}))
    });
    converted
        .collect::<Result<Vec<Value>, Refusal>>()
        .map(Value::Array)
}

fn tool_choice(choice: Value) -> Value {
    if choice["type"] == "function" {
        return json!({"type": "function", "function": {"name": choice["name"]}});
    }
    choice
}

/// Returns the format that `text` asks for, if it is not plain text.
fn response_format(text: &Value) -> Option<Value> {
    let format = text.get("format").filter(|format| !format.is_null())?;
    match format["type"].as_str() {
        Some("text") => None,
        Some("json_schema") => {
            let mut schema = format.as_object().cloned().unwrap_or_default();
            schema.remove("type");
            schema.retain(|_, value| !value.is_null());
            Some(json!({"type": "json_schema", "json_schema": schema}))
        }
        _ => Some(format.clone()),
    }
}

fn wrong(place: &str, expected: &str, found: &Value) -> Refusal {
    let found = json::kind(&found.to_string());
    Refusal::at(place, format!("expected {expected}, got {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &Value) -> Value {
        let read = ChatOfResponse::read(body.to_string().as_bytes());
        read.map_err(|refusal| refusal.message)
            .expect("a request")
            .chat
    }

    #[test]
    fn a_text_is_a_message_of_the_user() {
        let body = json!({
            "model": "a/b", "input": "Hello", "instructions": "Be brief.", "max_output_tokens": 5,
            "store": false, "metadata": {"a": "b"}, "temperature": 0, "backend": "xnnpack",
        });
        let expected = json!({
            "model": "a/b", "max_completion_tokens": 5, "temperature": 0, "backend": "xnnpack",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello"},
            ],
        });
        assert_eq!(chat(&body), expected);
    }

    #[test]
    fn calls_and_their_outputs_are_messages() {
        let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
        let body = json!({"model": "a/b", "input": [
            {"role": "user", "content": [
                {"type": "input_text", "text": "See"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"},
            ]},
            {"type": "reasoning", "summary": []},
            call("1"),
            call("2"),
            {"type": "function_call_output", "call_id": "1", "output": "3"},
        ]});
        let told = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let expected = json!([
            {"role": "user", "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [told("1"), told("2")]},
            {"role": "tool", "tool_call_id": "1", "content": "3"},
        ]);
        assert_eq!(chat(&body)["messages"], expected);
    }

    #[test]
    fn tools_and_formats_have_the_form_of_a_chat() {
        let schema = json!({"type": "object"});
        let body = json!({
            "model": "a/b", "input": "x", "stream": true,
            "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": null}],
            "tool_choice": {"type": "function", "name": "f"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": true}},
        });
        let chat = chat(&body);
        let function = json!({"name": "f", "parameters": schema});
        assert_eq!(
            chat["tools"],
            json!([{"type": "function", "function": function}])
        );
        assert_eq!(
            chat["tool_choice"],
            json!({"type": "function", "function": {"name": "f"}})
        );
        let format = json!({"name": "n", "schema": schema, "strict": true});
        assert_eq!(
            chat["response_format"],
            json!({"type": "json_schema", "json_schema": format})
        );
        assert_eq!(chat["stream_options"], json!({"include_usage": true}));
    }

    #[test]
    fn what_a_chat_lacks_is_refused_with_its_place() {
        for (body, place) in [
            (json!([]), "$"),
            (json!({"model": "a/b"}), "$.input"),
            (json!({"input": 1}), "$.input"),
            (json!({"input": "x", "instructions": 1}), "$.instructions"),
            (
                json!({"input": "x", "previous_response_id": "resp_1"}),
                "$.previous_response_id",
            ),
            (json!({"input": "x", "background": true}), "$.background"),
            (json!({"input": [1]}), "$.input[0]"),
            (
                json!({"input": [{"type": "item_reference", "id": "x"}]}),
                "$.input[0].type",
            ),
            (
                json!({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}),
                "$.input[0].content[0]",
            ),
            (
                json!({"input": "x", "tools": [{"type": "web_search"}]}),
                "$.tools[0].type",
            ),
            (json!({"input": "x", "tools": {}}), "$.tools"),
        ] {
            let refused = ChatOfResponse::read(body.to_string().as_bytes()).err();
            let found = refused.and_then(|refusal| refusal.place);
            assert_eq!(found.as_deref(), Some(place), "{body}");
        }
        assert!(ChatOfResponse::read(b"{").is_err());
    }
}
