//! Tests of the error answers that clients of the chat adapters receive.

use serde_json::{Value, json};

use super::{DIRECT, STANDARD, post, say, with_chat};
use crate::gateway::with_models;
use crate::support::gateway::Setup;
use crate::support::http::{Reply, Upstream, request};

/// Returns the parameter that an error names.
#[track_caller]
fn param(reply: &Reply) -> Value {
    let error = &reply.json()["error"];
    for key in ["message", "type", "code", "param", "args", "requestId"] {
        assert!(error.get(key).is_some(), "no {key}: {error}");
    }
    error["param"].clone()
}

#[test]
fn what_is_wrong_has_its_field() {
    let (gateway, server) = with_chat(Setup::new());
    for (path, body, field) in [
        ("chat/completions", r#"{"messages":[]}"#, json!("model")),
        (
            "chat/completions",
            r#"{"model":7,"messages":[]}"#,
            json!("model"),
        ),
        (
            "chat/completions",
            r#"{"model":"local/chat"}"#,
            json!("messages"),
        ),
        (
            "chat/completions",
            r#"{"model":"local/chat","messages":"x"}"#,
            json!("messages"),
        ),
        (
            "chat/completions",
            r#"{"model":"local/chat","messages":[],"stream":"yes"}"#,
            json!("stream"),
        ),
        ("completions", r#"{"model":"local/chat"}"#, json!("prompt")),
        (
            "embeddings",
            r#"{"model":"local/chat","input":null}"#,
            json!("input"),
        ),
        ("chat/completions", "{", Value::Null),
        ("chat/completions", "", Value::Null),
        (
            "chat/completions",
            r#"{"model":"local/chat","model":"local/raw","messages":[]}"#,
            Value::Null,
        ),
    ] {
        let reply = post(&gateway, &format!("{STANDARD}/{path}"), body);
        let reply = reply.expect_error(400, "BAD_REQUEST");
        assert_eq!(param(&reply), field, "{body}");
    }
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn a_key_is_looked_for_in_its_header_first() {
    let (gateway, _server) = with_chat(Setup::new());
    let path = format!("{STANDARD}/chat/completions");
    let body = say("local/chat", "x").to_string();
    let ask = |headers: &[(&str, &str)]| {
        request(gateway.address, "POST", &path, headers, body.as_bytes())
    };
    let reply = ask(&[]).expect_error(401, "mlp.gateway.access_key_required");
    assert_eq!(param(&reply), Value::Null);
    let key = gateway.key.as_str();
    ask(&[("authorization", key)]).expect(200);
    ask(&[("mlp-api-key", key)]).expect(200);
    ask(&[("authorization", key), ("mlp-api-key", "pk_wrong")]).expect(200);
    let wrong = ask(&[("authorization", "Bearer pk_wrong"), ("mlp-api-key", key)]);
    wrong.expect_error(401, "mlp.gateway.api_key_not_found");
    let reader = gateway.new_key("local", "reader", "read");
    let forbidden = ask(&[("authorization", &reader)]);
    assert_eq!(param(&forbidden), Value::Null);
    forbidden.expect_error(403, "TOKEN_PERMISSION_REQUIRED");
}

#[test]
fn what_is_not_there_is_not_found() {
    let (gateway, _server) = with_chat(Setup::new());
    for base in [STANDARD, DIRECT] {
        for model in ["gpt-4o", "local/none", "local/none/x", "/", ""] {
            let body = say(model, "x").to_string();
            let reply = post(&gateway, &format!("{base}/chat/completions"), &body);
            let reply = reply.expect_error(404, "SERVICE_NOT_FOUND");
            assert_eq!(param(&reply), "model", "{model}");
        }
        let reply = post(&gateway, &format!("{base}/nothing"), "{}");
        let reply = reply.expect_error(404, "PATH_NOT_FOUND");
        assert_eq!(param(&reply), Value::Null);
    }
}

#[test]
fn a_service_says_what_it_takes() {
    let (gateway, _tree) = with_models(Setup::new());
    for (base, path) in [
        (STANDARD, "chat/completions"),
        (STANDARD, "completions"),
        (STANDARD, "embeddings"),
        (DIRECT, "chat/completions"),
    ] {
        let body = r#"{"model":"local/negate","messages":[],"prompt":"x","input":"x"}"#;
        let reply = post(&gateway, &format!("{base}/{path}"), body);
        let reply = reply.expect_error(400, "BAD_REQUEST");
        assert_eq!(param(&reply), "model");
        assert!(
            reply.text().contains("it supports tensors"),
            "{}",
            reply.text()
        );
    }
}

#[test]
fn what_an_upstream_says_passes() {
    let (gateway, _server) = with_chat(Setup::new());
    for (base, model) in [(STANDARD, "local/chat"), (DIRECT, "local/raw")] {
        let path = format!("{base}/chat/completions");
        for status in [400, 429, 503] {
            let told = format!("!status {status}");
            let reply = post(&gateway, &path, &say(model, &told).to_string()).expect(status);
            assert_eq!(reply.json()["error"]["code"], "told");
            assert_eq!(reply.header("retry-after").is_some(), status == 429);
        }
    }
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .proxy("text", &upstream.url("/text/418"))
        .proxy("drop", &upstream.url("/drop"))
        .proxy("slow", &upstream.url("/hold"))
        .settings("[services.slow]\npredict_timeout_s = 0.3")
        .start();
    let path = format!("{STANDARD}/chat/completions");
    let ask = |service: &str| {
        post(
            &gateway,
            &path,
            &say(&format!("local/{service}"), "x").to_string(),
        )
    };
    let reply = ask("text").expect(418);
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let reply = ask("drop").expect_error(502, "mlp-action.common.service-unavailable");
    assert_eq!(param(&reply), Value::Null);
    let reply = ask("slow").expect_error(504, "PREDICT_TIMEOUT");
    assert_eq!(reply.header("x-should-retry"), Some("false"));
}

#[test]
fn a_rate_holds_before_a_body_is_read() {
    let (gateway, server) = with_chat(Setup::new());
    gateway
        .command(&["accounts", "set", "local", "--rps", "2"])
        .expect_code(0);
    let path = format!("{STANDARD}/chat/completions");
    let mut refused = None;
    gateway.until(|| {
        // Invalid JSON is rejected before any other check.
        let reply = post(&gateway, &path, "no JSON");
        if reply.status == 429 {
            refused = Some(reply);
        }
        refused.is_some()
    });
    let refused = refused.expect("it was waited for");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(param(&refused), Value::Null);
    refused.expect_error(429, "REQUESTS_PER_SECOND_LIMIT_EXCEEDED");
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn an_upstreams_retry_after_reaches_the_client() {
    let (gateway, _server) = with_chat(Setup::new());
    for (said, expected) in [
        ("429 17", Some("17")),
        ("503 9", Some("9")),
        ("503 soon", None),
        ("429", Some("1")),
    ] {
        let path = format!("{STANDARD}/chat/completions");
        let body = say("local/chat", &format!("!status {said}")).to_string();
        let reply = post(&gateway, &path, &body);
        assert_eq!(reply.header("retry-after"), expected, "{said}");
        assert_eq!(reply.header("x-request-id"), reply.header("z-requestid"));
        assert!(reply.header("x-request-id").is_some());
    }
    let elsewhere = gateway.bare("GET", "/healthz", &[]);
    assert_eq!(elsewhere.header("x-request-id"), None);
}
