//! Tests of connections: their limits, their owners, and the answers that the HTTP library itself
//! sends on them.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{Upstream, connect, read_reply, request};

fn with_echo(settings: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::start();
    let setup = Setup::new().settings(settings);
    let gateway = setup.proxy("echo", &upstream.url("/echo"));
    (gateway.start(), upstream)
}

/// Opens connections that send half a request head.
fn half_open(gateway: &Gateway, count: usize) -> Vec<TcpStream> {
    let open = |number: usize| {
        let mut stream = connect(gateway.address);
        if number.is_multiple_of(2) {
            // The server may have closed the connection by now.
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n");
        }
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn half_open_connections_make_nobody_wait() {
    let (gateway, _upstream) = with_echo("[limits]\nconnections = 40");
    for _ in 0..3 {
        let held = half_open(&gateway, 150);
        let started = Instant::now();
        gateway.post("/p/local/echo", "{}").expect(200);
        assert!(started.elapsed() < Duration::from_secs(5));
        drop(held);
    }
    let page = gateway.get("/metrics").expect(200).text();
    let met = "pkgtool_limits_reached_total{limit=\"connections_per_address\"}";
    assert!(page.contains(met), "{page}");
    let log = gateway.whole_log();
    assert_eq!(log.matches("a limit was reached").count(), 1, "{log}");
    assert!(log.contains("127.0.0.1"), "{log}");
}

#[test]
fn a_connection_that_showed_a_key_is_kept() {
    let (gateway, _upstream) = with_echo("[limits]\nconnections = 40");
    let head = format!(
        "GET /api/mlpgateway/account/local/async/task HTTP/1.1\r\nhost: x\r\nmlp-api-key: {}\r\n\r\n",
        gateway.key
    );
    let mut stream = connect(gateway.address);
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    for _ in 0..3 {
        stream.write_all(head.as_bytes()).expect("it is open");
        read_reply(&mut reader).expect("an answer").expect(200);
        let idle = half_open(&gateway, 100);
        gateway.get("/healthz").expect(200);
        drop(idle);
    }
}

#[test]
fn who_finds_no_room_is_told() {
    let upstream = Upstream::start();
    let setup = Setup::new().settings(
        "[limits]\nconnections = 4\nconnections_without_key = 4\nconnections_per_address = 4\n\
         requests_per_key = 4\nrequests_per_account = 4",
    );
    let gateway = setup.proxy("slow", &upstream.url("/hold")).start();
    std::thread::scope(|scope| {
        for number in 1..=4 {
            scope.spawn(|| gateway.post("/p/local/slow", "{}").expect(200));
            gateway.until(|| upstream.seen() == number);
        }
        let refused = gateway.bare("GET", "/docs", &[]);
        let refused = refused.expect_error(503, "TOO_MANY_CONNECTIONS");
        assert!(refused.header("retry-after").is_some());
        upstream.release();
    });
    gateway.get("/healthz").expect(200);
}

#[test]
fn what_is_no_request_gets_the_body_of_every_error() {
    let (gateway, _upstream) = with_echo("[limits]\nheader_bytes = 8192\nheader_count = 20");
    let many = "x: y\r\n".repeat(30);
    let long = "z".repeat(20_000);
    let cases = [
        ("NONSENSE\r\n\r\n".to_owned(), 400, "BAD_REQUEST"),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400, "BAD_REQUEST"),
        (
            "POST /p/local/echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n".to_owned(),
            400,
            "BAD_REQUEST",
        ),
        (
            format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{many}\r\n"),
            431,
            "REQUEST_HEADER_IS_TOO_LARGE",
        ),
        (
            format!("GET /healthz HTTP/1.1\r\nhost: x\r\nlong: {long}\r\n\r\n"),
            431,
            "REQUEST_HEADER_IS_TOO_LARGE",
        ),
    ];
    let good = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    for (text, status, code) in &cases {
        // Once as the first request of a connection, then after other requests.
        for before in 0..3 {
            let mut stream = connect(gateway.address);
            let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
            for _ in 0..before {
                stream.write_all(good.as_bytes()).expect("it is open");
                read_reply(&mut reader).expect("an answer").expect(200);
            }
            stream.write_all(text.as_bytes()).expect("it is open");
            let refused = read_reply(&mut reader).expect("an answer");
            let refused = refused.expect_error(*status, code);
            assert_eq!(refused.header("connection"), Some("close"));
            assert_eq!(reader.read(&mut [0]).expect("it is closed"), 0);
        }
    }
    // An answer from a handler passes unchanged, even when it looks like one of the HTTP library.
    let echo = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".repeat(3000);
    for _ in 0..3 {
        let answer = gateway.post("/p/local/echo", &echo).expect(200);
        assert_eq!(answer.text(), echo);
    }
}

#[test]
fn a_request_names_one_host() {
    let (gateway, _upstream) = with_echo("");
    let ask = |text: &str| {
        let mut stream = connect(gateway.address);
        stream.write_all(text.as_bytes()).expect("it is open");
        read_reply(&mut BufReader::new(stream)).expect("an answer")
    };
    for hosts in ["", "host: a\r\nhost: b\r\n"] {
        let refused = ask(&format!(
            "GET /healthz HTTP/1.1\r\n{hosts}connection: close\r\n\r\n"
        ));
        let refused = refused.expect_error(400, "BAD_REQUEST");
        assert_eq!(refused.json()["error"]["args"]["place"], "Host");
    }
    ask("GET /healthz HTTP/1.0\r\n\r\n").expect(200);
    ask("GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").expect(200);
}

#[test]
fn answers_are_compressed_for_who_asks() {
    let (gateway, _upstream) = with_echo("");
    let plain = gateway.bare("GET", "/openapi.json", &[]).expect(200);
    assert_eq!(plain.header("content-encoding"), None);
    for coding in ["gzip", "zstd"] {
        let accept = [("accept-encoding", coding)];
        let answer = gateway.bare("GET", "/openapi.json", &accept).expect(200);
        assert_eq!(answer.header("content-encoding"), Some(coding));
        assert!(answer.body.len() * 3 < plain.body.len());
        let decoded = if coding == "zstd" {
            zstd::decode_all(&answer.body[..]).expect("it is encoded")
        } else {
            let mut bytes = Vec::new();
            let mut gzip = flate2::read::GzDecoder::new(&answer.body[..]);
            gzip.read_to_end(&mut bytes).expect("it is encoded");
            bytes
        };
        assert!(decoded == plain.body);
        let small = gateway.bare("GET", "/healthz", &accept).expect(200);
        assert_eq!(small.header("content-encoding"), None);
    }
}

#[test]
fn a_client_that_sends_on_hears_why_it_is_refused() {
    let (gateway, _upstream) = with_echo("[limits]\nbody_bytes = 1000");
    let large = vec![b'x'; 8 << 20];
    for _ in 0..10 {
        let refused = gateway.post("/p/local/echo", &large);
        refused.expect_error(413, "REQUEST_BODY_IS_TOO_LARGE");
        let headers = [("mlp-api-key", "pk_nobody")];
        let stranger = request(gateway.address, "POST", "/p/local/echo", &headers, &large);
        stranger.expect_error(401, "mlp.gateway.api_key_not_found");
    }
}

#[test]
fn the_soft_limit_of_open_files_is_raised() {
    let gateway = Setup::new().open_files(64).start();
    let (soft, hard) = gateway.limits("Max open files");
    assert_eq!(soft, hard);
    // This is more than the original soft limit.
    let held = half_open(&gateway, 200);
    for _ in 0..3 {
        gateway.get("/healthz").expect(200);
    }
    drop(held);
    assert!(!gateway.whole_log().contains("limit=\"accept\""));
}
