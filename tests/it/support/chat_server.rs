//! A mock chat server that repeats the last message of a conversation.
//!
//! Tests of proxies use it as their upstream. It serves the gateway's own format at `/service` and
//! the `OpenAI` format at `/v1/…`. A command at the beginning of the last message makes it misbehave:
//!
//! | command | behaviour |
//! |---|---|
//! | `!hold` | sends one event and waits until its client leaves |
//! | `!pause` | sends all words and waits until its client leaves |
//! | `!break` | ends in the middle of an event |
//! | `!late` | breaks off after one event |
//! | `!open` | ends without `[DONE]` |
//! | `!whole` | sends a whole response although a stream was requested |
//! | `!events` | sends a stream although a whole response was requested |
//! | `!status 429 7` | answers with this status, and `Retry-After` if the second number is there |
//! | `!odd` | answers with an object that is not a completion |
//! | `!stay` | answers nothing and waits until its client leaves |

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use serde_json::{Value, json};

use super::http::{MockServer, Received, Serve, read_request};

/// A running mock chat server.
pub(crate) type ChatServer = MockServer<ChatState>;

/// The state of a [`ChatServer`].
#[derive(Default)]
pub(crate) struct ChatState {
    seen: Mutex<Vec<Seen>>,
    left: AtomicUsize,
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) body: String,
}

/// A request in either of the two formats.
struct Asked {
    method: &'static str,
    data: Value,
    config: Value,
}

impl MockServer<ChatState> {
    /// Returns the requests that arrived.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared
            .seen
            .lock()
            .expect("the lock is not poisoned")
            .clone()
    }

    /// Returns the request that arrived last.
    #[track_caller]
    pub(crate) fn last(&self) -> Seen {
        self.seen().pop().expect("a request arrived")
    }

    /// Counts the streams whose client left before their end.
    pub(crate) fn left(&self) -> usize {
        self.shared.left.load(Ordering::SeqCst)
    }
}

impl Serve for ChatState {
    fn serve(&self, stream: TcpStream) {
        serve(stream, self);
    }
}

fn serve(mut stream: TcpStream, shared: &ChatState) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    while let Some(Received { path, body, .. }) = read_request(&mut reader) {
        let body = String::from_utf8(body).expect("requests are text");
        let asked = read(&path, &body);
        let seen = Seen { path, body };
        shared
            .seen
            .lock()
            .expect("the lock is not poisoned")
            .push(seen);
        if answer(&mut stream, shared, &asked).is_none() {
            return;
        }
    }
}

fn read(path: &str, body: &str) -> Asked {
    let mut body: Value = serde_json::from_str(body).expect("requests are JSON");
    if path == "/service" {
        let data_type = body["dataType"].as_str().unwrap_or_default();
        let method = match data_type.rsplit('/').next() {
            Some("Embeddings") => "embeddings",
            Some("Completion") => "completions",
            _ => "chat/completions",
        };
        return Asked {
            method,
            data: body["data"].take(),
            config: body["config"].take(),
        };
    }
    let known = ["chat/completions", "completions", "embeddings"];
    let method = known
        .into_iter()
        .find(|known| path == format!("/v1/{known}"));
    Asked {
        method: method.unwrap_or("chat/completions"),
        data: body.clone(),
        config: body,
    }
}

/// Answers one request; `None` closes the connection.
fn answer(stream: &mut TcpStream, shared: &ChatState, asked: &Asked) -> Option<()> {
    if asked.method == "embeddings" {
        return send(stream, 200, &embeddings(asked));
    }
    if asked.method == "chat/completions" && !asked.data["messages"].is_array() {
        let error = json!({"error": {
            "message": "messages must be an array", "type": "invalid_request_error",
            "param": "messages", "code": "wrong_type",
        }});
        return send(stream, 400, &error);
    }
    let told = told(asked);
    let command = told.split(' ').next().unwrap_or_default();
    let events = asked.data["stream"] == true;
    match command {
        "!status" => {
            let status = told.split(' ').nth(1).and_then(|text| text.parse().ok());
            let error = json!({"error": {"message": "told so", "code": "told", "type": "x", "param": null}});
            let again = told.split(' ').nth(2);
            let again = again.map_or_else(String::new, |it| format!("retry-after: {it}\r\n"));
            send_with(stream, status.unwrap_or(500), &again, &error)
        }
        "!stay" => hold(stream, shared),
        "!odd" => send(stream, 200, &json!({"odd": true})),
        "!whole" => send(stream, 200, &whole(asked, &told)),
        "!events" => send_events(stream, shared, asked, &told),
        _ if events => send_events(stream, shared, asked, &told),
        _ => send(stream, 200, &whole(asked, &told)),
    }
}

/// Returns the text of the last message, or the prompt.
fn told(asked: &Asked) -> String {
    let text = if asked.method == "completions" {
        asked.data["prompt"].clone()
    } else {
        let messages = asked.data["messages"].as_array();
        let last = messages.and_then(|messages| messages.last());
        let content = last.map(|last| last["content"].clone());
        match content.unwrap_or_default() {
            Value::Array(parts) => parts.first().map_or(Value::Null, |it| it["text"].clone()),
            other => other,
        }
    };
    text.as_str().unwrap_or("nothing").to_owned()
}

/// Returns the words of an answer and its finish reason.
fn words(asked: &Asked, told: &str) -> (Vec<String>, &'static str) {
    let most = ["max_completion_tokens", "max_tokens"].map(|key| asked.config[key].as_u64());
    let most = most.into_iter().flatten().next().unwrap_or(100);
    let most = usize::try_from(most).expect("the number fits");
    let all: Vec<String> = format!("You said: {told}")
        .split_inclusive(' ')
        .map(str::to_owned)
        .collect();
    let reason = if all.len() > most { "length" } else { "stop" };
    (all.into_iter().take(most).collect(), reason)
}

fn usage(asked: &Asked, told: &str) -> Value {
    let prompt = told.split(' ').count();
    let completion = words(asked, told).0.len();
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 1},
    })
}

fn whole(asked: &Asked, told: &str) -> Value {
    let (words, reason) = words(asked, told);
    let text = words.concat();
    let (object, choice) = if asked.method == "completions" {
        let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": reason});
        ("text_completion", choice)
    } else {
        let message = json!({"role": "assistant", "content": text, "refusal": null});
        let choice =
            json!({"index": 0, "message": message, "logprobs": null, "finish_reason": reason});
        ("chat.completion", choice)
    };
    json!({
        "id": "cmpl-1", "object": object, "created": 1_700_000_000, "model": "parrot",
        "choices": [choice], "usage": usage(asked, told),
    })
}

fn embeddings(asked: &Asked) -> Value {
    let input = match &asked.data["input"] {
        Value::Array(texts) => texts.clone(),
        text => vec![text.clone()],
    };
    let is_coded = asked.config["encoding_format"] == "base64";
    let embed = |(index, text): (usize, &Value)| {
        let text = text.as_str().unwrap_or_default();
        let sum: u32 = text.bytes().map(u32::from).sum();
        let length = u16::try_from(text.len()).expect("texts are short");
        #[expect(clippy::cast_precision_loss, reason = "any numbers suffice")]
        let vector = [f32::from(length), sum as f32 / 1000.0, -0.5];
        let vector = if is_coded {
            let bytes: Vec<u8> = vector
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            json!(base64::engine::general_purpose::STANDARD.encode(bytes))
        } else {
            json!(vector)
        };
        json!({"object": "embedding", "index": index, "embedding": vector})
    };
    let data: Vec<Value> = input.iter().enumerate().map(embed).collect();
    let tokens = input.len() + 1;
    json!({
        "object": "list", "data": data, "model": "parrot",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })
}

fn send(stream: &mut TcpStream, status: u16, body: &Value) -> Option<()> {
    send_with(stream, status, "", body)
}

fn send_with(stream: &mut TcpStream, status: u16, headers: &str, body: &Value) -> Option<()> {
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all((head + &body).as_bytes()).ok()
}

fn send_events(
    stream: &mut TcpStream,
    shared: &ChatState,
    asked: &Asked,
    told: &str,
) -> Option<()> {
    let head = "HTTP/1.1 200 Said\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\
                transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).ok()?;
    let (words, reason) = words(asked, told);
    let wants_usage = asked.config["stream_options"]["include_usage"] == true;
    let is_text = asked.method == "completions";
    let event = |choice: Option<Value>, usage: Value| {
        let choices: Vec<Value> = choice.into_iter().collect();
        let object = if is_text {
            "text_completion"
        } else {
            "chat.completion.chunk"
        };
        let mut event = json!({
            "id": "cmpl-1", "object": object, "created": 1_700_000_000, "model": "parrot",
            "choices": choices,
        });
        if wants_usage {
            event["usage"] = usage;
        }
        format!("data: {event}\n\n")
    };
    let choice = |text: &str, reason: Option<&str>| {
        if is_text {
            return json!({"index": 0, "text": text, "finish_reason": reason});
        }
        let delta = if text.is_empty() {
            json!({})
        } else {
            json!({"content": text})
        };
        json!({"index": 0, "delta": delta, "finish_reason": reason})
    };
    if is_text {
        write_chunk(stream, &event(Some(choice("", None)), Value::Null))?;
    } else {
        let first = json!({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null});
        write_chunk(stream, &event(Some(first), Value::Null))?;
    }
    if told.starts_with("!late") {
        return None;
    }
    if told.starts_with("!break") {
        write_chunk(stream, "data: {\"id\":\"half")?;
        return None;
    }
    if told.starts_with("!hold") {
        return hold(stream, shared);
    }
    for word in &words {
        write_chunk(stream, &event(Some(choice(word, None)), Value::Null))?;
    }
    if told.starts_with("!pause") {
        return hold(stream, shared);
    }
    write_chunk(stream, &event(Some(choice("", Some(reason))), Value::Null))?;
    if wants_usage {
        write_chunk(stream, &event(None, usage(asked, told)))?;
    }
    if !told.starts_with("!open") {
        write_chunk(stream, "data: [DONE]\n\n")?;
    }
    write_chunk(stream, "");
    None
}

/// Waits until the client leaves.
fn hold(stream: &mut TcpStream, shared: &ChatState) -> Option<()> {
    // The client sends nothing more, so the end of this read is the end of the connection.
    let mut rest = [0];
    while stream.read(&mut rest).is_ok_and(|read| read > 0) {}
    shared.left.fetch_add(1, Ordering::SeqCst);
    None
}

fn write_chunk(stream: &mut TcpStream, text: &str) -> Option<()> {
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    stream.write_all(chunk.as_bytes()).ok()
}
