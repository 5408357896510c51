//! Tests of shutdown: one grace period for everything, and an answer to every request.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::support::gateway::{Gateway, Setup, task_path};
use crate::support::http::{Reply, Upstream, connect, read_reply, request};

fn with_held(grace: f64) -> (Gateway, Upstream) {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings(&format!("[timeouts]\ngrace_s = {grace:?}"))
        .proxy("slow", &upstream.url("/hold"))
        .start();
    (gateway, upstream)
}

/// Sends a request in another thread, which outlives the server.
fn asked(gateway: &Gateway, method: &'static str, path: &str) -> std::thread::JoinHandle<Reply> {
    let (address, key, path) = (gateway.address, gateway.key.clone(), path.to_owned());
    std::thread::spawn(move || {
        let headers = [("mlp-api-key", key.as_str())];
        request(address, method, &path, &headers, b"{}")
    })
}

#[test]
fn everyone_gets_an_answer_within_one_grace() {
    let (gateway, upstream) = with_held(6.0);
    let task = gateway.create("slow", "{}");
    gateway.wait_for(&task, "PROCESSING");
    let poll = asked(&gateway, "GET", &format!("{}?wait=60", task_path(&task)));
    let result = asked(
        &gateway,
        "GET",
        &format!("{}/response?wait=60", task_path(&task)),
    );
    let predict = asked(&gateway, "POST", "/p/local/slow");
    gateway.until(|| upstream.seen() == 2);
    let mut half_open = connect(gateway.address);
    half_open.write_all(b"GET /").expect("it is open");
    gateway.until(|| {
        gateway
            .get("/metrics")
            .text()
            .contains("requests_in_flight 4")
    });
    let started = Instant::now();
    gateway.ask_to_stop();
    let poll = poll.join().expect("it ends").expect(200).json();
    assert_eq!(poll["status"], "PROCESSING");
    result.join().expect("it ends").expect(204);
    assert!(started.elapsed() < Duration::from_secs(5));
    let cut = predict.join().expect("it ends");
    let cut = cut.expect_error(503, "SERVER_IS_STOPPING");
    assert!(cut.header("retry-after").is_some());
    let (code, log, _directory) = gateway.ended();
    assert!(started.elapsed() < Duration::from_secs(20), "{log}");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("requests were cut off"), "{log}");
}

#[test]
fn what_only_waits_does_not_keep_the_server() {
    let (gateway, _upstream) = with_held(60.0);
    let mut half_open = connect(gateway.address);
    half_open
        .write_all(b"GET / HTTP/1.1\r\n")
        .expect("it is open");
    let silent = connect(gateway.address);
    gateway.get("/healthz").expect(200);
    let started = Instant::now();
    let (code, log, _directory) = gateway.stop();
    assert!(started.elapsed() < Duration::from_secs(20), "{log}");
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("cut off"), "{log}");
    drop((half_open, silent));
}

#[test]
fn nothing_is_answered_after_the_log_said_that_it_was_cut_off() {
    let (gateway, upstream) = with_held(0.5);
    // A running task must not keep a cancelled request alive.
    let task = gateway.create("slow", "{}");
    gateway.wait_for(&task, "PROCESSING");
    let predict = asked(&gateway, "POST", "/p/local/slow");
    gateway.until(|| upstream.seen() == 2);
    gateway.ask_to_stop();
    gateway.until(|| gateway.log().contains("cut off"));
    upstream.release();
    assert_eq!(predict.join().expect("it ends").status, 503);
    let (code, log, _directory) = gateway.ended();
    assert_eq!(code, Some(0), "{log}");
    let (_, after) = log.split_once("requests were cut off").expect("it says so");
    assert!(!after.contains("answered"), "{log}");
    assert!(!after.contains("refused"), "{log}");
}

#[test]
fn a_stop_under_load_answers_every_request() {
    for round in 0..4 {
        let upstream = Upstream::start();
        upstream.release();
        let gateway = Setup::new().proxy("slow", &upstream.url("/hold")).start();
        let (address, key) = (gateway.address, gateway.key.clone());
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let key = key.clone();
                // Half of the clients keep their connection.
                std::thread::spawn(move || load(address, &key, number % 2 == 0))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        gateway.ask_to_stop();
        let mut answered = 0;
        for client in clients {
            answered += client.join().expect("it ends").unwrap_or_else(|lost| {
                panic!("round {round}: {lost}\n{}", gateway.log());
            });
        }
        assert!(answered > 0);
        let (code, ..) = gateway.ended();
        assert_eq!(code, Some(0));
    }
}

/// Creates tasks until the server accepts no more connections. Fails if a request gets no answer.
fn load(address: std::net::SocketAddr, key: &str, keeps: bool) -> Result<usize, String> {
    let request = format!(
        "POST /api/mlpgateway/account/local/model/slow/async/predict HTTP/1.1\r\nhost: x\r\n\
         mlp-api-key: {key}\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    let mut answered = 0;
    while let Ok(stream) = std::net::TcpStream::connect(address) {
        let mut reader = std::io::BufReader::new(&stream);
        loop {
            let sent = (&stream).write_all(request.as_bytes());
            let reply = sent.ok().and_then(|()| read_reply(&mut reader));
            let Some(reply) = reply else {
                return Err(format!("no answer after {answered} others"));
            };
            if ![200, 429, 503].contains(&reply.status) {
                return Err(reply.text());
            }
            answered += 1;
            if !keeps || reply.header("connection") == Some("close") {
                break;
            }
        }
    }
    Ok(answered)
}
