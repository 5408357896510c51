//! Tests of truncated answers: the model's token capacity is reached, or a limit cuts a tool call.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::adapters::post;
use super::examples;
use crate::support::gateway::{Gateway, Setup};
use crate::support::onnx;
use crate::support::run::pkgtool;

const PATH: &str = "/api/adapters/compat/chat/completions";

/// Token of `a` in the example's tokenizer.
const A: usize = 73;

/// Token capacity of the model.
const HELD: usize = 200;

/// Returns a package with the example's tokenizer and a decoder that does not declare its token
/// capacity.
fn package() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let from = examples().join("jackdaw");
    for file in [
        "chat_template.jinja",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        fs::copy(from.join(file), directory.path().join(file)).expect("it is copied");
    }
    let model = onnx::forgetful(A, HELD);
    let config = fs::read_to_string(from.join("qnn/config.json")).expect("the example is there");
    let mut config: Value = serde_json::from_str(&config).expect("JSON");
    config["variants"][0]["size_bytes"] = json!(model.len());
    let backend = directory.path().join("qnn");
    fs::create_dir(&backend).expect("it is made");
    fs::write(backend.join("config.json"), config.to_string()).expect("it is written");
    fs::write(backend.join("jackdaw_qnn_fp32.onnx"), model).expect("it is written");
    directory
}

fn say(gateway: &Gateway, more: &Value) -> Value {
    let mut body =
        json!({"model": "local/jackdaw", "messages": [{"role": "user", "content": "hi"}]});
    for (key, value) in more.as_object().expect("an object") {
        body[key] = value.clone();
    }
    if body["stream"] == true {
        let reply = post(gateway, PATH, &body.to_string()).expect(200);
        return summed(&reply.text());
    }
    post(gateway, PATH, &body.to_string()).expect(200).json()
}

/// Joins the chunks of a stream into a whole answer.
fn summed(text: &str) -> Value {
    let (mut content, mut finish, mut calls) = (String::new(), Value::Null, Vec::new());
    for line in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if line == "[DONE]" {
            break;
        }
        let chunk: Value = serde_json::from_str(line).expect("JSON");
        assert!(chunk["error"].is_null(), "{chunk}");
        let choice = &chunk["choices"][0];
        content += choice["delta"]["content"].as_str().unwrap_or_default();
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            if call["id"].is_string() {
                calls.push(call.clone());
            } else if let Some(last) = calls.last_mut() {
                let more = call["function"]["arguments"].as_str().expect("a text");
                let known = last["function"]["arguments"].as_str().expect("a text");
                last["function"]["arguments"] = json!(format!("{known}{more}"));
            }
        }
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
    }
    json!({"choices": [{
        "message": {"content": content, "tool_calls": calls}, "finish_reason": finish
    }]})
}

#[test]
fn an_answer_beyond_what_a_model_holds_ends_by_length() {
    let package = package();
    let gateway = Setup::new().packages(package.path()).start();
    let whole = say(&gateway, &json!({"temperature": 0}));
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    let said = choice["message"]["content"].as_str().expect("a text");
    let (prompt, told) = (
        &whole["usage"]["prompt_tokens"],
        &whole["usage"]["completion_tokens"],
    );
    let room = HELD as u64 - prompt.as_u64().expect("a number") + 1;
    assert_eq!(
        told.as_u64(),
        Some(room),
        "the last one is not fed any more"
    );
    assert_eq!(said, "a".repeat(said.len()));
    assert_eq!(said.len() as u64, room);
    let stream = say(&gateway, &json!({"temperature": 0, "stream": true}));
    assert_eq!(stream["choices"][0]["message"]["content"], said);
    assert_eq!(stream["choices"][0]["finish_reason"], "length");
    // The truncation does not affect the next turn.
    let short = say(&gateway, &json!({"temperature": 0, "max_tokens": 3}));
    assert_eq!(short["choices"][0]["message"]["content"], "aaa");
    let long = json!({"role": "user", "content": "hello ".repeat(HELD)});
    let body = json!({"model": "local/jackdaw", "messages": [long]});
    let refused = post(&gateway, PATH, &body.to_string());
    assert_eq!(refused.status, 400, "{}", refused.text());
}

#[test]
fn a_chat_beyond_what_a_model_holds_ends_by_length() {
    let package = package();
    let path = package.path().join("qnn/config.json");
    let path = path.to_str().expect("a plain path");
    let ran = pkgtool(["chat", path, "-m", "hi", "--temperature", "0"]).run();
    let ran = ran.expect_code(0);
    assert!(ran.stdout.contains(&"a".repeat(150)), "{}", ran.stdout);
}

#[test]
fn a_forced_call_that_is_cut_is_no_content() {
    let package = package();
    let gateway = Setup::new().packages(package.path()).start();
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]
    }}});
    let mut found = 0;
    for most in [1, 4, 8, 16, 30, 60] {
        for stream in [false, true] {
            let asked = json!({
                "tools": [tool], "tool_choice": "required", "max_tokens": most, "temperature": 0,
                "stream": stream
            });
            let answer = say(&gateway, &asked);
            let choice = &answer["choices"][0];
            assert_eq!(choice["finish_reason"], "length", "{most}: {answer}");
            let content = choice["message"]["content"].as_str().unwrap_or_default();
            assert_eq!(content, "", "{most}: {answer}");
            for call in choice["message"]["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
            {
                found += 1;
                assert_eq!(call["function"]["name"], "weather");
                let arguments = call["function"]["arguments"].as_str().expect("a text");
                assert!(
                    arguments.is_empty() || arguments.starts_with('{'),
                    "{arguments}"
                );
            }
        }
    }
    assert!(found >= 2, "{found}");
}
