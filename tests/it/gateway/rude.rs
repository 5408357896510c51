//! Tests of badly behaved clients: slow, huge, broken and numerous.

use std::fmt::Write as _;
use std::io::{BufReader, Read, Write};
use std::time::{Duration, Instant};

use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{self, Upstream, connect, read_reply};

fn with_echo(settings: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::start();
    let setup = Setup::new().settings(settings);
    let gateway = setup.proxy("echo", &upstream.url("/echo")).start();
    (gateway, upstream)
}

/// Fails unless the server still answers.
#[track_caller]
fn still_serves(gateway: &Gateway) {
    gateway.get("/healthz").expect(200);
    gateway.post("/p/local/echo", "{}").expect(200);
}

/// Returns true if the connection ends before the deadline.
fn ends(mut stream: std::net::TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).expect("a timeout");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).is_ok()
}

#[test]
fn a_head_that_never_ends_is_given_up() {
    let (gateway, _upstream) = with_echo("[timeouts]\nheader_s = 0.3");
    let started = Instant::now();
    let mut silent = connect(gateway.address);
    silent
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n")
        .expect("it is open");
    let idle = connect(gateway.address);
    assert!(ends(silent, Duration::from_secs(20)));
    assert!(ends(idle, Duration::from_secs(20)));
    assert!(started.elapsed() < Duration::from_secs(15));
    still_serves(&gateway);
}

#[test]
fn a_body_that_never_ends_is_given_up() {
    let (gateway, _upstream) = with_echo("[timeouts]\nbody_s = 0.3");
    let mut slow = connect(gateway.address);
    let head = format!(
        "POST /p/local/echo HTTP/1.1\r\nhost: x\r\nmlp-api-key: {}\r\ncontent-length: 100\r\n\r\nabc",
        gateway.key
    );
    slow.write_all(head.as_bytes()).expect("it is open");
    let reply = read_reply(&mut BufReader::new(slow)).expect("an answer");
    reply.expect_error(408, "REQUEST_BODY_TIMEOUT");
    still_serves(&gateway);
}

#[test]
fn a_body_without_an_end_is_cut_at_the_limit() {
    let (gateway, _upstream) = with_echo("[limits]\nbody_bytes = 10000");
    let mut stream = connect(gateway.address);
    let head = format!(
        "POST /p/local/echo HTTP/1.1\r\nhost: x\r\nmlp-api-key: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        gateway.key
    );
    stream.write_all(head.as_bytes()).expect("it is open");
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
    for _ in 0..1000 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    // The server may close before it has read everything, which may lose its answer.
    if let Some(reply) = read_reply(&mut BufReader::new(stream)) {
        reply.expect_error(413, "REQUEST_BODY_IS_TOO_LARGE");
    }
    still_serves(&gateway);
}

#[test]
fn a_strangers_body_is_not_read() {
    let (gateway, _upstream) = with_echo("");
    let mut stream = connect(gateway.address);
    let head = "POST /p/local/echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it is open");
    let reply = read_reply(&mut BufReader::new(stream)).expect("an answer");
    reply.expect_error(401, "mlp.gateway.access_key_required");
}

#[test]
fn heads_have_limits() {
    let (gateway, _upstream) = with_echo("[limits]\nheader_bytes = 8192\nheader_count = 20");
    for (headers, value) in [(1, 20_000), (30, 10)] {
        let mut head = "GET /healthz HTTP/1.1\r\nhost: x\r\n".to_owned();
        for index in 0..headers {
            let _ = write!(head, "x-{index}: {}\r\n", "y".repeat(value));
        }
        head.push_str("\r\n");
        let mut stream = connect(gateway.address);
        let _ = stream.write_all(head.as_bytes());
        let refused = read_reply(&mut BufReader::new(stream)).expect("an answer");
        refused.expect_error(431, "REQUEST_HEADER_IS_TOO_LARGE");
    }
    still_serves(&gateway);
}

#[test]
fn connections_have_a_limit_and_idle_ones_give_way() {
    let (gateway, _upstream) = with_echo("[limits]\nconnections = 2");
    // These connections stay open and silent.
    let _held: Vec<_> = (0..2).map(|_| connect(gateway.address)).collect();
    still_serves(&gateway);
}

#[test]
fn tricks_in_paths_lead_nowhere() {
    let (gateway, _upstream) = with_echo("");
    for path in [
        "/api/mlpgateway/account/local/model/..%2f..%2fetc%2fpasswd",
        "/api/mlpgateway/account/local/model/%2e%2e",
        "/api/mlpgateway/account/local/model/a%00b",
        "/api/mlpgateway/account/%ff/model/x",
        "/api/mlpgateway/account/local/model/%ff",
        "/api/mlpgateway/account/99999999999999999999/model/echo",
        "/api/mlpgateway/account/-1/model/echo",
        "/api/mlpgateway//account/local/model/echo",
        "/../../etc/passwd",
        "/docs/../../etc/passwd",
    ] {
        let reply = gateway.get(path);
        assert!(
            (400..500).contains(&reply.status),
            "{path}: {}",
            reply.status
        );
        assert!(reply.json()["error"]["code"].is_string(), "{path}");
    }
    still_serves(&gateway);
}

#[test]
fn noise_instead_of_http_is_answered_or_cut() {
    let (gateway, _upstream) = with_echo("");
    for noise in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"\0\0\0\0\0\0\0\0",
        b"POST /p/local/echo HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /p/local/echo HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        b"POST /p/local/echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame at all",
    ] {
        let mut stream = connect(gateway.address);
        let _ = stream.write_all(noise);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(ends(stream, Duration::from_mins(1)));
    }
    still_serves(&gateway);
}

#[test]
fn other_methods_are_told_which_there_are() {
    let (gateway, _upstream) = with_echo("");
    for (method, path, allow) in [
        ("PUT", "/healthz", "GET, HEAD"),
        ("GET", "/p/local/echo", "POST"),
        (
            "DELETE",
            "/api/mlpgateway/account/local/model/echo/predict",
            "POST",
        ),
        (
            "PATCH",
            "/api/mlpgateway/account/local/model/echo/predict-config",
            "GET, HEAD, POST",
        ),
    ] {
        let reply = gateway
            .send(method, path, "")
            .expect_error(405, "METHOD_NOT_ALLOWED");
        assert_eq!(reply.header("allow"), Some(allow));
    }
    let head = http::request(gateway.address, "HEAD", "/healthz", &[], b"");
    assert_eq!(head.status, 200);
}

#[test]
fn pages_of_allowed_origins_may_call() {
    let (gateway, _upstream) = with_echo("[cors]\norigins = [\"https://app.example\"]");
    let ask = |origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "mlp-api-key"),
        ];
        gateway.bare("OPTIONS", "/p/local/echo", &headers)
    };
    let allowed = "access-control-allow-origin";
    assert_eq!(
        ask("https://app.example").header(allowed),
        Some("https://app.example")
    );
    assert_eq!(ask("https://evil.example").header(allowed), None);
    assert_eq!(ask("http://localhost:3000").header(allowed), None);
}

#[test]
fn pages_of_this_machine_may_call_without_a_session() {
    let (gateway, _upstream) = with_echo("");
    let ask = |origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            (
                "access-control-request-headers",
                "authorization, x-pkgtool-console",
            ),
        ];
        gateway.bare("OPTIONS", "/p/local/echo", &headers)
    };
    let allowed = "access-control-allow-origin";
    for origin in [
        "http://localhost:3000",
        "https://localhost",
        "http://127.0.0.1:5173",
        "http://[::1]:80",
        "http://[::1]",
    ] {
        let reply = ask(origin);
        assert_eq!(reply.header(allowed), Some(origin));
        // Otherwise such a page could use the session of the console.
        assert_eq!(reply.header("access-control-allow-credentials"), None);
        let headers = reply
            .header("access-control-allow-headers")
            .expect("a list");
        assert!(
            headers.contains("authorization") && !headers.contains("console"),
            "{headers}"
        );
    }
    for origin in [
        "http://localhost.evil.example",
        "http://evil.example",
        "null",
        "http://localhost:80.evil.example",
        "ftp://localhost",
        "http://a@localhost:x",
    ] {
        assert_eq!(ask(origin).header(allowed), None, "{origin}");
    }
}

#[test]
fn a_request_with_two_lengths_is_refused_and_its_connection_closed() {
    let (gateway, upstream) = with_echo("");
    let key = &gateway.key;
    for (first, second) in [
        ("content-length: 2", "transfer-encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 2"),
    ] {
        for before in [
            String::new(),
            format!(
                "POST /p/local/echo HTTP/1.1\r\nhost: x\r\nmlp-api-key: {key}\r\ncontent-length: 2\r\n\r\n{{}}"
            ),
        ] {
            let seen = upstream.seen();
            let mut stream = connect(gateway.address);
            let text = format!(
                "{before}POST /p/local/echo HTTP/1.1\r\nhost: x\r\nmlp-api-key: {key}\r\n{first}\r\n{second}\r\n\r\n\
                 2\r\n{{}}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
            );
            stream.write_all(text.as_bytes()).expect("it is open");
            let mut reader = BufReader::new(stream);
            if !before.is_empty() {
                read_reply(&mut reader).expect("an answer").expect(200);
            }
            let refused = read_reply(&mut reader).expect("an answer");
            let refused = refused.expect_error(400, "BAD_REQUEST");
            assert_eq!(refused.header("connection"), Some("close"));
            assert!(refused.text().contains("Transfer-Encoding"));
            assert!(read_reply(&mut reader).is_none());
            assert_eq!(upstream.seen(), seen + usize::from(!before.is_empty()));
        }
    }
    still_serves(&gateway);
}
