//! Tests of the chat adapters: the HTTP API that clients of chat completions use in place of the
//! gateway's own.

pub(crate) mod batches;
pub(crate) mod clients;
mod direct;
mod errors;
mod models;
mod responses;
mod standard;
mod streams;
mod usage;

pub(super) use clients::{run_client, script};

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::chat_server::ChatServer;
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{Reply, connect, request};

/// Base paths of the two modes.
const STANDARD: &str = "/api/adapters/compat";
const DIRECT: &str = "/api/adapters/compat-direct";

/// Starts a gateway in front of a chat server. The service `chat` uses the service's format and
/// `raw` the format of chat servers; `text` and `vectors` proxy completions and embeddings.
fn with_chat(setup: Setup) -> (Gateway, ChatServer) {
    let server = ChatServer::start();
    let gateway = setup
        .proxy("chat", &server.url("/service"))
        .proxy("raw", &server.url("/v1/chat/completions"))
        .proxy("text", &server.url("/v1/completions"))
        .proxy("vectors", &server.url("/v1/embeddings"))
        .start();
    (gateway, server)
}

/// Sends a request with the headers that adapter clients use.
pub(super) fn post(gateway: &Gateway, path: &str, body: &str) -> Reply {
    let bearer = format!("Bearer {}", gateway.key);
    let headers = [("authorization", bearer.as_str())];
    request(gateway.address, "POST", path, &headers, body.as_bytes())
}

/// Returns a chat request with one message.
fn say(model: &str, text: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": text}]})
}

/// Returns a chat request with one message that asks for a stream of events.
fn say_for_events(model: &str, text: &str) -> String {
    let mut body = say(model, text);
    body["stream"] = json!(true);
    body.to_string()
}

/// Sends a request and returns its connection, with the answer unread.
pub(super) fn ask(gateway: &Gateway, path: &str, body: &str) -> BufReader<TcpStream> {
    let mut stream = connect(gateway.address);
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\naccept: application/json\r\n\
         accept-encoding: gzip\r\ncontent-length: {}\r\n\r\n{body}",
        gateway.key,
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it listens");
    BufReader::new(stream)
}

/// Reads until a line contains `wanted`.
#[track_caller]
pub(super) fn read_until(stream: &mut impl BufRead, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let read = stream.read_line(&mut text).expect("it is text");
        assert!(read > 0, "it ended: {text}");
    }
    text
}

/// Returns the data of every event.
fn data(text: &str) -> Vec<&str> {
    let lines = text.lines();
    lines
        .filter_map(|line| line.strip_prefix("data: "))
        .collect()
}

/// Returns the content of all events, joined.
pub(super) fn content(text: &str) -> String {
    let chunks = data(text).into_iter().filter(|data| *data != "[DONE]");
    let chunks = chunks.map(|data| serde_json::from_str::<Value>(data).expect("it is JSON"));
    chunks
        .filter_map(|chunk| {
            let delta = &chunk["choices"][0]["delta"]["content"];
            delta.as_str().map(str::to_owned)
        })
        .collect()
}
