//! Tests of fairness: an account or a key that uses all it can get must leave capacity for the
//! others.

use std::fmt::Write as _;
use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use crate::support::gateway::{Gateway, Setup, task_path};
use crate::support::http::{self, Reply, Upstream, connect, read_reply};

/// Sends a request with a key and does not wait for the answer.
fn begun(gateway: &Gateway, key: &str, path: &str) -> TcpStream {
    let mut stream = connect(gateway.address);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: x\r\nmlp-api-key: {key}\r\n\r\n"
    )
    .expect("it is open");
    stream
}

/// Sends a POST with additional header lines.
fn post(gateway: &Gateway, path: &str, more: &str, body: &[u8]) -> Reply {
    let mut stream = connect(gateway.address);
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    let _ = write!(head, "mlp-api-key: {}\r\n{more}\r\n\r\n", gateway.key);
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
    read_reply(&mut BufReader::new(stream)).expect("an answer")
}

#[test]
fn every_create_counts_in_the_rate() {
    const CREATE: &str = "/api/mlpgateway/account/local/model/echo/async/predict";
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    gateway
        .command(&["accounts", "set", "local", "--rps", "3"])
        .expect_code(0);
    gateway.until(|| (0..8).any(|_| gateway.post("/p/local/echo", "{}").status == 429));
    let large = format!("{{{}}}", " ".repeat(300_000));
    let length = format!("content-length: {}", large.len());
    let gzip = |body: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body).expect("it is memory");
        encoder.finish().expect("it is memory")
    };
    let packed = gzip(b"{}");
    let packed_head = format!("content-encoding: gzip\r\ncontent-length: {}", packed.len());
    for (kind, head, body) in [
        (
            "chunked",
            "transfer-encoding: chunked",
            &b"2\r\n{}\r\n0\r\n\r\n"[..],
        ),
        ("compressed", &packed_head, &packed[..]),
        ("large", &length, large.as_bytes()),
    ] {
        let began = Instant::now();
        let mut accepted = 0;
        for number in 0..30 {
            // Every fifth request is a predict: both kinds count towards the same rate.
            let reply = if number % 5 == 4 {
                gateway.post("/p/local/echo", "{}")
            } else {
                post(&gateway, CREATE, head, body)
            };
            assert!([200, 429].contains(&reply.status), "{}", reply.text());
            accepted += u64::from(reply.status == 200);
        }
        let most = 3 * (began.elapsed().as_secs() + 2);
        assert!(
            accepted <= most,
            "{kind}: {accepted} accepted, {most} may be"
        );
    }
}

#[test]
fn accounts_that_take_all_places_leave_one_for_the_next() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[tasks]\nrunning = 256\n[defaults]\npublic = true")
        .proxy("slow", &upstream.url("/hold"))
        .proxy("idle", &upstream.url("/echo"))
        .start();
    let create = |key: &str, service: &str| {
        let path = format!("/api/mlpgateway/account/local/model/{service}/async/predict");
        let reply = gateway.send_with(key, "POST", &path, "{}").expect(200);
        reply.json().as_str().expect("an id").to_owned()
    };
    for number in 1..=6 {
        let name = format!("a{number}");
        gateway.account(&name, 1000);
        let key = gateway.new_key(&name, "k", "predict,read");
        for _ in 0..50 {
            create(&key, "slow");
        }
    }
    gateway.until(|| {
        let ready = gateway.get("/readyz").expect(200).json();
        ready["running"].as_u64() >= Some(256)
    });
    gateway.account("late", 10);
    let late = gateway.new_key("late", "k", "predict,read");
    for _ in 0..3 {
        let task = create(&late, "idle");
        let path = format!("/api/mlpgateway/account/late/async/task/{task}?wait=20");
        let found = gateway
            .send_with(&late, "GET", &path, "")
            .expect(200)
            .json();
        assert_eq!(found["status"], "COMPLETED");
    }
    upstream.release();
}

#[test]
fn a_key_has_a_limit_of_requests_under_way() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nconnections = 40")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let task = gateway.create("slow", "{}");
    let poll = format!("{}?wait=60", task_path(&task));
    let mut held = Vec::new();
    gateway.until(|| {
        held.push(begun(&gateway, &gateway.key, &poll));
        gateway.get("/readyz").expect(200);
        let page = gateway.bare("GET", "/metrics", &[]).expect(200).text();
        held.len() >= 20 && page.contains("pkgtool_requests_in_flight 21\n")
    });
    for _ in 0..30 {
        let refused = gateway.get(&task_path(&task));
        let refused = refused.expect_error(429, "TOO_MANY_OPEN_REQUESTS");
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.json()["error"]["args"]["limit"], 20);
    }
    gateway.bare("GET", "/healthz", &[]).expect(200);
    let other = gateway.new_key("local", "other", "read");
    gateway
        .send_with(&other, "GET", &task_path(&task), "")
        .expect(200);
    upstream.release();
    for stream in held.drain(..20) {
        let reply = read_reply(&mut BufReader::new(stream)).expect("an answer");
        assert!([200, 429].contains(&reply.status));
    }
    gateway.until(|| gateway.get(&task_path(&task)).status == 200);
}

#[test]
fn health_has_a_connection_of_its_own() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nconnections = 6\nrequests_per_key = 100\nrequests_per_account = 100")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let task = gateway.create("slow", "{}");
    let poll = format!("{}?wait=60", task_path(&task));
    let mut held: Vec<TcpStream> = Vec::new();
    gateway.until(|| {
        held.push(begun(&gateway, &gateway.key, &poll));
        gateway.get(&task_path(&task)).status == 503
    });
    for path in ["/healthz", "/readyz", "/metrics"] {
        let reply = gateway.bare("GET", path, &[]).expect(200);
        assert_eq!(reply.header("connection"), Some("close"));
    }
    let refused = gateway.post("/p/local/slow", "{}");
    refused.expect_error(503, "TOO_MANY_CONNECTIONS");
    // Silent connections of this kind are evicted before the next client that sends a request.
    let silent: Vec<_> = (0..40).map(|_| connect(gateway.address)).collect();
    gateway.until(|| {
        http::try_request(gateway.address, "/healthz").is_some_and(|it| it.status == 200)
    });
    drop((silent, held));
    upstream.release();
}
