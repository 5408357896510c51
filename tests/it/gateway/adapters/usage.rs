//! Tests of usage accounting: how the gateway counts requests and tokens per account, stores them
//! and reports them.

use serde_json::{Value, json};

use super::{DIRECT, STANDARD, ask, post, read_until, say, say_for_events, with_chat};
use crate::support::gateway::{Gateway, Setup};

/// Returns an account's reported usage of a service: requests, prompt tokens, completion tokens and
/// cached tokens.
#[track_caller]
fn used(gateway: &Gateway, key: &str, account: &str, service: &str) -> [u64; 4] {
    let path = format!("/api/mlpgateway/account/{account}/usage");
    let told = gateway.send_with(key, "GET", &path, "").expect(200).json();
    let days = told["usage"].as_array().expect("a list").iter();
    let mut of_service = days.filter(|of_service| of_service["model"] == service);
    let sums = of_service.next().map(sums).unwrap_or_default();
    assert!(
        of_service.next().is_none(),
        "one day, unless it is midnight: {told}"
    );
    sums
}

fn sums(of: &Value) -> [u64; 4] {
    [
        "requests",
        "promptTokens",
        "completionTokens",
        "cachedTokens",
    ]
    .map(|name| of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}")))
}

#[test]
fn answers_are_counted_for_who_asked() {
    let setup = Setup::new().settings("[services.chat]\npublic = true");
    let (gateway, _server) = with_chat(setup);
    gateway.account("acme", 1000);
    let key = gateway.new_key("acme", "ci", "predict,read");
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [0; 4]);
    let path = format!("{STANDARD}/chat/completions");
    // Two prompt tokens, one of them cached, and four completion tokens.
    post(&gateway, &path, &say("local/chat", "one two").to_string()).expect(200);
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [1, 2, 4, 1]);
    let body = say("local/chat", "one").to_string();
    gateway.send_with(&key, "POST", &path, body).expect(200);
    assert_eq!(used(&gateway, &key, "acme", "chat"), [1, 1, 3, 1]);
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [1, 2, 4, 1]);
    // Streams report usage only on request.
    let events = say_for_events("local/chat", "one two");
    post(&gateway, &path, &events).expect(200);
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [2, 2, 4, 1]);
    let mut body: Value = serde_json::from_str(&events).expect("it is JSON");
    body["stream_options"] = json!({"include_usage": true});
    post(&gateway, &path, &body.to_string()).expect(200);
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [3, 4, 8, 2]);
    let reply = post(&gateway, &path, &say_for_events("local/chat", "!whole x"));
    reply.expect(200);
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [4, 6, 12, 3]);
    // Failed and rejected requests do not count.
    post(
        &gateway,
        &path,
        &say("local/chat", "!status 500").to_string(),
    )
    .expect(500);
    post(&gateway, &path, r#"{"model":"local/chat"}"#).expect(400);
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [4, 6, 12, 3]);
    let path = format!("{DIRECT}/embeddings");
    let body = r#"{"model":"local/vectors","input":["a","b"]}"#;
    post(&gateway, &path, body).expect(200);
    assert_eq!(
        used(&gateway, &gateway.key, "local", "vectors"),
        [1, 3, 0, 0]
    );
}

#[test]
fn a_stream_that_is_left_is_a_request() {
    let (gateway, server) = with_chat(Setup::new());
    let path = format!("{STANDARD}/chat/completions");
    let mut stream = ask(&gateway, &path, &say_for_events("local/chat", "!hold"));
    read_until(&mut stream, "data: ");
    drop(stream);
    gateway.until(|| server.left() == 1);
    gateway.until(|| used(&gateway, &gateway.key, "local", "chat") == [1, 0, 0, 0]);
    post(&gateway, &path, &say_for_events("local/chat", "!late")).expect(200);
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [2, 0, 0, 0]);
}

#[test]
fn what_was_counted_is_there_after_a_stop_and_after_a_kill() {
    let (gateway, _server) = with_chat(Setup::new());
    let path = format!("{STANDARD}/chat/completions");
    let body = say("local/chat", "one two").to_string();
    post(&gateway, &path, &body).expect(200);
    let gateway = gateway.stop_and_change(|_| {});
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [1, 2, 4, 1]);
    post(&gateway, &path, &body).expect(200);
    // A crash loses at most the last second of usage; a busy disk needs more time.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let gateway = gateway.kill_and_restart();
    assert_eq!(used(&gateway, &gateway.key, "local", "chat"), [2, 4, 8, 2]);
}

#[test]
fn days_are_chosen_and_old_ones_end() {
    let setup = Setup::new().settings("[usage]\nkeep_days = 10");
    let (gateway, _server) = with_chat(setup);
    let path = format!("{STANDARD}/chat/completions");
    post(&gateway, &path, &say("local/chat", "one").to_string()).expect(200);
    let usage = "/api/mlpgate/account/local/usage";
    let told = gateway.get(usage).expect(200).json();
    let today = told["to"].as_str().expect("a day").to_owned();
    assert_eq!(told["usage"][0]["date"], today);
    assert_eq!(told["usage"][0]["account"], "local");
    assert_eq!(sums(&told["total"]), [1, 1, 3, 1]);
    let info = gateway
        .get("/api/mlpgate/account/local/model/chat")
        .expect(200)
        .json();
    assert_eq!(told["usage"][0]["id"], info["id"]);
    let one = gateway
        .get(&format!("{usage}?from={today}&to={today}"))
        .expect(200)
        .json();
    assert_eq!(one["usage"], told["usage"]);
    let none = gateway
        .get(&format!("{usage}?to=2020-01-31"))
        .expect(200)
        .json();
    assert_eq!(
        (&none["from"], &none["usage"]),
        (&json!("2020-01-01"), &json!([]))
    );
    for wrong in ["from=today", "to=2026-02-30", "from=2026-11-22T00:00:00Z"] {
        gateway
            .get(&format!("{usage}?{wrong}"))
            .expect_error(400, "BAD_REQUEST");
    }
    gateway
        .bare("GET", usage, &[])
        .expect_error(401, "mlp.gateway.access_key_required");
    let key = gateway.new_key("local", "asks", "predict");
    gateway
        .send_with(&key, "GET", usage, "")
        .expect_error(403, "TOKEN_PERMISSION_REQUIRED");
    gateway.account("acme", 5);
    gateway
        .get("/api/mlpgate/account/acme/usage")
        .expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_DENIED");
    // Counts from long ago, written by an earlier server.
    let gateway = gateway.stop_and_change(|data| {
        let database = rusqlite::Connection::open(data.join("pkgtool.db")).expect("it opens");
        let change = "UPDATE usage SET day = day - 10;
            INSERT INTO usage SELECT account, day - 1, service, 7, 7, 7, 7 FROM usage";
        database.execute_batch(change).expect("it is there");
    });
    let whole = format!("{usage}?from=2020-01-01");
    gateway.until(|| sums(&gateway.get(&whole).expect(200).json()["total"]) == [1, 1, 3, 1]);
}
