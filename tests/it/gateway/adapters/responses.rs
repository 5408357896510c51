//! Tests of responses: requests that become chats, and answers that come back as responses.

use serde_json::{Value, json};

use super::{DIRECT, STANDARD, post, with_chat};
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::Reply;

fn ask(gateway: &Gateway, body: &Value) -> Reply {
    post(gateway, &format!("{STANDARD}/responses"), &body.to_string())
}

/// Returns the data of a reply's events.
fn events(reply: &Reply) -> Vec<Value> {
    let text = reply.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

#[test]
fn a_response_is_the_answer_of_a_chat() {
    let (gateway, server) = with_chat(Setup::new());
    let body = json!({
        "model": "local/chat", "instructions": "Be brief.", "input": "hello there", "store": true,
        "metadata": {"a": "b"}, "max_output_tokens": 3,
    });
    let response = ask(&gateway, &body).expect(200).json();
    assert_eq!(response["object"], "response");
    assert_eq!(response["status"], "incomplete");
    assert_eq!(
        response["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    assert_eq!(response["store"], false);
    assert_eq!(response["metadata"], json!({"a": "b"}));
    assert_eq!(
        response["output"][0]["content"][0]["text"],
        "You said: hello "
    );
    let seen: Value = serde_json::from_str(&server.last().body).expect("JSON");
    assert_eq!(
        seen["data"]["messages"][0],
        json!({"role": "system", "content": "Be brief."})
    );
    assert_eq!(seen["config"], json!({"max_completion_tokens": 3}));
}

#[test]
fn a_streamed_response_has_its_events_in_order() {
    let (gateway, _server) = with_chat(Setup::new());
    // The upstream answers at once although events were asked for, or as events.
    for said in ["hello there", "!whole hello there"] {
        let body = json!({"model": "local/chat", "input": said, "stream": true});
        let reply = ask(&gateway, &body).expect(200);
        let events = events(&reply);
        let names: Vec<&str> = events
            .iter()
            .filter_map(|event| event["type"].as_str())
            .collect();
        assert_eq!(names[..2], ["response.created", "response.in_progress"]);
        assert_eq!(names.last(), Some(&"response.completed"));
        let deltas = events
            .iter()
            .filter(|event| event["type"] == "response.output_text.delta");
        let text: String = deltas.filter_map(|event| event["delta"].as_str()).collect();
        assert_eq!(text, format!("You said: {said}"));
        let numbers = events.iter().map(|event| event["sequence_number"].as_u64());
        assert!(numbers.eq((0..events.len() as u64).map(Some)));
        assert!(!reply.text().contains("[DONE]"));
    }
    // Both were counted, with the tokens that the upstream reported.
    gateway.until(|| {
        let usage = gateway
            .get("/api/mlpcore/account/local/usage")
            .expect(200)
            .json();
        usage["total"]["requests"] == 2 && usage["total"]["completionTokens"].as_u64() > Some(6)
    });
}

#[test]
fn an_error_ends_a_response() {
    let (gateway, _server) = with_chat(Setup::new());
    for said in ["!late", "!break"] {
        let body = json!({"model": "local/chat", "input": said, "stream": true});
        let events = events(&ask(&gateway, &body).expect(200));
        let last = events.last().expect("an event");
        assert_eq!(last["type"], "response.failed", "{said}: {last}");
        assert!(last["response"]["error"]["message"].is_string(), "{last}");
        assert_eq!(events[events.len() - 2]["type"], "error");
    }
    let busy = json!({"model": "local/chat", "input": "!status 429 3", "stream": true});
    let reply = ask(&gateway, &busy).expect(429);
    assert_eq!(reply.header("retry-after"), Some("3"));
    let odd = json!({"model": "local/chat", "input": "!odd"});
    ask(&gateway, &odd).expect_error(502, "SERVICE_DOES_NOT_CHAT");
    let unknown = json!({"model": "local/nothing", "input": "x"});
    ask(&gateway, &unknown).expect_error(404, "SERVICE_NOT_FOUND");
    let stored = json!({"model": "local/chat", "input": "x", "previous_response_id": "resp_1"});
    let refused = ask(&gateway, &stored)
        .expect_error(400, "BAD_REQUEST")
        .json();
    assert_eq!(refused["error"]["param"], "previous_response_id");
    for body in [
        "",
        "[]",
        "{",
        "{\"model\":1,\"input\":\"x\"}",
        "{\"model\":\"local/chat\"}",
    ] {
        post(&gateway, &format!("{STANDARD}/responses"), body).expect_error(400, "BAD_REQUEST");
    }
    // Nothing that grows without a bound is built of a body.
    let many = format!(
        "{{\"model\":\"local/chat\",\"input\":[{}1]}}",
        "[],".repeat(2_000_000)
    );
    post(&gateway, &format!("{STANDARD}/responses"), &many).expect_error(400, "BAD_REQUEST");
    let direct = json!({"model": "local/raw", "input": "x"}).to_string();
    post(&gateway, &format!("{DIRECT}/responses"), &direct).expect_error(404, "PATH_NOT_FOUND");
    gateway
        .bare("POST", &format!("{STANDARD}/responses"), &[])
        .expect_error(401, "mlp.gateway.access_key_required");
}
