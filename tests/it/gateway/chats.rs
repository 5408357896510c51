//! Tests of chats with a package's own decoder (a language model that generates token by token)
//! through the chat adapters. The answers must equal those of `transformers` with the same weights.
//! Conversations in parallel and earlier conversations must not change them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::adapters::{ask, content, post, read_until, run_client, script};
use super::examples;
use crate::support::environment::EnvironmentPiece;
use crate::support::fixture;
use crate::support::gateway::{Gateway, Setup};

const PATH: &str = "/api/adapters/compat/chat/completions";
const SERVICE: &str = "jackdaw";
/// Backends of the decoder example. Each one handles the KV cache differently: a program that keeps
/// its tokens itself (`xnnpack`), past and present tensors whose rows share runs (`mlx`), and no
/// cache (`qnn`).
const BACKENDS: [&str; 3] = ["xnnpack", "mlx", "qnn"];

fn start(settings: &str) -> Gateway {
    Setup::new()
        .settings(settings)
        .packages(examples().join("jackdaw"))
        .start()
}

/// Returns requests with the answers that `transformers` gave to them.
fn conversations() -> Vec<(Value, Value)> {
    let text = fs::read_to_string(fixture("text").join("jackdaw.json")).expect("a fixture");
    let truth: Value = serde_json::from_str(&text).expect("it is JSON");
    let all = truth["conversations"].as_array().expect("a list");
    assert!(all.len() >= 20);
    all.iter().map(|one| (request(one), one.clone())).collect()
}

fn request(one: &Value) -> Value {
    let mut body = json!({"model": "local/jackdaw", "temperature": 0});
    for key in ["messages", "max_tokens", "tools", "repetition_penalty"] {
        if !one[key].is_null() {
            body[key] = one[key].clone();
        }
    }
    for message in body["messages"].as_array_mut().expect("a list") {
        for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
            // Clients send arguments as text.
            let arguments = call["function"]["arguments"].to_string();
            call["id"] = json!("call_1");
            call["function"]["arguments"] = json!(arguments);
        }
        if message["role"] == "tool" {
            message["tool_call_id"] = json!("call_1");
        }
    }
    if !one["template"].is_null() {
        body["chat_template_kwargs"] = one["template"].clone();
    }
    body
}

/// Fails unless a whole answer equals the fixture's.
#[track_caller]
fn assert_said(answer: &Value, one: &Value, what: &str) {
    let choice = &answer["choices"][0];
    let message = &choice["message"];
    let expected = one["answer"].as_str().expect("a text");
    if let Some(call) = message["tool_calls"].get(0) {
        assert_eq!(choice["finish_reason"], "tool_calls", "{what}");
        let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
        let (name, arguments) = (name.as_str().expect("a name"), arguments.as_str());
        assert!(expected.contains(name), "{what}: {call}");
        assert!(
            expected.contains(arguments.expect("a text")),
            "{what}: {call}"
        );
        return;
    }
    let reasoning = message["reasoning_content"].as_str().unwrap_or_default();
    let said = message["content"].as_str().expect("a text");
    let expected = match expected.split_once("</think>") {
        Some((thought, text)) => (thought.trim_start_matches("<think>").trim(), text.trim()),
        None => ("", expected),
    };
    assert_eq!((reasoning, said), expected, "{what}");
    assert_eq!(choice["finish_reason"], one["finish"], "{what}");
}

#[track_caller]
fn assert_answers(gateway: &Gateway, body: &Value, one: &Value, what: &str) -> Value {
    let reply = post(gateway, PATH, &body.to_string()).expect(200).json();
    let what = format!("{what}, {}", one["name"]);
    assert_said(&reply, one, &what);
    let prompt = one["prompt_ids"].as_array().map(Vec::len);
    assert_eq!(
        reply["usage"]["prompt_tokens"].as_u64(),
        prompt.map(|it| it as u64),
        "{what}"
    );
    let tokens = one["answer_ids"].as_array().map(Vec::len);
    let counted = reply["usage"]["completion_tokens"].as_u64();
    assert_eq!(counted, tokens.map(|it| it as u64), "{what}");
    reply
}

#[test]
fn every_shape_of_decoder_says_what_is_known() {
    let gateway = start("");
    for backend in BACKENDS {
        gateway.choose_backend(SERVICE, backend);
        for (body, one) in conversations() {
            assert_answers(&gateway, &body, &one, backend);
        }
    }
}

#[test]
fn many_conversations_at_once_say_what_each_says_alone() {
    let gateway = start("");
    gateway.choose_backend(SERVICE, "mlx");
    let all = conversations();
    // Greedy requests: each has exactly one right answer.
    let next = AtomicUsize::new(0);
    for round in 0..3 {
        next.store(0, Ordering::Relaxed);
        thread::scope(|scope| {
            for who in 0..6 {
                let (gateway, all, next) = (&gateway, &all, &next);
                scope.spawn(move || {
                    while let Some((body, one)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if who == 5 {
                            leave(gateway, body);
                        }
                        assert_answers(gateway, body, one, &format!("round {round}"));
                    }
                });
            }
        });
    }
    let line = gateway.metrics();
    assert!(
        !line.contains("pkgtool_session_deaths_total{service=\"jackdaw\"} 1"),
        "{line}"
    );
}

/// Starts a stream and disconnects in the middle of it.
fn leave(gateway: &Gateway, body: &Value) {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut stream = ask(gateway, PATH, &body.to_string());
    read_until(&mut stream, "data: ");
}

#[test]
fn turns_of_a_conversation_use_what_is_held() {
    let gateway = start("");
    for backend in ["xnnpack", "mlx"] {
        gateway.choose_backend(SERVICE, backend);
        for round in 0..3 {
            let what = format!("{backend}, round {round}");
            let first = json!({"role": "user", "content": "My name is Ada."});
            let mut body = json!({"model": "local/jackdaw", "temperature": 0, "messages": [first]});
            let reply = post(&gateway, PATH, &body.to_string()).expect(200).json();
            let said = reply["choices"][0]["message"].clone();
            assert_eq!(said["content"], "Nice to meet you, Ada.", "{what}");
            // Another account uses the decoder between the turns.
            let account = format!("other-{backend}-{round}");
            gateway.account(&account, 1000);
            let messages = body["messages"].as_array_mut().expect("a list");
            messages.push(json!({"role": "assistant", "content": said["content"]}));
            messages.push(json!({"role": "user", "content": "What is my name?"}));
            let reply = post(&gateway, PATH, &body.to_string()).expect(200).json();
            let message = &reply["choices"][0]["message"];
            assert_eq!(message["content"], "Your name is Ada.", "{what}");
            let usage = &reply["usage"];
            let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
            let prompt = usage["prompt_tokens"].as_u64().expect("a number");
            let cached = cached.expect("a number");
            assert!(cached > prompt / 3 && cached < prompt, "{what}: {usage}");
            // Continue differently after the first turn: later tokens are removed from the cache.
            let messages = body["messages"].as_array_mut().expect("a list");
            messages.truncate(2);
            messages.push(json!({"role": "user", "content": "Hello!"}));
            let reply = post(&gateway, PATH, &body.to_string()).expect(200).json();
            let usage = &reply["usage"];
            let again = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
            assert!(again.expect("a number") > prompt / 3, "{what}: {usage}");
        }
    }
}

#[test]
fn a_worker_that_dies_between_turns_is_not_noticed() {
    let gateway = start("");
    gateway.choose_backend(SERVICE, "mlx");
    let all = conversations();
    for (body, one) in &all[..6] {
        assert_answers(&gateway, body, one, "before");
        for process in workers(&gateway) {
            let killed = Command::new("kill").args(["-9", &process]).status();
            assert!(killed.expect("kill can be run").success());
        }
        assert_answers(&gateway, body, one, "after");
    }
}

/// Returns the worker processes of the gateway.
fn workers(gateway: &Gateway) -> Vec<String> {
    let tasks = format!("/proc/{}/task", gateway.process());
    let tasks = fs::read_dir(tasks).expect("it runs");
    // A thread that has ended meanwhile has no list of children.
    let children =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let is_of_models = |process: &&str| {
        let command = fs::read_to_string(format!("/proc/{process}/cmdline"));
        command.is_ok_and(|command| command.trim_end_matches('\0').ends_with("engine-process"))
    };
    let processes = children.iter().flat_map(|text| text.split_whitespace());
    processes.filter(is_of_models).map(str::to_owned).collect()
}

#[test]
fn a_prompt_that_is_too_long_is_refused_with_both_numbers() {
    let gateway = start("");
    for backend in BACKENDS {
        gateway.choose_backend(SERVICE, backend);
        let body = json!({"model": "local/jackdaw", "messages": [
            {"role": "user", "content": "Hello! ".repeat(1000)}
        ]});
        let reply = post(&gateway, PATH, &body.to_string());
        let reply = reply.expect_error(400, "context_length_exceeded").json();
        let message = reply["error"]["message"].as_str().expect("a text");
        let numbers: Vec<usize> = message
            .split(|letter: char| !letter.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .collect();
        // This program declares its capacity in tokens; the others do not.
        let holds = if backend == "xnnpack" { 512 } else { 4096 };
        assert!(numbers.contains(&holds), "{backend}: {message}");
        let is_more = |number: &usize| *number > holds;
        assert!(numbers.iter().any(is_more), "{backend}: {message}");
    }
    gateway.choose_backend(SERVICE, "xnnpack");
    let body = json!({"model": "local/jackdaw", "max_tokens": 600, "messages": [
        {"role": "user", "content": "Hello!"}
    ]});
    let reply = post(&gateway, PATH, &body.to_string());
    reply.expect_error(400, "context_length_exceeded");
}

#[test]
fn what_a_package_cannot_do_is_told_at_its_field() {
    let gateway = with_text();
    let path = "/api/adapters/compat/completions";
    let body = json!({"model": "local/jackdaw", "prompt": [5, 999_999]});
    let refused = |path: &str, body: &Value, field: &str| {
        let reply = post(&gateway, path, &body.to_string()).expect(400).json();
        assert_eq!(reply["error"]["param"], field, "{reply}");
        reply["error"]["message"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    for _ in 0..3 {
        let message = refused(path, &body, "prompt");
        assert_eq!(
            message,
            "unknown token 999999: the model has 384 tokens, numbered from 0"
        );
    }
    let body = json!({"model": "local/kindred", "messages": [{"role": "user", "content": "x"}]});
    let message = refused(PATH, &body, "model");
    assert!(
        message.contains("it supports embeddings, and tensors"),
        "{message}"
    );
}

#[test]
fn events_add_up_to_the_whole_answer() {
    let gateway = start("");
    for backend in BACKENDS {
        gateway.choose_backend(SERVICE, backend);
        for (mut body, one) in conversations().into_iter().take(6) {
            body["stream"] = json!(true);
            let reply = post(&gateway, PATH, &body.to_string()).expect(200);
            assert_eq!(
                content(&reply.text()),
                one["answer"].as_str().expect("a text")
            );
        }
    }
}

#[test]
fn a_stream_may_take_longer_than_an_answer() {
    let gateway = start("[services.jackdaw]\npredict_timeout_s = 1.5");
    // This backend has no cache, so every token takes longer than the one before.
    gateway.choose_backend(SERVICE, "qnn");
    let mut body = json!({"model": "local/jackdaw", "temperature": 0, "max_tokens": 4000,
        // The bias suppresses the end token, so generation never ends by itself.
        "logit_bias": {"0": -100, "2": -100},
        "messages": [{"role": "user", "content": "Hello!"}]});
    let whole = post(&gateway, PATH, &body.to_string());
    whole.expect_error(504, "PREDICT_TIMEOUT");
    body["stream"] = json!(true);
    for _ in 0..3 {
        let started = Instant::now();
        let mut stream = ask(&gateway, PATH, &body.to_string());
        while started.elapsed() < Duration::from_secs(4) {
            let text = read_until(&mut stream, "\n");
            assert!(!text.contains("error"), "{text}");
        }
    }
    // Requests of disconnected clients do not delay this one.
    let hello = json!({"model": "local/jackdaw", "max_tokens": 3,
        "messages": [{"role": "user", "content": "Hello!"}]});
    post(&gateway, PATH, &hello.to_string()).expect(200);
}

/// Starts a gateway for the official clients with a package's own decoder and encoder.
fn with_text() -> Gateway {
    Setup::new()
        .packages(examples().join("jackdaw"))
        .packages(examples().join("kindred"))
        .start()
}

const MODELS: [&str; 4] = ["--chat", "local/jackdaw", "--embeddings", "local/kindred"];

fn bases() -> [&'static str; 2] {
    ["/api/adapters/compat", "/api/adapters/openai/v1"]
}

#[test]
fn the_python_client_talks_with_packages() {
    let Some(packages) = EnvironmentPiece::OpenAi.or_skip("the_python_client_talks_with_packages")
    else {
        return;
    };
    let gateway = with_text();
    for base in bases() {
        let mut command = Command::new("python3");
        command.arg(script("openai_client.py"));
        command.env("PYTHONPATH", &packages);
        run_client(command, &gateway, base, &MODELS);
    }
}

#[test]
fn the_npm_client_talks_with_packages() {
    let Some(modules) = EnvironmentPiece::OpenAiNode.or_skip("the_npm_client_talks_with_packages")
    else {
        return;
    };
    let gateway = with_text();
    for base in bases() {
        let mut command = Command::new("node");
        command.arg(script("openai_client.mjs"));
        command.arg("--modules").arg::<&PathBuf>(&modules);
        run_client(command, &gateway, base, &MODELS);
    }
}
