//! Tests of the log: each request's line identifies its caller and has the configured format.

use std::process::Command;

use serde_json::Value;

use super::{three, with_models};
use crate::support::environment::say;
use crate::support::gateway::{Gateway, Setup, task_path};
use crate::support::http::{self, Upstream};

/// Returns the log line of the request with this id.
#[track_caller]
fn line_of(gateway: &Gateway, id: &str) -> Value {
    gateway.line(|line| line["request"] == id && line["status"].is_number())
}

#[test]
fn a_line_ties_a_request_to_who_asked_what() {
    let (gateway, _tree) = with_models(Setup::new());
    let base = "/api/mlpgateway/account/local/model/negate";
    for _ in 0..3 {
        let path = format!("{base}/async/predict");
        let reply = gateway.post(&path, three([1.0; 3])).expect(200);
        let task = reply.json().as_str().expect("an id").to_owned();
        let line = line_of(&gateway, reply.header("z-requestid").expect("an id"));
        for (field, value) in [
            ("level", "INFO"),
            ("message", "answered"),
            ("target", "pkgtool::gateway::observe"),
            ("account", "local"),
            ("key", "first"),
            ("service", "local/negate"),
            ("task", &task),
            ("method", "POST"),
            ("path", &path),
            ("peer", "127.0.0.1"),
        ] {
            assert_eq!(line[field], value, "{field} of {line}");
        }
        assert_eq!(line["status"], 200);
        assert!(line["microseconds"].as_u64().is_some_and(|it| it > 0));
        assert!(line["timestamp"].is_string() && line["via"].is_null());

        let path = format!("{}/cancel", task_path(&task));
        let reply = gateway.post(&path, "").expect(200);
        let line = line_of(&gateway, reply.header("z-requestid").expect("an id"));
        assert_eq!(line["task"], task.as_str(), "{line}");
        assert_eq!(line["path"], path.as_str(), "{line}");
    }
    // Queries may hold secrets, so the log omits them.
    let path = format!("{base}/predict?dataType=secret");
    let reply = gateway.post(&path, "{").expect(400);
    let line = line_of(&gateway, reply.header("z-requestid").expect("an id"));
    assert_eq!(line["message"], "refused");
    assert_eq!(line["code"], "BAD_REQUEST");
    assert_eq!(line["path"], format!("{base}/predict"));
    assert_eq!(line["service"], "local/negate");
    assert!(!gateway.whole_log().contains("secret"));
    // A request without a key has no account in the log.
    let reply = gateway.bare("POST", "/p/local/negate", &[]).expect(401);
    let line = line_of(&gateway, reply.header("z-requestid").expect("an id"));
    assert!(line["account"].is_null() && line["service"].is_null());
    assert_eq!(line["peer"], "127.0.0.1");
}

#[test]
fn a_task_that_fails_later_says_whose_it_was() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[log]\nlevel = \"debug\"")
        .proxy("broken", &upstream.url("/status/500"))
        .proxy("echo", &upstream.url("/echo"))
        .start();
    let failed = gateway.create("broken", "{}");
    gateway.wait_for(&failed, "CANCELED");
    let done = gateway.create("echo", "{}");
    gateway.wait_for(&done, "COMPLETED");
    for (task, service, level, message) in [
        (failed, "local/broken", "WARN", "task failed"),
        (done, "local/echo", "DEBUG", "task completed"),
    ] {
        let line = gateway.line(|line| line["task"] == task.as_str() && line["message"] == message);
        assert_eq!(line["level"], level);
        assert_eq!(line["account"], "local");
        assert_eq!(line["service"], service);
        assert!(line["took_ms"].is_number() && line["waited_ms"].is_number());
    }
}

#[test]
fn a_request_that_nobody_waits_for_has_its_line() {
    use std::io::Write as _;
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("hold", &upstream.url("/hold")).start();
    for round in 1..=3 {
        let mut stream = http::connect(gateway.address);
        let id = format!("left-{round}");
        let request = format!(
            "POST /p/local/hold HTTP/1.1\r\nhost: x\r\nmlp-api-key: {}\r\nz-requestid: {id}\r\n\
             content-length: 2\r\n\r\n{{}}",
            gateway.key
        );
        stream.write_all(request.as_bytes()).expect("it is read");
        gateway.until(|| upstream.seen() == round);
        drop(stream);
        let line = line_of(&gateway, &id);
        assert_eq!(
            (&line["message"], &line["status"]),
            (&"client disconnected".into(), &499.into())
        );
        assert_eq!(line["service"], "local/hold");
        let series = format!("operation=\"predict\",outcome=\"abandoned\"}} {round}");
        assert!(gateway.metrics().contains(&series));
    }
    upstream.release();
}

#[test]
fn the_client_behind_a_trusted_proxy_is_named() {
    let upstream = Upstream::start();
    let start = |settings: &str| {
        let setup = Setup::new().settings(settings);
        setup.proxy("echo", &upstream.url("/echo")).start()
    };
    let trusting = start("[trusted_proxies]\nnetworks = [\"127.0.0.0/8\"]");
    let wary = start("[trusted_proxies]\nnetworks = [\"10.0.0.0/8\"]");
    let ask = |gateway: &Gateway, header: (&str, &str)| {
        let headers = [("MLP-API-KEY", gateway.key.as_str()), header];
        let reply = http::request(gateway.address, "POST", "/p/local/echo", &headers, b"{}");
        let id = reply.expect(200).header("z-requestid").map(str::to_owned);
        line_of(gateway, &id.expect("an id"))
    };
    for header in [
        ("X-Forwarded-For", "203.0.113.1, 192.0.2.7"),
        ("Forwarded", "for=203.0.113.1, for=192.0.2.7;proto=https"),
        ("Forwarded", "for=\"[2001:db8::7]:4711\""),
    ] {
        let line = ask(&trusting, header);
        let client = if header.1.contains("2001") {
            "2001:db8::7"
        } else {
            "192.0.2.7"
        };
        assert_eq!(line["peer"], client, "{line}");
        assert_eq!(line["via"], "127.0.0.1", "{line}");
        let line = ask(&wary, header);
        assert_eq!(line["peer"], "127.0.0.1", "{line}");
        assert!(line["via"].is_null(), "{line}");
    }
}

#[test]
fn text_is_for_people() {
    let gateway = Setup::new().settings("[log]\nformat = \"text\"").start();
    let reply = gateway.bare("POST", "/nowhere", &[]).expect(404);
    let id = reply.header("z-requestid").expect("an id").to_owned();
    let mut log = String::new();
    gateway.until(|| {
        log = gateway.log();
        log.contains(&id) && log.ends_with('\n')
    });
    let line = log.lines().find(|line| line.contains(&id)).expect("a line");
    assert!(!line.starts_with('{'), "{line}");
    for part in [
        " INFO ",
        "refused",
        "status=404",
        "peer=127.0.0.1",
        "path=\"/nowhere\"",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

/// Script that starts a server whose standard error is a terminal, and prints the terminal's
/// output.
#[cfg(unix)]
const ON_A_TERMINAL: &str = "
import os, pty, subprocess, sys, threading
master, slave = pty.openpty()
server = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=slave, stdin=subprocess.DEVNULL)
os.close(slave)
seen = b''
while b'serving' not in seen:
    seen += os.read(master, 4096)
server.terminate()
try:
    while part := os.read(master, 4096):
        seen += part
except OSError:
    pass
server.wait()
sys.stdout.write(seen.decode())
";

#[cfg(unix)]
#[test]
fn a_terminal_gets_text_without_asking() {
    let test = "a_terminal_gets_text_without_asking";
    if Command::new("python3").arg("--version").output().is_err() {
        say(&format!("SKIPPED {test}: python3 is missing"));
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let ran = Command::new("python3")
        .args(["-c", ON_A_TERMINAL, env!("CARGO_BIN_EXE_pkgtool")])
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(directory.path().join("data"))
        .env("NO_COLOR", "1")
        .output()
        .expect("python3 runs");
    let seen = String::from_utf8_lossy(&ran.stdout);
    let line = seen.lines().find(|line| line.contains("serving"));
    let line = line.unwrap_or_else(|| panic!("{ran:?}"));
    assert!(line.contains(" INFO ") && !line.starts_with('{'), "{line}");
}

#[cfg(unix)]
#[test]
fn packages_behind_links_are_told() {
    let elsewhere = super::package(crate::support::tree::Tree::new(), "relu", "Relu");
    let tree = super::package(crate::support::tree::Tree::new(), "negate", "Neg");
    let link = |name: &str, target: std::path::PathBuf| {
        let link = tree.path(name);
        std::os::unix::fs::symlink(target, &link).expect("a link");
        link.display().to_string()
    };
    let first = link("linked", elsewhere.path("relu"));
    let other = tempfile::tempdir().expect("a directory");
    let empty = link("empty", other.path().to_owned());
    let gateway = Setup::new().packages(tree.root()).start();
    gateway.whole_log();
    let told = |path: &str| {
        let lines = gateway.lines().into_iter();
        let lines = lines.filter(|line| line["message"] == "not followed");
        lines
            .filter(|line| line["package"] == path)
            .collect::<Vec<_>>()
    };
    let lines = told(&first);
    assert_eq!(lines.len(), 1, "{}", gateway.log());
    assert_eq!(lines[0]["level"], "WARN");
    let reason = lines[0]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("links to directories are not followed"),
        "{reason}"
    );
    assert!(reason.contains("configure the directory"), "{reason}");
    assert!(told(&empty).is_empty(), "no package is behind it");
    // A later one is reported too; the first one is not reported again.
    let second = link("later", elsewhere.root().to_owned());
    gateway.until(|| told(&second).len() == 1);
    assert_eq!(told(&first).len(), 1);
    assert_eq!(gateway.get("/readyz").expect(200).json()["services"], 1);
}
