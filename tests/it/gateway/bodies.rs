//! Tests of request bodies: how much of them the gateway reads, when it reads them, and the memory
//! that they take.

use std::io::{BufReader, Write as _};
use std::net::TcpStream;

use serde_json::json;

use super::{first_output, with_models};
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{Reply, Upstream, connect, read_reply, request};

const CREATE: &str = "/api/mlpgateway/account/local/model/slow/async/predict";
const PREDICT: &str = "/api/mlpgateway/account/local/model/slow/predict";
const MEBI: usize = 1 << 20;

fn with_upstream(settings: &str, path: &str, rps: u32) -> (Gateway, Upstream) {
    let upstream = Upstream::start();
    let setup = Setup::new().settings(settings);
    let gateway = setup.proxy("slow", &upstream.url(path)).start();
    let set = ["accounts", "set", "local", "--rps", &rps.to_string()];
    gateway.command(&set).expect_code(0);
    // The server loads an account's limits when it starts.
    (gateway.kill_and_restart(), upstream)
}

/// Sends a request's head, which announces a body, and none of the body yet.
fn announce(gateway: &Gateway, key: &str, path: &str, more: &str, length: usize) -> TcpStream {
    let mut stream = connect(gateway.address);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nmlp-api-key: {key}\r\n{more}\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it is open");
    stream
}

#[track_caller]
fn reply(stream: TcpStream) -> Reply {
    read_reply(&mut BufReader::new(stream)).expect("an answer")
}

#[test]
fn a_request_beyond_the_rate_or_the_waiting_limit_is_refused_before_its_body() {
    let (gateway, upstream) = with_upstream("[limits]\nwaiting = 1\nrunning = 1", "/hold", 40);
    let first = gateway.create("slow", "{}");
    gateway.wait_for(&first, "PROCESSING");
    gateway.create("slow", "{}");
    let refused = reply(announce(&gateway, &gateway.key, CREATE, "", 60 * MEBI));
    refused.expect_error(429, "TOO_MANY_IDLE_ASYNC_TASKS");
    // The gateway answers before it reads any of a body of unknown length.
    let mut chunked = connect(gateway.address);
    let head = format!(
        "POST {CREATE} HTTP/1.1\r\nhost: x\r\nmlp-api-key: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        gateway.key
    );
    chunked.write_all(head.as_bytes()).expect("it is open");
    reply(chunked).expect_error(429, "TOO_MANY_IDLE_ASYNC_TASKS");
    upstream.release();
    gateway.until(|| gateway.get("/readyz").json()["waiting"] == 0);
    for path in [CREATE, PREDICT] {
        let mut replies = Vec::new();
        gateway.until(|| {
            // Admitted requests wait for their body; the others are rejected at once.
            let open: Vec<TcpStream> = (0..60)
                .map(|_| announce(&gateway, &gateway.key, path, "", LARGE))
                .collect();
            replies = open
                .into_iter()
                .skip(45)
                .map(|stream| {
                    stream
                        .set_read_timeout(Some(std::time::Duration::from_secs(1)))
                        .expect("a timeout");
                    read_reply(&mut BufReader::new(stream))
                })
                .collect();
            replies.iter().flatten().count() > 0
        });
        for refused in replies.into_iter().flatten() {
            let refused = refused.expect_error(429, "REQUESTS_PER_SECOND_LIMIT_EXCEEDED");
            assert!(refused.header("retry-after").is_some());
        }
    }
}

/// Size of a stored body that exceeds its part in memory, in bytes.
const LARGE: usize = 300 << 10;

#[test]
fn a_large_body_is_stored_once_for_its_idempotency_key() {
    let (gateway, upstream) = with_upstream("[limits]\nwaiting = 1\nrunning = 1", "/hold", 1000);
    let key = [
        ("mlp-api-key", gateway.key.as_str()),
        ("idempotency-key", "one"),
    ];
    let send = |body: &[u8]| request(gateway.address, "POST", CREATE, &key, body);
    let busy = gateway.create("slow", "{}");
    gateway.wait_for(&busy, "PROCESSING");
    let body = vec![b'1'; LARGE];
    let first = send(&body).expect(200).json();
    // The queue is full now, except for repetitions of an earlier request.
    gateway
        .post(CREATE, &body)
        .expect_error(429, "TOO_MANY_IDLE_ASYNC_TASKS");
    for _ in 0..3 {
        assert_eq!(send(&body).expect(200).json(), first);
        send(&vec![b'2'; LARGE]).expect_error(409, "IDEMPOTENCY_KEY_WAS_USED");
        send(b"1").expect_error(409, "IDEMPOTENCY_KEY_WAS_USED");
    }
    // The store holds only the body of the first request.
    assert_eq!(files(&gateway.data().join("blobs/body")), 1);
    upstream.release();
    gateway.wait_for(first.as_str().expect("an id"), "COMPLETED");
    gateway.until(|| files(&gateway.data().join("blobs/body")) == 0);
}

fn files(directory: &std::path::Path) -> usize {
    let entries = walkdir::WalkDir::new(directory).into_iter().flatten();
    entries.filter(|entry| entry.file_type().is_file()).count()
}

#[test]
fn bodies_of_every_size_arrive_whole() {
    let (gateway, _upstream) = with_upstream("[limits]\nwaiting = 50", "/echo", 1000);
    let sizes = [0, 1, 150, 65_536, 65_537, 262_144, 262_145, 3 * MEBI, 10];
    for size in sizes {
        let body: Vec<u8> = (b'a'..b'x').cycle().take(size).collect();
        let answer = gateway.post(PREDICT, &body).expect(200);
        assert!(answer.body == body, "{size}");
        let task = gateway.create("slow", &body);
        gateway.wait_for(&task, "COMPLETED");
        assert!(gateway.result(&task).expect(200).body == body, "{size}");
    }
    // All of their memory is released: the largest body still fits.
    let page = gateway.get("/metrics").expect(200).text();
    assert!(!page.contains("limit=\"body_memory"), "{page}");
    gateway.until(|| files(&gateway.data().join("blobs/body")) == 0);
}

#[test]
fn a_large_body_of_a_model_is_checked_before_its_task_is_made() {
    let (gateway, _tree) = with_models(Setup::new());
    let path = "/api/mlpgateway/account/local/model/negate/async/predict";
    let spaces = " ".repeat(LARGE);
    let right = format!("{{\"inputs\":{spaces}[{{\"data\":[1,2,3]}}]}}");
    for _ in 0..3 {
        let wrong = format!("{{\"inputs\":{spaces}[{{\"data\":[1,2]}}]}}");
        gateway.post(path, &wrong).expect_error(400, "BAD_REQUEST");
        let task = gateway.post(path, &right).expect(200).json();
        let task = task.as_str().expect("an id");
        gateway.wait_for(task, "COMPLETED");
        let answer = gateway.result(task).expect(200).json();
        assert_eq!(first_output(&answer), [-1.0, -2.0, -3.0]);
    }
    // The body is sent as an object with a config and as text; only the data is stored.
    let right: serde_json::Value = serde_json::from_str(&right).expect("JSON");
    let padded = format!("{{\"data\":{right},{spaces}\"config\":{{}}}}");
    let texts = json!({"data": format!("{right}{spaces}")}).to_string();
    for (form, body) in [("", padded), ("-v2", texts)] {
        let path =
            format!("/api/mlpgateway/account/local/model/negate/async/predict-with-config{form}");
        let task = gateway.post(&path, &body).expect(200).json();
        let task = task.as_str().expect("an id");
        gateway.wait_for(task, "COMPLETED");
        gateway.result(task).expect(200);
    }
    gateway.until(|| files(&gateway.data().join("blobs/body")) == 0);
}

#[test]
fn accounts_share_the_memory_for_bodies() {
    let settings = "[limits]\nbody_bytes = 10000000\nbody_memory_bytes = 20000000\n\
                    [services.slow]\npublic = true";
    let (gateway, _upstream) = with_upstream(settings, "/echo", 1000);
    gateway.account("other", 1000);
    let other = gateway.new_key("other", "all", "predict,read,write");
    gateway.account("third", 1000);
    let third = gateway.new_key("third", "all", "predict,read,write");
    let (own, nine) = (gateway.key.as_str(), 9_000_000);
    for _ in 0..3 {
        let held = |bytes: usize| {
            let line = format!("pkgtool_body_memory_bytes {bytes}\n");
            gateway.until(|| gateway.get("/metrics").text().contains(&line));
        };
        held(0);
        let first = announce(&gateway, own, PREDICT, "", nine);
        held(nine);
        let second = reply(announce(&gateway, own, PREDICT, "", nine));
        let second = second.expect_error(429, "TOO_MANY_BODY_BYTES");
        assert_eq!(second.header("retry-after"), Some("1"));
        let others = announce(&gateway, &other, PREDICT, "", nine);
        held(2 * nine);
        let full = reply(announce(&gateway, &third, PREDICT, "", nine));
        let full = full.expect_error(503, "BODY_MEMORY_IS_FULL");
        assert_eq!(full.header("retry-after"), Some("1"));
        // A small body of an account without held memory still fits.
        gateway.send_with(&third, "POST", PREDICT, "{}").expect(200);
        drop((first, others));
        gateway.until(|| {
            let body = vec![b'y'; nine];
            gateway.send_with(&third, "POST", PREDICT, body).status == 200
        });
    }
    let page = gateway.get("/metrics").expect(200).text();
    for limit in ["body_memory", "body_memory_of_account"] {
        let line = format!("pkgtool_limits_reached_total{{limit=\"{limit}\"}}");
        assert!(page.contains(&line), "{page}");
    }
}

#[test]
fn many_large_bodies_of_one_key_stay_within_the_memory() {
    let (gateway, _upstream) = with_upstream("[limits]\nwaiting = 250", "/hold", 10_000);
    let body = vec![b'7'; 60 * MEBI];
    let before = gateway.memory("VmRSS");
    for path in [PREDICT, CREATE] {
        // The upstream never answers, so admitted requests last until the test closes them.
        let streams: Vec<TcpStream> = (0..60)
            .map(|_| announce(&gateway, &gateway.key, path, "", body.len()))
            .collect();
        std::thread::scope(|scope| {
            for mut stream in &streams {
                // Each stream sends 10 MB, or as much as the server accepts.
                let part = &body[..10 * MEBI];
                scope.spawn(move || {
                    let _ = stream.write_all(part);
                });
            }
        });
        drop(streams);
    }
    let most = gateway.memory("VmHWM");
    assert!(most < 300_000_000, "{most}");
    gateway.until(|| gateway.memory("VmRSS") < before + 60_000_000);
}

#[test]
fn compressed_bodies_are_understood_and_bounded() {
    let (gateway, _upstream) = with_upstream("[limits]\nbody_bytes = 2000000", "/echo", 1000);
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).expect("it is encoded");
        encoder.finish().expect("it is encoded")
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("it is encoded");
    let send = |path: &str, coding: &str, body: &[u8]| {
        let headers = [
            ("mlp-api-key", gateway.key.as_str()),
            ("content-encoding", coding),
        ];
        request(gateway.address, "POST", path, &headers, body)
    };
    let text: Vec<u8> = (b'a'..b'r').cycle().take(400_000).collect();
    let bomb = vec![b'0'; 50_000_000];
    for (coding, encode) in [
        ("gzip", &gzip as &dyn Fn(&[u8]) -> Vec<u8>),
        ("zstd", &zstd),
    ] {
        for body in [&text[..], &text[..100], b""] {
            let answer = send(PREDICT, coding, &encode(body)).expect(200);
            assert!(answer.body == body, "{coding}");
            let task = send(CREATE, coding, &encode(body)).expect(200).json();
            let task = task.as_str().expect("an id");
            gateway.wait_for(task, "COMPLETED");
            assert!(gateway.result(task).expect(200).body == body, "{coding}");
        }
        let encoded = encode(&text);
        for path in [PREDICT, CREATE] {
            send(path, coding, &encode(&bomb)).expect_error(413, "REQUEST_BODY_IS_TOO_LARGE");
            let cut = send(path, coding, &encoded[..encoded.len() - 3]);
            let cut = cut.expect_error(400, "BAD_REQUEST");
            assert_eq!(cut.json()["error"]["args"]["place"], "Content-Encoding");
            send(path, coding, b"{}").expect_error(400, "BAD_REQUEST");
        }
    }
    for coding in ["br", "gzip, zstd"] {
        send(PREDICT, coding, b"{}").expect_error(415, "UNSUPPORTED_CONTENT_ENCODING");
    }
    assert_eq!(send(PREDICT, "identity", b"{}").expect(200).text(), "{}");
    gateway.until(|| files(&gateway.data().join("blobs/body")) == 0);
}
