//! Tests of streamed adapter answers (server-sent events).

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    DIRECT, STANDARD, ask, content, data, post, read_until, say, say_for_events, with_chat,
};
use crate::support::gateway::Setup;
use crate::support::http::Upstream;

#[test]
fn the_body_decides_whether_events_come() {
    let (gateway, _server) = with_chat(Setup::new());
    let path = format!("{STANDARD}/chat/completions");
    let mut stream = ask(
        &gateway,
        &path,
        &say_for_events("local/chat", "one two three"),
    );
    let text = read_until(&mut stream, "[DONE]");
    let head = text.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "{text}");
    for line in [
        "content-type: text/event-stream",
        "cache-control: no-cache",
        "x-accel-buffering: no",
    ] {
        assert!(head.contains(&format!("\r\n{line}")), "{line}: {text}");
    }
    assert!(!head.contains("content-encoding"), "{text}");
    assert_eq!(content(&text), "You said: one two three");
    // The connection can be reused, because the body has ended properly.
    let mut rest = String::new();
    while !rest.ends_with("0\r\n\r\n") {
        assert!(
            stream.read_line(&mut rest).expect("it is text") > 0,
            "{rest}"
        );
    }
    let reply = post(&gateway, &path, &say("local/chat", "one").to_string()).expect(200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
}

#[test]
fn the_last_event_says_that_it_is() {
    let (gateway, _server) = with_chat(Setup::new());
    let path = format!("{STANDARD}/chat/completions");
    for told in ["!open end", "!whole as one", "both"] {
        let reply = post(&gateway, &path, &say_for_events("local/chat", told)).expect(200);
        let text = reply.text();
        assert_eq!(data(&text).last(), Some(&"[DONE]"), "{text}");
        assert_eq!(text.matches("[DONE]").count(), 1, "{text}");
        assert_eq!(content(&text), format!("You said: {told}"));
    }
    let reply = post(&gateway, &path, &say_for_events("local/chat", "!odd"));
    let error = reply.expect_error(502, "SERVICE_DOES_NOT_STREAM").json();
    assert_eq!(error["error"]["type"], "server_error");
    // Events that the client did not ask for pass unchanged.
    let reply = post(&gateway, &path, &say("local/chat", "!events").to_string()).expect(200);
    assert_eq!(content(&reply.text()), "You said: !events");
}

#[test]
fn an_error_is_a_status_before_the_first_event_and_an_event_after_it() {
    let (gateway, _server) = with_chat(Setup::new());
    for (base, model) in [(STANDARD, "local/chat"), (DIRECT, "local/raw")] {
        let path = format!("{base}/chat/completions");
        let reply = post(&gateway, &path, &say_for_events(model, "!status 418")).expect(418);
        assert_eq!(reply.json()["error"]["message"], "told so");
        for told in ["!break", "!late"] {
            let reply = post(&gateway, &path, &say_for_events(model, told)).expect(200);
            let text = reply.text();
            let mut all = data(&text);
            assert_eq!(base == STANDARD, all.last() == Some(&"[DONE]"), "{text}");
            all.retain(|data| *data != "[DONE]");
            assert_eq!(all.len(), 2, "half an event is not sent: {text}");
            let last: Value = serde_json::from_str(all[1]).expect("it is JSON");
            assert_eq!(last["error"]["type"], "server_error", "{text}");
            assert_eq!(last["error"]["param"], Value::Null);
            assert!(last["error"]["requestId"].is_string());
        }
    }
    gateway.until(|| gateway.log().contains("the answer was interrupted"));
}

#[test]
fn a_client_that_leaves_ends_the_call() {
    let (gateway, server) = with_chat(Setup::new());
    for (round, (base, model)) in [(STANDARD, "local/chat"), (DIRECT, "local/raw")]
        .into_iter()
        .cycle()
        .take(6)
        .enumerate()
    {
        let path = format!("{base}/chat/completions");
        let mut stream = ask(&gateway, &path, &say_for_events(model, "!hold"));
        read_until(&mut stream, "data: ");
        assert_eq!(server.left(), round);
        drop(stream);
        gateway.until(|| server.left() == round + 1);
        // Other requests are answered during the stream and after it.
        post(&gateway, &path, &say(model, "x").to_string()).expect(200);
    }
    // The same holds for a request that waits for a whole answer.
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("held", &upstream.url("/hold")).start();
    let path = format!("{STANDARD}/chat/completions");
    let stream = ask(&gateway, &path, &say("local/held", "x").to_string());
    gateway.until(|| upstream.seen() == 1);
    drop(stream);
    gateway.until(|| gateway.log().contains("client disconnected"));
    upstream.release();
}

#[test]
fn silence_is_filled_with_comments() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .proxy("held", &upstream.url("/hold"))
        .proxy("events", &upstream.url("/events"))
        .start();
    let path = format!("{STANDARD}/chat/completions");
    let started = Instant::now();
    // Neither upstream sends anything for fifteen seconds.
    let mut before = ask(&gateway, &path, &say_for_events("local/held", "x"));
    let mut amid = ask(&gateway, &path, &say_for_events("local/events", "x"));
    let first = read_until(&mut amid, "data: first");
    assert!(!first.contains(": keep-alive"), "{first}");
    let head = read_until(&mut before, ": keep-alive");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    read_until(&mut amid, ": keep-alive");
    assert!(started.elapsed() >= Duration::from_secs(14));
    upstream.release();
    let text = read_until(&mut amid, "[DONE]");
    assert!(text.contains("data: last"), "{text}");
    // An error after this point is sent as an event, because the HTTP status is already out.
    let text = read_until(&mut before, "[DONE]");
    assert!(text.contains("SERVICE_DOES_NOT_STREAM"), "{text}");
}

#[test]
fn a_stream_that_takes_too_long_ends_with_an_error() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .proxy("late", &upstream.url("/events"))
        .settings("[services.late]\npredict_timeout_s = 1.0")
        .start();
    let path = format!("{STANDARD}/chat/completions");
    let mut stream = ask(&gateway, &path, &say_for_events("local/late", "x"));
    let text = read_until(&mut stream, "[DONE]");
    assert!(
        text.contains("data: first") && text.contains("PREDICT_TIMEOUT"),
        "{text}"
    );
    gateway.until(|| upstream.left() == 1);
    // The body ends properly.
    read_until(&mut stream, "0\r\n\r\n");
}
