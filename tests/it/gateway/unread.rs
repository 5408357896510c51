//! Tests of requests whose body the server does not read: later requests on the same connection
//! still work.

use std::io::{BufReader, Write};
use std::path::Path;
use std::process::Command;

use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{Reply, Upstream, connect, read_reply};

/// Number of requests per client.
const COUNT: &str = "2500";

fn with_echo() -> (Gateway, Upstream) {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    (gateway, upstream)
}

fn closes(reply: &Reply) -> bool {
    reply.header("connection") == Some("close")
}

fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

#[test]
fn a_short_body_that_nobody_needs_is_read_over() {
    let (gateway, _upstream) = with_echo();
    let stream = connect(gateway.address);
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    let body = " ".repeat(200_000);
    let key = &gateway.key;
    for _ in 0..20 {
        for (head, body, status) in [
            (
                "POST /p/local/echo HTTP/1.1\r\ncontent-length: 200000",
                body.clone(),
                401,
            ),
            (
                "POST /p/local/echo HTTP/1.1\r\ntransfer-encoding: chunked",
                chunked(&body),
                401,
            ),
            (
                "PUT /nowhere HTTP/1.1\r\ncontent-length: 200000",
                body.clone(),
                404,
            ),
            (
                "GET /healthz HTTP/1.1\r\ncontent-length: 200000",
                body.clone(),
                200,
            ),
        ] {
            write!(stream, "{head}\r\nhost: x\r\n\r\n{body}").expect("it is open");
            let reply = read_reply(&mut reader).expect("an answer").expect(status);
            assert!(!closes(&reply), "{head}");
        }
        let good = format!(
            "POST /p/local/echo HTTP/1.1\r\nhost: x\r\nmlp-api-key: {key}\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        stream.write_all(good.as_bytes()).expect("it is open");
        read_reply(&mut reader).expect("an answer").expect(200);
    }
}

#[test]
fn a_connection_that_closes_says_so() {
    let (gateway, _upstream) = with_echo();
    for (head, body) in [
        ("content-length: 300000", " ".repeat(300_000)),
        ("transfer-encoding: chunked", chunked(&" ".repeat(300_000))),
        // One client waits for permission to send its body; the other stops in the middle of it.
        ("expect: 100-continue\r\ncontent-length: 10", String::new()),
        ("content-length: 10", "12345".to_owned()),
    ] {
        let mut stream = connect(gateway.address);
        // The server may close before everything is sent.
        let _ = write!(
            stream,
            "POST /p/local/echo HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n{body}"
        );
        let mut reader = BufReader::new(stream);
        let reply = read_reply(&mut reader).expect("an answer");
        let reply = reply.expect_error(401, "mlp.gateway.access_key_required");
        assert!(closes(&reply), "{head}");
        assert!(read_reply(&mut reader).is_none(), "{head}");
    }
}

/// Runs a client, which fails if an answer differs from the expected one.
fn mixed(command: &mut Command) {
    let (gateway, _upstream) = with_echo();
    let url = format!("http://{}", gateway.address);
    let ran = command.args([&url, &gateway.key]).arg(COUNT);
    let ran = ran.output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{complained}");
    assert_eq!(said.trim(), format!("{COUNT} answers"));
}

fn client(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    path.join(name).display().to_string()
}

fn python(test: &str, name: &str) {
    let Some(packages) = EnvironmentPiece::Http.or_skip(test) else {
        return;
    };
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", packages);
    mixed(command.args([client("mixed.py").as_str(), name]));
}

#[test]
fn requests_loses_none() {
    python("requests_loses_none", "requests");
}

#[test]
fn httpx_loses_none() {
    python("httpx_loses_none", "httpx");
}

#[test]
fn pythons_own_client_loses_none() {
    mixed(Command::new("python3").args([client("mixed.py").as_str(), "http.client"]));
}

#[test]
fn javas_client_loses_none() {
    let Some(java) = EnvironmentPiece::Java.program_or_skip("javas_client_loses_none", "java")
    else {
        return;
    };
    mixed(Command::new(java).arg(client("Mixed.java")));
}

#[test]
fn gos_client_loses_none() {
    let Some(go) = EnvironmentPiece::Go.program_or_skip("gos_client_loses_none", "go") else {
        return;
    };
    let cache = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(go);
    command
        .env("GOCACHE", cache.path())
        .env("GO111MODULE", "off");
    mixed(command.args(["run", &client("mixed.go")]));
}
