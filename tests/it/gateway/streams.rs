//! Tests of streamed answers: server-sent events of an upstream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::support::gateway::{Gateway, Setup, task_path};
use crate::support::http::{EVENTS, Upstream, connect, read_reply};

const BASE: &str = "/api/mlpgateway/account/local/model";

/// Starts a gateway whose service `events` passes on the events of an upstream.
fn with_events() -> (Upstream, Gateway) {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .proxy("events", &upstream.url("/events"))
        .start();
    (upstream, gateway)
}

/// Sends a request for events and returns its connection, with the answer unread.
fn ask(gateway: &Gateway, service: &str) -> BufReader<TcpStream> {
    let mut stream = connect(gateway.address);
    let request = format!(
        "POST {BASE}/{service}/predict HTTP/1.1\r\nhost: test\r\nmlp-api-key: {}\r\n\
         content-length: 2\r\n\r\n{{}}",
        gateway.key
    );
    stream.write_all(request.as_bytes()).expect("it listens");
    BufReader::new(stream)
}

/// Reads the head and the first event.
fn first_event(stream: &mut impl BufRead) {
    let mut text = String::new();
    while !text.contains(EVENTS[0]) {
        let read = stream.read_line(&mut text).expect("it is text");
        assert!(read > 0, "it ended: {text}");
    }
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let head = text.to_ascii_lowercase();
    assert!(
        head.contains("content-type: text/event-stream; charset=utf-8\r\n"),
        "{text}"
    );
}

#[test]
fn events_are_passed_on_as_they_come() {
    let (upstream, gateway) = with_events();
    let mut stream = ask(&gateway, "events");
    first_event(&mut stream);
    // The upstream sends the last event only now.
    upstream.release();
    let mut text = String::new();
    while !text.contains(EVENTS[1]) {
        let read = stream.read_line(&mut text).expect("it is text");
        assert!(read > 0, "it ended: {text}");
    }
    // The connection can be reused, because the body has ended properly.
    let mut rest = [0; 7];
    stream.read_exact(&mut rest).expect("the end of the body");
    assert_eq!(&rest, b"\r\n0\r\n\r\n");
    let reply = gateway
        .post(&format!("{BASE}/events/predict"), "{}")
        .expect(200);
    assert_eq!(reply.text(), EVENTS.concat());
    assert_eq!(upstream.left(), 0);
}

#[test]
fn a_client_that_leaves_ends_the_call() {
    let (upstream, gateway) = with_events();
    for left in 1..=3 {
        let mut stream = ask(&gateway, "events");
        first_event(&mut stream);
        assert_eq!(upstream.left(), left - 1);
        drop(stream);
        gateway.until(|| upstream.left() == left);
    }
}

#[test]
fn a_stream_that_breaks_off_has_no_end() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .proxy("broken", &upstream.url("/events/broken"))
        .proxy("late", &upstream.url("/events"))
        .settings("[services.late]\npredict_timeout_s = 1.5")
        .start();
    for (service, why) in [
        ("broken", "is unreachable"),
        ("late", "did not answer within 1.5 s"),
    ] {
        let mut stream = ask(&gateway, service);
        assert!(read_reply(&mut stream).is_none(), "{service} has no end");
        let told = |line: &str| line.contains("the answer was interrupted") && line.contains(why);
        gateway.until(|| gateway.log().lines().any(told));
    }
    gateway.until(|| upstream.left() == 1);
    let task = gateway.create("broken", "{}");
    gateway.wait_for(&task, "CANCELED");
    gateway
        .result(&task)
        .expect_error(502, "mlp-action.common.service-unavailable");
}

#[test]
fn a_task_stores_all_events() {
    let (upstream, gateway) = with_events();
    let task = gateway.create("events", "{}");
    gateway.until(|| upstream.seen() == 1);
    gateway.wait_for(&task, "PROCESSING");
    upstream.release();
    gateway.wait_for(&task, "COMPLETED");
    let reply = gateway.result(&task).expect(200);
    assert_eq!(reply.text(), EVENTS.concat());
}

#[test]
fn a_canceled_task_reads_no_more_events() {
    let (upstream, gateway) = with_events();
    let task = gateway.create("events", "{}");
    gateway.until(|| upstream.seen() == 1);
    let path = format!("{}/cancel", task_path(&task));
    gateway.post(&path, "").expect(200);
    gateway.until(|| upstream.left() == 1);
}
