//! Tests of the adapters' standard mode, which splits a body into data and config.

use serde_json::json;

use super::{STANDARD, post, say, with_chat};
use crate::support::gateway::Setup;

#[test]
fn a_body_becomes_data_and_config_byte_for_byte() {
    let (gateway, server) = with_chat(Setup::new());
    let body = "{\"top_p\":1.0e-0, \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9 \\/\"}],\
                \"seed\":12345678901234567890123,\"model\":\"local/chat/tiny/x\",\"stop\":[\"\\n\"]}";
    let reply = post(&gateway, &format!("{STANDARD}/chat/completions"), body).expect(200);
    assert_eq!(
        reply.json()["choices"][0]["message"]["content"],
        "You said: é /"
    );
    assert_eq!(
        server.last().body,
        "{\"data\":{\"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9 \\/\"}],\
         \"model\":\"tiny/x\"},\"config\":{\"top_p\":1.0e-0,\"seed\":12345678901234567890123,\
         \"stop\":[\"\\n\"]},\"dataType\":\"https://pkgtool.dev/specs/mlp-data-common.yml#/ChatCompletion\"}"
    );
    let reply = post(
        &gateway,
        &format!("{STANDARD}/v1/completion"),
        r#"{"model":"local/chat","prompt":"hello","max_tokens":2}"#,
    );
    assert_eq!(reply.expect(200).json()["choices"][0]["text"], "You said: ");
    assert_eq!(
        server.last().body,
        "{\"data\":{\"prompt\":\"hello\"},\"config\":{\"max_tokens\":2},\
         \"dataType\":\"https://pkgtool.dev/specs/mlp-data-common.yml#/Completion\"}"
    );
}

#[test]
fn every_spelling_of_a_path_is_answered() {
    let (gateway, _server) = with_chat(Setup::new());
    for base in ["compat", "compat/v1", "openai", "openai/v1"] {
        let base = format!("/api/adapters/{base}");
        let chat = say("local/chat", "hello").to_string();
        post(&gateway, &format!("{base}/chat/completions"), &chat).expect(200);
        for path in ["completions", "completion"] {
            let body = r#"{"model":"local/chat","prompt":"hello"}"#;
            post(&gateway, &format!("{base}/{path}"), body).expect(200);
        }
        for path in ["embeddings", "embedding"] {
            let body = r#"{"model":"local/chat","input":["a","b"],"stream":true}"#;
            let reply = post(&gateway, &format!("{base}/{path}"), body).expect(200);
            assert_eq!(reply.json()["data"].as_array().map(Vec::len), Some(2));
        }
        let wrong = gateway.bare("GET", &format!("{base}/chat/completions"), &[]);
        assert_eq!(wrong.header("allow"), Some("POST"));
        wrong.expect_error(405, "METHOD_NOT_ALLOWED");
    }
}

#[test]
fn a_default_config_stands_below_what_a_client_says() {
    let (gateway, server) = with_chat(Setup::new());
    let config = json!({"name": "d", "isDefault": true,
        "config": "{\"temperature\":0.50,\"max_tokens\":1}"});
    let path = "/api/mlpgateway/account/local/model/chat/predict-config";
    gateway.post(path, config.to_string()).expect(200);
    let mut body = say("local/chat", "hello");
    body["max_tokens"] = json!(3);
    let path = format!("{STANDARD}/chat/completions");
    let reply = post(&gateway, &path, &body.to_string()).expect(200);
    assert_eq!(reply.json()["usage"]["completion_tokens"], 3);
    let seen = server.last().body;
    assert!(
        seen.contains("\"config\":{\"temperature\":0.50,\"max_tokens\":3}"),
        "{seen}"
    );
}

#[test]
fn others_may_use_what_is_public_and_nothing_else() {
    let setup = Setup::new().settings("[services.chat]\npublic = true");
    let (gateway, _server) = with_chat(setup);
    gateway.account("acme", 1000);
    let key = gateway.new_key("acme", "ci", "predict");
    let path = format!("{STANDARD}/chat/completions");
    let send = |model: &str| {
        let body = say(model, "hello").to_string();
        gateway.send_with(&key, "POST", &path, body)
    };
    for _ in 0..3 {
        send("local/chat").expect(200);
        // The owner sends a request in between.
        let own = say("local/raw", "x").to_string();
        let raw = "/api/adapters/compat-direct/chat/completions";
        post(&gateway, raw, &own).expect(200);
    }
    let hidden = send("local/raw").expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_NOT_PUBLIC_DENIED");
    let nothing = send("nobody/x").expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_NOT_PUBLIC_DENIED");
    let words = |reply: &crate::support::http::Reply| reply.json()["error"]["message"].clone();
    assert_eq!(words(&hidden), words(&nothing), "a stranger learns nothing");
    send("acme/none").expect_error(404, "SERVICE_NOT_FOUND");
}
