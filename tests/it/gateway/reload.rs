//! Tests of reloads: the settings, keys and certificates that a running server takes over, and the
//! operators' listener.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{three, with_models};
use crate::support::environment::say;
use crate::support::fixture;
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{self, Upstream};

/// Sends SIGHUP and waits for one more log line with this message.
#[track_caller]
fn hang_up(gateway: &Gateway, message: &str) -> serde_json::Value {
    let count = |gateway: &Gateway| {
        let lines = gateway.lines().into_iter();
        lines.filter(|line| line["message"] == message).count()
    };
    let before = count(gateway);
    gateway.signal("-HUP");
    gateway.until(|| count(gateway) > before);
    gateway.line(|line| line["message"] == message)
}

const AGAIN: &str = "reloaded settings and keys";
const NOTHING: &str = "reload failed: the settings are unchanged";
const RESTART: &str = "changed settings need a restart";

#[test]
fn a_hangup_takes_over_what_can_be_changed_and_names_the_rest() {
    let upstream = Upstream::start();
    let proxy = format!(
        "[[proxies]]\nname = \"echo\"\nupstream = \"{}\"\n",
        upstream.url("/echo")
    );
    let settings = |bytes: usize, level: &str, more: &str| {
        format!("{more}[limits]\nbody_bytes = {bytes}\n[log]\nlevel = \"{level}\"\n{proxy}")
    };
    let gateway = Setup::new().settings(&settings(1000, "info", "")).start();
    let body = format!("\"{}\"", "x".repeat(2000));
    let send = || gateway.post("/p/local/echo", &body).status;
    assert_eq!(send(), 413);
    for _ in 0..2 {
        gateway.change_settings(&settings(1_000_000, "debug", ""));
        let line = hang_up(&gateway, AGAIN);
        assert_eq!(line["changed"], "limits.body_bytes, log.level");
        assert_eq!(send(), 200);
        let read = gateway.get("/healthz").expect(200);
        let id = read.header("z-requestid").expect("an id").to_owned();
        gateway.line(|line| line["request"] == id.as_str() && line["level"] == "DEBUG");

        // Invalid settings change nothing and are reported with their place.
        for (wrong, says) in [
            ("[limits]\nbody_bytes = 0\n", "limits.body_bytes"),
            ("[limits]\nbody_bites = 5\n", "body_bites"),
            ("[log]\nlevel = \"pkgtool=loud\"\n", "log.level"),
        ] {
            gateway.change_settings(wrong);
            let line = hang_up(&gateway, NOTHING);
            let error = line["error"].as_str().expect("words");
            assert!(error.contains(says), "{says} in {error}");
            assert_eq!(send(), 200);
        }

        // Valid settings again, with one that needs a restart.
        gateway.change_settings(&settings(1000, "info", "memory_budget = 1000000000\n"));
        let line = hang_up(&gateway, RESTART);
        assert_eq!(line["settings"], "memory_budget");
        assert_eq!(line["level"], "WARN");
        assert_eq!(send(), 413);
    }
    let page = gateway.metrics();
    for line in [
        "pkgtool_reloads_total{outcome=\"done\"} 4",
        "pkgtool_reloads_total{outcome=\"failed\"} 6",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    let (code, log, _) = gateway.stop();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn services_run_by_the_settings_that_were_taken_over() {
    let upstream = Upstream::start();
    let proxy = format!(
        "[[proxies]]\nname = \"echo\"\nupstream = \"{}\"\n",
        upstream.url("/echo")
    );
    let (gateway, _tree) = with_models(Setup::new().settings(&proxy));
    gateway.account("other", 1000);
    let key = gateway.new_key("other", "k", "predict");
    let ask = |service: &str| {
        let path = format!("/p/local/{service}");
        gateway
            .send_with(&key, "POST", &path, three([1.0; 3]))
            .status
    };
    let services = ["negate", "relu", "echo"];
    for public in [true, false, true] {
        let some = format!(
            "{proxy}[services.negate]\npublic = {public}\n[services.echo]\npublic = {public}\n"
        );
        gateway.change_settings(&some);
        hang_up(&gateway, AGAIN);
        let wanted = if public { [200, 403, 200] } else { [403; 3] };
        gateway.until(|| services.map(ask) == wanted);
        // The owner's account has access at any time, also while the service is replaced.
        gateway.post("/p/local/negate", three([1.0; 3])).expect(200);
    }
}

#[test]
fn keys_are_read_again() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    let made = gateway.command(&[
        "keys",
        "create",
        "--account",
        "local",
        "--name",
        "n",
        "--permission",
        "predict",
    ]);
    let key = made.expect_code(0).stdout.trim().to_owned();
    hang_up(&gateway, AGAIN);
    gateway.until(|| {
        gateway
            .send_with(&key, "POST", "/p/local/echo", "{}")
            .status
            == 200
    });
}

/// Returns the status that curl gets, or 0 if curl does not trust the server's certificate.
fn trusts(gateway: &Gateway, certificate: &Path) -> u16 {
    let port = gateway.address.port();
    let asked = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code}"])
        .args([
            "--resolve",
            &format!("localhost:{port}:127.0.0.1"),
            "--cacert",
        ])
        .arg(certificate)
        .arg(format!("https://localhost:{port}/healthz"))
        .output()
        .expect("curl runs");
    let status = String::from_utf8_lossy(&asked.stdout).into_owned();
    status.parse().expect("a number")
}

#[test]
fn another_certificate_is_noticed_and_a_broken_one_is_not_taken() {
    if Command::new("curl").arg("--version").output().is_err() {
        say(
            "SKIPPED another_certificate_is_noticed_and_a_broken_one_is_not_taken: curl is missing",
        );
        return;
    }
    let first = (fixture("tls/certificate.pem"), fixture("tls/key.pem"));
    let second = (
        fixture("tls/other_certificate.pem"),
        fixture("tls/other_key.pem"),
    );
    let directory = tempfile::tempdir().expect("a directory");
    let (certificate, key) = (
        directory.path().join("c.pem"),
        directory.path().join("k.pem"),
    );
    let put = |from: &(std::path::PathBuf, std::path::PathBuf)| {
        std::fs::copy(&from.0, &certificate).expect("a copy");
        std::fs::copy(&from.1, &key).expect("a copy");
    };
    put(&first);
    let settings = format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let gateway = Setup::new().settings(&settings).start();
    assert_eq!(
        (trusts(&gateway, &first.0), trusts(&gateway, &second.0)),
        (200, 0)
    );
    // The server notices the change by itself.
    put(&second);
    gateway.until(|| trusts(&gateway, &second.0) == 200);
    assert_eq!(trusts(&gateway, &first.0), 0);
    // The key does not belong to the certificate: the old pair stays, and the log reports it.
    std::fs::copy(&first.1, &key).expect("a copy");
    let line = gateway.line(|line| {
        line["message"] == "certificate reload failed: the previous certificate stays in use"
    });
    let error = line["error"].as_str().expect("words");
    assert!(error.contains("c.pem"), "{error}");
    assert_eq!(trusts(&gateway, &second.0), 200);
    // A reload on request.
    let line = hang_up(&gateway, NOTHING);
    assert!(
        line["error"]
            .as_str()
            .is_some_and(|error| error.contains("c.pem"))
    );
    put(&first);
    hang_up(&gateway, AGAIN);
    assert_eq!(
        (trusts(&gateway, &first.0), trusts(&gateway, &second.0)),
        (200, 0)
    );
}

#[test]
fn operators_have_a_listener_of_their_own() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[admin]\nlisten = \"127.0.0.1:0\"")
        .proxy("echo", &upstream.url("/echo"))
        .start();
    gateway.post("/p/local/echo", "{}").expect(200);
    let operators = gateway.operators();
    let ask = |path: &str| http::request(operators, "GET", path, &[], b"");
    let page = ask("/metrics").expect(200).text();
    assert!(
        page.contains("service=\"local/echo\",account=\"local\""),
        "{page}"
    );
    assert_eq!(ask("/healthz").expect(200).json()["status"], "ok");
    assert_eq!(ask("/readyz").expect(200).json()["status"], "ready");
    // An HTTP request does the same as SIGHUP, for operators who cannot send a signal.
    let reload = || http::request(operators, "POST", "/reload", &[], b"");
    let proxies = format!(
        "[[proxies]]\nname = \"echo\"\nupstream = \"{}\"\n",
        upstream.url("/echo")
    );
    let settings = "[log]\nlevel = \"debug\"\n[limits]\nconnections = 7\n";
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    gateway.change_settings(&format!("{admin}{settings}{proxies}"));
    let done = reload().expect(200).json();
    let both = json!({"changed": ["log.level"], "restart": ["limits.connections"]});
    assert_eq!(done, both);
    gateway.change_settings("[limits]\nconnections = 0\n");
    let refused = reload().expect_error(422, "SETTINGS_ARE_WRONG");
    assert!(refused.text().contains("limits.connections"));
    http::request(operators, "GET", "/reload", &[], b"").expect_error(405, "METHOD_NOT_ALLOWED");
    gateway
        .bare("POST", "/reload", &[])
        .expect_error(404, "PATH_NOT_FOUND");
    // The listener serves nothing else, with or without a key.
    let headers = [("MLP-API-KEY", gateway.key.as_str())];
    for path in [
        "/p/local/echo",
        "/api/mlpgateway/account/local/model",
        "/docs",
    ] {
        let reply = http::request(operators, "POST", path, &headers, b"{}");
        reply.expect_error(404, "PATH_NOT_FOUND");
    }
    // Metrics are served only there.
    gateway
        .bare("GET", "/metrics", &[])
        .expect_error(404, "PATH_NOT_FOUND");
    gateway.bare("GET", "/healthz", &[]).expect(200);
    let document = gateway.bare("GET", "/openapi.json", &[]).expect(200).json();
    assert!(document["paths"]["/healthz"].is_object());
    assert!(document["paths"]["/metrics"].is_null());
    let (code, ..) = gateway.stop();
    assert_eq!(code, Some(0));
}

#[test]
fn wrong_settings_of_operators_are_told() {
    for (settings, says) in [
        ("[admin]\nlisten = \"nowhere\"", "127.0.0.1:9090"),
        (
            "listen = \"127.0.0.1:8081\"\n[admin]\nlisten = \"127.0.0.1:8081\"",
            "admin.listen",
        ),
        (
            "[trusted_proxies]\nnetworks = [\"10.0.0.0/40\"]",
            "10.0.0.0/8",
        ),
        ("[trusted_proxies]\nheader = \"via\"", "x-forwarded-for"),
        ("[metrics]\nservices = -1", "services"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("gateway.toml");
        std::fs::write(&config, settings).expect("a file");
        let config = config.to_str().expect("a plain path");
        let data = directory.path().to_str().expect("a plain path");
        let ran = crate::support::run::pkgtool(["serve", "--config", config, "--data-dir", data]);
        let ran = ran.run().expect_code(2);
        assert!(ran.stderr.contains(says), "{says} in {}", ran.stderr);
    }
}

/// Script that starts a server on its own terminal and prints its exit code. It hangs up twice:
/// once while the terminal exists, and once by closing the terminal.
#[cfg(unix)]
const TAKE_THE_TERMINAL: &str = "
import os, pty, signal, sys
server, terminal = pty.fork()
if server == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen = b''
def see(text):
    global seen
    while text not in seen:
        seen += os.read(terminal, 4096)
see(b'address=')
os.kill(server, signal.SIGHUP)
see(b'reloaded settings and keys')
os.close(terminal)
_, status = os.waitpid(server, 0)
print(os.waitstatus_to_exitcode(status))
";

#[cfg(unix)]
#[test]
fn a_server_whose_terminal_is_gone_ends() {
    if Command::new("python3").arg("--version").output().is_err() {
        say("SKIPPED a_server_whose_terminal_is_gone_ends: python3 is missing");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let ran = Command::new("python3")
        .args(["-c", TAKE_THE_TERMINAL, env!("CARGO_BIN_EXE_pkgtool")])
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(directory.path().join("data"))
        .env("NO_COLOR", "1")
        .output()
        .expect("python3 runs");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "0", "{ran:?}");
}
