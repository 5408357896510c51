//! Tests of proxies (services that forward to other HTTP services): their secrets, addresses,
//! health, statuses and changes.

mod addresses;
mod changes;
mod health;
mod secrets;
mod statuses;

use std::fs;

use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::run::pkgtool;

/// Error code of an unavailable upstream.
const UNAVAILABLE: &str = "mlp-action.common.service-unavailable";

/// Returns the settings of a proxy, with additional lines.
fn proxy(name: &str, upstream: &[String], more: &str) -> String {
    format!("[[proxies]]\nname = \"{name}\"\nupstream = {upstream:?}\n{more}\n")
}

/// Returns the status of a request to a service of `local`.
fn ask(gateway: &Gateway, service: &str) -> u16 {
    gateway.post(&format!("/p/local/{service}"), "{}").status
}

/// Returns the gateway's description of a service.
fn info(gateway: &Gateway, service: &str) -> Value {
    let path = format!("/api/mlpgateway/account/local/model/{service}");
    gateway.get(&path).expect(200).json()
}

/// Reloads settings and returns the log line that reports the result.
#[track_caller]
fn reload(gateway: &Gateway, settings: &str) -> Value {
    const SAID: [&str; 2] = [
        "reloaded settings and keys",
        "reload failed: the settings are unchanged",
    ];
    let said = |line: &Value| {
        line["message"]
            .as_str()
            .is_some_and(|it| SAID.contains(&it))
    };
    let lines = |gateway: &Gateway| -> Vec<Value> {
        let lines = gateway.lines().into_iter();
        lines.filter(|line| said(line)).collect()
    };
    let before = lines(gateway).len();
    gateway.change_settings(settings);
    gateway.signal("-HUP");
    gateway.until(|| lines(gateway).len() > before);
    lines(gateway).pop().expect("it was waited for")
}

/// Waits until the metrics report whether an address is in use.
#[track_caller]
fn until_up(gateway: &Gateway, service: &str, address: &str, is_up: bool) {
    let labels = format!("service=\"local/{service}\",address=\"{address}\"");
    let line = format!("pkgtool_upstream_up{{{labels}}} {}\n", u8::from(is_up));
    gateway.until(|| gateway.metrics().contains(&line));
}

/// Returns the error output of a start that fails, and the path of its settings file.
fn refused(settings: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("gateway.toml");
    fs::write(&file, settings).expect("a file");
    let own = directory.path().to_str().expect("a plain path");
    let ran = pkgtool(["serve", "--listen", "127.0.0.1:0", "--data-dir", own]).run();
    let said = ran.expect_code(2).stderr;
    assert!(said.contains("gateway.toml"), "{said}");
    said
}
