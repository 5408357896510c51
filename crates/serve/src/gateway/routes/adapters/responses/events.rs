//! Converts the events of a chat to those of a response, as they arrive.
//!
//! Invariant: an item is announced before its pieces, and completed before the next one begins. The
//! last event holds the whole response.

use std::fmt::Write as _;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use super::answer::{
    ResponseEnd, ResponseWriter, function_call, message_item, reasoning, text_part,
};
use crate::service::events::{KEEP_ALIVE, data};

/// Converts the body of a streamed chat. Its pieces are whole events.
pub(super) fn converted(response: Response, writer: ResponseWriter) -> Response {
    let (head, body) = response.into_parts();
    let converter = Converter::new(writer);
    let pieces = body.into_data_stream();
    let events = stream::unfold((pieces, converter), async |(mut pieces, mut converter)| {
        if converter.is_over {
            return None;
        }
        let text = match pieces.next().await {
            Some(Ok(piece)) => converter.take(&piece),
            Some(Err(error)) => converter.fail("SERVICE_FAILED", &error.to_string()),
            None => converter.end(),
        };
        Some((
            Ok::<_, std::convert::Infallible>(Bytes::from(text)),
            (pieces, converter),
        ))
    });
    Response::from_parts(head, Body::from_stream(events))
}

struct Converter {
    writer: ResponseWriter,
    number: usize,
    /// Completed items.
    output: Vec<Value>,
    open: Option<OpenItem>,
    end: ResponseEnd,
    is_begun: bool,
    is_over: bool,
}

/// The item whose pieces arrive.
struct OpenItem {
    id: String,
    kind: ItemKind,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
    /// Index in the chat, id and name.
    Call(u64, String, String),
}

impl Converter {
    fn new(writer: ResponseWriter) -> Self {
        Self {
            writer,
            number: 0,
            output: Vec::new(),
            open: None,
            end: ResponseEnd::default(),
            is_begun: false,
            is_over: false,
        }
    }

    /// Converts whole events of the chat.
    fn take(&mut self, events: &[u8]) -> String {
        let mut text = String::new();
        for event in data(events) {
            if event == b"[DONE]" {
                text += &self.end();
                break;
            }
            let Ok(chunk) = serde_json::from_slice::<Value>(event) else {
                continue;
            };
            if let Some(error) = chunk.get("error") {
                let code = error["code"]
                    .as_str()
                    .unwrap_or("SERVICE_FAILED")
                    .to_owned();
                let message = error["message"].as_str().unwrap_or_default().to_owned();
                text += &self.fail(&code, &message);
                break;
            }
            text += &self.begin();
            if chunk["usage"].is_object() {
                self.end.usage = chunk["usage"].clone();
            }
            let choice = &chunk["choices"][0];
            if let Some(reason) = choice["finish_reason"].as_str() {
                self.end.finish = Some(reason.to_owned());
            }
            self.add(&choice["delta"], &mut text);
        }
        if text.is_empty() {
            KEEP_ALIVE.clone_into(&mut text);
        }
        text
    }

    /// Adds what a chunk of the chat brings.
    fn add(&mut self, delta: &Value, text: &mut String) {
        if let Some(piece) = delta["reasoning_content"]
            .as_str()
            .filter(|it| !it.is_empty())
        {
            self.open(&ItemKind::Reasoning, text);
            self.piece(piece, text);
        }
        if let Some(piece) = delta["content"].as_str().filter(|it| !it.is_empty()) {
            self.open(&ItemKind::Message, text);
            self.piece(piece, text);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap_or(0);
            let is_known = matches!(&self.open, Some(OpenItem { kind: ItemKind::Call(known, ..), .. }) if *known == index);
            if !is_known {
                let id = call["id"].as_str().unwrap_or_default().to_owned();
                let name = call["function"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                self.open(&ItemKind::Call(index, id, name), text);
            }
            if let Some(piece) = call["function"]["arguments"]
                .as_str()
                .filter(|it| !it.is_empty())
            {
                self.piece(piece, text);
            }
        }
    }

    /// Opens an item of a kind, unless it is open, after the end of the one before.
    fn open(&mut self, kind: &ItemKind, text: &mut String) {
        if self.open.as_ref().is_some_and(|open| open.kind == *kind) {
            return;
        }
        self.close(text);
        let index = self.output.len();
        let (prefix, is_message) = match kind {
            ItemKind::Message => ("msg", true),
            ItemKind::Reasoning => ("rs", false),
            ItemKind::Call(..) => ("fc", false),
        };
        let open = OpenItem {
            id: self.writer.item_id(prefix, index),
            kind: kind.clone(),
            text: String::new(),
        };
        let item = open.item("in_progress");
        self.event(
            text,
            "response.output_item.added",
            json!({"output_index": index, "item": item}),
        );
        if is_message {
            let part = json!({
                "item_id": open.id, "output_index": index, "content_index": 0, "part": text_part(""),
            });
            self.event(text, "response.content_part.added", part);
        }
        self.open = Some(open);
    }

    /// Adds a piece to the open item.
    fn piece(&mut self, piece: &str, text: &mut String) {
        let index = self.output.len();
        let Some(open) = &mut self.open else {
            return;
        };
        open.text.push_str(piece);
        let mut fields = json!({"item_id": open.id, "output_index": index, "delta": piece});
        let name = match open.kind {
            ItemKind::Message => {
                fields["content_index"] = json!(0);
                fields["logprobs"] = json!([]);
                "response.output_text.delta"
            }
            ItemKind::Reasoning => {
                fields["content_index"] = json!(0);
                "response.reasoning_text.delta"
            }
            ItemKind::Call(..) => "response.function_call_arguments.delta",
        };
        self.event(text, name, fields);
    }

    /// Completes the open item.
    fn close(&mut self, text: &mut String) {
        let Some(open) = self.open.take() else {
            return;
        };
        let place = json!({"item_id": open.id, "output_index": self.output.len()});
        let with = |more: Value| {
            let mut fields = place.clone();
            if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
                fields.extend(more);
            }
            fields
        };
        match &open.kind {
            ItemKind::Message => {
                let done = json!({"content_index": 0, "text": open.text, "logprobs": []});
                self.event(text, "response.output_text.done", with(done));
                let part = json!({"content_index": 0, "part": text_part(&open.text)});
                self.event(text, "response.content_part.done", with(part));
            }
            ItemKind::Reasoning => {
                let done = json!({"content_index": 0, "text": open.text});
                self.event(text, "response.reasoning_text.done", with(done));
            }
            ItemKind::Call(_, _, name) => {
                let done = json!({"arguments": open.text, "name": name});
                self.event(text, "response.function_call_arguments.done", with(done));
            }
        }
        let item = open.item("completed");
        let done = json!({"output_index": self.output.len(), "item": item});
        self.event(text, "response.output_item.done", done);
        self.output.push(item);
    }

    fn begin(&mut self) -> String {
        let mut text = String::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            let response = self.writer.begun();
            self.event(&mut text, "response.created", json!({"response": response}));
            self.event(
                &mut text,
                "response.in_progress",
                json!({"response": response}),
            );
        }
        text
    }

    fn end(&mut self) -> String {
        let mut text = self.begin();
        self.close(&mut text);
        let response = self.writer.ended(&self.output, &self.end);
        let name = format!(
            "response.{}",
            response["status"].as_str().unwrap_or("completed")
        );
        self.event(&mut text, &name, json!({"response": response}));
        self.is_over = true;
        text
    }

    fn fail(&mut self, code: &str, message: &str) -> String {
        let mut text = self.begin();
        let error = json!({"code": code, "message": message, "param": null});
        self.event(&mut text, "error", error);
        let response = self.writer.failed(&self.output, code, message);
        self.event(&mut text, "response.failed", json!({"response": response}));
        self.is_over = true;
        text
    }

    fn event(&mut self, text: &mut String, name: &str, mut fields: Value) {
        fields["type"] = json!(name);
        fields["sequence_number"] = json!(self.number);
        self.number += 1;
        // Writing to a string does not fail.
        let _ = write!(text, "event: {name}\ndata: {fields}\n\n");
    }
}

impl OpenItem {
    fn item(&self, status: &str) -> Value {
        match &self.kind {
            ItemKind::Message => message_item(&self.id, status, &self.text),
            ItemKind::Reasoning => reasoning(&self.id, &self.text),
            ItemKind::Call(_, call, name) => {
                function_call(&self.id, status, (call, name), &self.text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events of a response for the chunks of a chat.
    fn events(chunks: &[Value], done: bool) -> Vec<Value> {
        let mut converter = Converter::new(ResponseWriter::new(serde_json::Map::new()));
        let mut text = String::new();
        for chunk in chunks {
            text += &converter.take(format!("data: {chunk}\n\n").as_bytes());
        }
        if done {
            text += &converter.take(b"data: [DONE]\n\n");
        }
        data(text.as_bytes())
            .map(|event| serde_json::from_slice(event).expect("JSON"))
            .collect()
    }

    fn delta(delta: &Value, finish: Option<&str>) -> Value {
        json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    }

    fn names(events: &[Value]) -> Vec<&str> {
        let names = events.iter().filter_map(|event| event["type"].as_str());
        names
            .map(|name| name.trim_start_matches("response."))
            .collect()
    }

    #[test]
    fn text_is_an_item_with_a_part() {
        let events = events(
            &[
                delta(&json!({"role": "assistant", "content": ""}), None),
                delta(&json!({"content": "Hel"}), None),
                delta(&json!({"content": "lo"}), None),
                delta(&json!({}), Some("stop")),
                json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}),
            ],
            true,
        );
        assert_eq!(
            names(&events),
            [
                "created",
                "in_progress",
                "output_item.added",
                "content_part.added",
                "output_text.delta",
                "output_text.delta",
                "output_text.done",
                "content_part.done",
                "output_item.done",
                "completed",
            ]
        );
        let numbers = events.iter().map(|event| event["sequence_number"].as_u64());
        assert!(numbers.eq((0..10).map(Some)));
        let response = &events[9]["response"];
        assert_eq!(response["status"], "completed");
        assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
        assert_eq!(response["usage"]["input_tokens"], 3);
        assert_eq!(response["usage"]["total_tokens"], 5);
    }

    #[test]
    fn thoughts_and_calls_are_items_of_their_own() {
        let call = |index: u64, id: &str, arguments: &str| json!({"tool_calls": [{"index": index, "id": id, "function": {"name": id, "arguments": arguments}}]});
        let more = |index: u64, arguments: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]});
        let events = events(
            &[
                delta(&json!({"reasoning_content": "Hm"}), None),
                delta(&call(0, "f", ""), None),
                delta(&more(0, "{\"a\":"), None),
                delta(&more(0, "1}"), None),
                delta(&call(1, "g", "{}"), None),
                delta(&json!({}), Some("tool_calls")),
            ],
            true,
        );
        assert_eq!(
            names(&events),
            [
                "created",
                "in_progress",
                "output_item.added",
                "reasoning_text.delta",
                "reasoning_text.done",
                "output_item.done",
                "output_item.added",
                "function_call_arguments.delta",
                "function_call_arguments.delta",
                "function_call_arguments.done",
                "output_item.done",
                "output_item.added",
                "function_call_arguments.delta",
                "function_call_arguments.done",
                "output_item.done",
                "completed",
            ]
        );
        let output = &events[15]["response"]["output"];
        assert_eq!(output[1]["arguments"], "{\"a\":1}");
        assert_eq!(output[2]["call_id"], "g");
    }

    #[test]
    fn a_cut_answer_is_incomplete_and_an_error_fails() {
        let cut = events(&[delta(&json!({"content": "a"}), Some("length"))], true);
        let last = cut.last().expect("an event");
        assert_eq!(last["type"], "response.incomplete");
        assert_eq!(
            last["response"]["incomplete_details"]["reason"],
            "max_output_tokens"
        );
        let failed = events(
            &[
                delta(&json!({"content": "a"}), None),
                json!({"error": {"code": "X", "message": "told so"}}),
                delta(&json!({"content": "b"}), None),
            ],
            false,
        );
        let error = failed
            .iter()
            .find(|event| event["type"] == "error")
            .expect("an error");
        assert_eq!(error["message"], "told so");
        assert!(names(&failed).contains(&"failed"));
    }
}
