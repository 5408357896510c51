//! Tests of the adapters' direct mode: bodies and answers pass unchanged except for the model name.

use super::{DIRECT, post, say_for_events, with_chat};
use crate::support::gateway::Setup;
use crate::support::http::Upstream;

#[test]
fn a_body_passes_but_for_its_model() {
    let (gateway, server) = with_chat(Setup::new());
    let body = |model: &str| {
        format!(
            "{{ \"z\":1.50e1,{model}\n\"messages\":[{{\"role\":\"user\",\"content\":\"\\u00e9\"}}] }}"
        )
    };
    let path = format!("{DIRECT}/chat/completions");
    let sent = body(" \"model\" : \"local/raw/gpt-x\",");
    let reply = post(&gateway, &path, &sent).expect(200);
    assert_eq!(
        reply.json()["choices"][0]["message"]["content"],
        "You said: é"
    );
    assert_eq!(server.last().body, body(" \"model\" : \"gpt-x\","));
    post(&gateway, &path, &body(" \"model\" : \"local/raw\",")).expect(200);
    assert_eq!(
        server.last().body,
        "{ \"z\":1.50e1, \"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9\"}] }"
    );
    assert_eq!(server.last().path, "/v1/chat/completions");
    for (path, body) in [
        ("v1/completions", r#"{"model":"local/text","prompt":"x"}"#),
        ("v1/embeddings", r#"{"model":"local/vectors","input":"x"}"#),
    ] {
        post(&gateway, &format!("{DIRECT}/{path}"), body).expect(200);
        assert_eq!(server.last().path, format!("/{path}"));
    }
}

#[test]
fn a_default_config_is_not_for_it() {
    let (gateway, server) = with_chat(Setup::new());
    let path = "/api/mlpgateway/account/local/model/raw/predict-config";
    let config = r#"{"name":"d","isDefault":true,"config":{"max_tokens":1}}"#;
    gateway.post(path, config).expect(200);
    let body = r#"{"messages":[],"model":"local/raw"}"#;
    post(&gateway, &format!("{DIRECT}/chat/completions"), body).expect(200);
    assert_eq!(server.last().body, r#"{"messages":[]}"#);
}

#[test]
fn events_pass_untouched() {
    let (gateway, _server) = with_chat(Setup::new());
    let path = format!("{DIRECT}/chat/completions");
    let reply = post(&gateway, &path, &say_for_events("local/raw", "one two")).expect(200);
    let text = reply.text();
    assert!(
        text.ends_with("\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"),
        "{text}"
    );
    // Nothing is added to other values either.
    let upstream = Upstream::start();
    upstream.release();
    let gateway = Setup::new().proxy("raw", &upstream.url("/events")).start();
    let reply = post(&gateway, &path, r#"{"model":"local/raw","stream":true}"#).expect(200);
    assert_eq!(reply.text(), crate::support::http::EVENTS.concat());
    assert_eq!(
        reply.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
}
