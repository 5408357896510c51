//! Tests of webhooks: signed requests when a task, a batch or a job ends.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::adapters::script;
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, Setup};
use crate::support::hook_server::HookServer;
use crate::support::http::{Received, Upstream};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Starts a gateway with a proxy and a webhook.
fn start(hooks: &HookServer, upstream: &Upstream, more: &str) -> Gateway {
    let url = hooks.url("/hook?from=test");
    Setup::new()
        .proxy("echo", &upstream.url("/echo"))
        .proxy("broken", &upstream.url("/status/418"))
        .proxy("slow", &upstream.url("/hold"))
        .settings(&format!(
            "[[webhooks]]\nname = \"ops\"\nurl = \"{url}\"\nsecret_env = \"HOOK_SECRET\"\n{more}"
        ))
        .variable("HOOK_SECRET", SECRET)
        .start()
}

fn events(hooks: &HookServer) -> Vec<Value> {
    let received = hooks.received().into_iter();
    received
        .map(|hook| serde_json::from_slice(&hook.body).expect("JSON"))
        .collect()
}

/// Checks a request with the `openai` client, which follows the same specification.
#[track_caller]
fn verify(packages: &std::path::Path, hook: &Received, secret: &str) -> bool {
    let header = |name: &str| hook.header(name)[0].to_owned();
    let asked = json!({
        "secret": secret,
        "body": String::from_utf8_lossy(&hook.body),
        "headers": {
            "webhook-id": header("webhook-id"),
            "webhook-timestamp": header("webhook-timestamp"),
            "webhook-signature": header("webhook-signature"),
        },
    });
    let mut python = Command::new("python3")
        .arg(script("webhook.py"))
        .env("PYTHONPATH", packages)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the interpreter runs");
    let mut stdin = python.stdin.take().expect("it is piped");
    stdin
        .write_all(asked.to_string().as_bytes())
        .expect("it reads");
    drop(stdin);
    let said = python.wait_with_output().expect("it ends").stdout;
    match String::from_utf8_lossy(&said).trim() {
        "valid" => true,
        "invalid" => false,
        other => panic!("{other}"),
    }
}

#[test]
fn the_end_of_a_task_is_sent_once_and_signed() {
    let test = "the_end_of_a_task_is_sent_once_and_signed";
    let Some(packages) = EnvironmentPiece::OpenAi.or_skip(test) else {
        return;
    };
    let (hooks, upstream) = (HookServer::start(), Upstream::start());
    let gateway = start(&hooks, &upstream, "");
    gateway.account("other", 10);
    let done = gateway.create("echo", "{\"data\": {}}");
    let failed = gateway.create("broken", "{\"data\": {}}");
    let canceled = gateway.create("slow", "{\"data\": {}}");
    gateway.wait_for(&canceled, "PROCESSING");
    let cancel = format!("{}/cancel", crate::support::gateway::task_path(&canceled));
    gateway.post(&cancel, "").expect(200);
    gateway.until(|| hooks.received().len() == 3);
    let found: BTreeSet<_> = events(&hooks)
        .into_iter()
        .map(|event| {
            assert_eq!(event["object"], "event");
            assert!(
                event["created_at"]
                    .as_i64()
                    .is_some_and(|at| at > 1_700_000_000)
            );
            let owned = |value: &Value| value.as_str().expect("a text").to_owned();
            (
                owned(&event["type"]),
                owned(&event["data"]["id"]),
                owned(&event["data"]["service"]),
            )
        })
        .collect();
    let expected = [
        ("task.completed", done, "echo"),
        ("task.failed", failed, "broken"),
        ("task.canceled", canceled, "slow"),
    ];
    let expected = expected.map(|(kind, id, service)| (kind.to_owned(), id, service.to_owned()));
    assert_eq!(found, BTreeSet::from(expected));
    let ids: BTreeSet<_> = hooks
        .received()
        .iter()
        .map(|hook| hook.header("webhook-id")[0].to_owned())
        .collect();
    assert_eq!(ids.len(), 3);
    for hook in hooks.received() {
        assert_eq!(
            (hook.method.as_str(), hook.path.as_str()),
            ("POST", "/hook?from=test")
        );
        assert!(verify(&packages, &hook, SECRET));
        assert!(!verify(
            &packages,
            &hook,
            "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        ));
        let mut changed = hook;
        changed.body = b"{}".to_vec();
        assert!(!verify(&packages, &changed, SECRET));
    }
    // A restart sends nothing again.
    let gateway = gateway.kill_and_restart();
    gateway.create("echo", "{\"data\": {}}");
    gateway.until(|| hooks.received().len() == 4);
    assert!(!gateway.whole_log().contains(SECRET));
}

#[test]
fn a_server_that_fails_gets_the_event_later_even_after_a_kill() {
    let (hooks, upstream) = (HookServer::start(), Upstream::start());
    hooks.answer(503);
    let gateway = start(&hooks, &upstream, "events = [\"task.completed\"]");
    let first = gateway.create("echo", "{\"data\": {}}");
    gateway.until(|| !hooks.received().is_empty());
    gateway.create("broken", "{\"data\": {}}");
    let gateway = gateway.kill_and_restart();
    hooks.answer(200);
    gateway.until(|| hooks.received().len() >= 2);
    let events = events(&hooks);
    assert_eq!(events[0], events[1], "the same event is sent again");
    assert_eq!(events[1]["data"]["id"], first.as_str());
    // The failed task is not wanted, and the delivered event is not sent again.
    let second = gateway.create("echo", "{\"data\": {}}");
    gateway.until(|| hooks.received().len() >= 3);
    assert_eq!(self::events(&hooks)[2]["data"]["id"], second.as_str());
    assert_eq!(hooks.received().len(), 3);
}

#[test]
fn batches_have_events_and_other_accounts_none() {
    let (hooks, upstream) = (HookServer::start(), Upstream::start());
    let gateway = start(&hooks, &upstream, "events = [\"batch.*\"]");
    let bearer = format!("Bearer {}", gateway.key);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "multipart/form-data; boundary=cut"),
    ];
    let send = |path: &str, body: &str| {
        let path = format!("/api/adapters/compat{path}");
        crate::support::http::request(gateway.address, "POST", &path, &headers, body.as_bytes())
    };
    let form = "--cut\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--cut\r\n\
                content-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx\r\n--cut--\r\n";
    let file = send("/files", form).expect(200).json();
    let body = json!({
        "input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h",
    });
    let batch = send("/batches", &body.to_string()).expect(200).json();
    gateway.create("echo", "{\"data\": {}}");
    gateway.until(|| !hooks.received().is_empty());
    let event = &events(&hooks)[0];
    assert_eq!(event["type"], "batch.failed");
    assert_eq!(event["data"], json!({"id": batch["id"]}));
}

#[test]
fn a_wrong_webhook_prevents_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = directory.path().join("gateway.toml");
    for (webhook, says) in [
        (
            "account = \"nobody\"\nurl = \"http://h\"\nsecret_file = \"S\"",
            "nobody",
        ),
        (
            "url = \"http://h\"\nsecret_file = \"S\"\nevents = [\"x.*\"]",
            "webhooks.a.events",
        ),
        ("url = \"h\"\nsecret_file = \"S\"", "webhooks.a.url"),
        ("url = \"http://h\"", "webhooks.a.secret_file"),
    ] {
        let secret = directory.path().join("secret");
        std::fs::write(&secret, SECRET).expect("a file");
        let webhook = webhook.replace("\"S\"", &format!("{secret:?}"));
        std::fs::write(
            &settings,
            format!("[[webhooks]]\nname = \"a\"\n{webhook}\n"),
        )
        .expect("a file");
        let data = directory.path().join("data");
        let ran = crate::support::run::pkgtool(
            ["serve", "--listen", "127.0.0.1:0", "--config"]
                .map(std::ffi::OsString::from)
                .into_iter()
                .chain([settings.clone().into(), "--data-dir".into(), data.into()]),
        )
        .run();
        let ran = ran.expect_code(2);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}
