//! Tests of promises to clients of the platform that the other files do not cover: media types,
//! keys that work at once, the content of rejections, and numbers out of range.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{PREFIXES, three, with_models};
use crate::support::gateway::Setup;
use crate::support::http::Upstream;
use crate::support::run::pkgtool;

#[test]
fn an_answer_keeps_its_media_type() {
    let upstream = Upstream::start();
    let mut setup = Setup::new();
    for (name, path) in [
        ("text", "/text"),
        ("echo", "/echo"),
        ("teapot", "/text/418"),
    ] {
        setup = setup.proxy(name, &upstream.url(path));
    }
    let mut gateway = setup.start();
    let bodies = [
        r#""plain words""#.to_owned(),
        json!("x".repeat(5000)).to_string(),
    ];
    let mut tasks = Vec::new();
    for body in &bodies {
        for (service, media) in [
            ("text", "text/plain; charset=utf-8"),
            ("echo", "application/json"),
        ] {
            let now = gateway
                .post(&format!("/p/local/{service}"), body)
                .expect(200);
            assert_eq!(now.header("content-type"), Some(media));
            let task = gateway.create(service, body);
            gateway.wait_for(&task, "COMPLETED");
            tasks.push((task, media, body));
        }
    }
    let failed = gateway.create("teapot", "{}");
    gateway.wait_for(&failed, "CANCELED");
    // The first rounds use the server's memory, the later ones the data read after a restart.
    for round in 0..3 {
        for (task, media, body) in &tasks {
            let result = gateway.result(task).expect(200);
            assert_eq!(result.header("content-type"), Some(*media), "round {round}");
            assert_eq!(result.text(), **body);
        }
        let result = gateway.result(&failed).expect(418);
        let media = result.header("content-type");
        assert_eq!(media, Some("text/plain; charset=utf-8"), "round {round}");
        if round == 1 {
            gateway = gateway.kill_and_restart();
        }
    }
}

#[test]
fn a_key_works_as_soon_as_it_is_made() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    let path = "/api/mlpgateway/account/local/model/echo";
    for round in 0..10 {
        let name = format!("key{round}");
        let key = gateway.new_key("local", &name, "read");
        gateway.send_with(&key, "GET", path, "").expect(200);
        // An invalid request changes nothing for the next one.
        gateway
            .send_with(&format!("{key}x"), "GET", path, "")
            .expect_error(401, "mlp.gateway.api_key_not_found");
    }
    // A new account works at once together with its key.
    gateway.account("acme", 20);
    let key = gateway.new_key("acme", "ci", "read");
    let own = "/api/mlpgateway/account/acme/async/task";
    let listed = gateway.send_with(&key, "GET", own, "").expect(200);
    assert_eq!(listed.json(), json!([]));
}

#[test]
fn guessing_keys_is_answered_at_once_and_makes_no_key_late() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    let path = "/api/mlpgateway/account/local/model/echo";
    for guess in 0..500 {
        gateway
            .send_with(&format!("pk_{guess}"), "GET", path, "")
            .expect_error(401, "mlp.gateway.api_key_not_found");
    }
    // No request triggers the reload now: the server notices new keys by itself.
    let key = gateway.new_key("local", "late", "read");
    let made = Instant::now();
    gateway.until(|| gateway.send_with(&key, "GET", path, "").status == 200);
    assert!(
        made.elapsed() < Duration::from_secs(20),
        "{:?}",
        made.elapsed()
    );
}

#[test]
fn the_first_account_is_not_held_back_and_others_are_told_what_changes_it() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .proxy("echo", &upstream.url("/echo"))
        .settings("[services.echo]\npublic = true")
        .start();
    let predict = "/p/local/echo";
    for _ in 0..300 {
        gateway.post(predict, "{}").expect(200);
    }
    let listed = gateway.command(&["accounts", "list"]).expect_code(0).stdout;
    assert!(listed.contains("unlimited"), "{listed}");
    gateway.account("acme", 2);
    let key = gateway.new_key("acme", "ci", "predict");
    let mut refused = None;
    gateway.until(|| {
        let reply = gateway.send_with(&key, "POST", predict, "{}");
        let is_refused = reply.status == 429;
        refused = Some(reply);
        is_refused
    });
    let refused = refused.expect("one was");
    let refused = refused.expect_error(429, "REQUESTS_PER_SECOND_LIMIT_EXCEEDED");
    let message = refused.json()["error"]["message"].clone();
    let message = message.as_str().expect("a text");
    let command = "`pkgtool accounts set acme --rps unlimited` changes it";
    assert!(message.contains(command), "{message}");
    gateway
        .command(&["accounts", "set", "acme", "--rps", "unlimited"])
        .expect_code(0);
    gateway.until(|| {
        let mut replies = (0..50).map(|_| gateway.send_with(&key, "POST", predict, "{}"));
        replies.all(|reply| reply.status == 200)
    });
    let accounts = gateway.command(&["accounts", "list", "--json"]);
    assert_eq!(accounts.expect_code(0).json()[1]["rps"], json!(null));
    let wrong = gateway.command(&["accounts", "set", "acme", "--rps", "many"]);
    let wrong = wrong.expect_code(2).stderr;
    assert!(wrong.contains("or `unlimited`"), "{wrong}");
}

#[test]
fn a_full_queue_says_what_changes_it() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nwaiting = 2\nrunning = 1")
        .proxy("slow", &upstream.url("/hold"))
        .settings("[services.slow]\npublic = true")
        .start();
    gateway.account("acme", 1);
    let acme = gateway.new_key("acme", "ci", "predict");
    for (key, changes) in [
        (&gateway.key, "the setting `limits.waiting` changes it"),
        (&acme, "`pkgtool accounts set acme --rps N` changes it"),
    ] {
        let path = "/api/mlpgateway/account/local/model/slow/async/predict";
        gateway.until(|| {
            let reply = gateway.send_with(key, "POST", path, "{}");
            if reply.status == 200 || reply.code() != "TOO_MANY_IDLE_ASYNC_TASKS" {
                return false;
            }
            let message = reply.json()["error"]["message"].to_string();
            assert!(message.contains(changes), "{message}");
            true
        });
    }
}

#[test]
fn numbers_out_of_range_name_nothing() {
    let (gateway, _tree) = with_models(Setup::new());
    let huge = [
        "0",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999999",
    ];
    let body = three([1.0, 2.0, 3.0]);
    for prefix in PREFIXES {
        for number in huge {
            let get = |path: String| gateway.get(&format!("{prefix}/account/{path}"));
            get(format!("local/model/{number}")).expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
            get(format!("{number}/model/negate")).expect(403);
            get(format!("{number}/async/task")).expect(403);
            get(format!("local/async/task/{number}")).expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
            get(format!("local/model/negate/predict-config/{number}"))
                .expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
            let post =
                |path: &str| gateway.post(&format!("{prefix}/account/local/model/{path}"), &body);
            for kind in ["predict", "async/predict"] {
                let service = post(&format!("{number}/{kind}"));
                service.expect_error(400, "SERVICE_NOT_FOUND");
                let config = post(&format!("negate/{kind}?configId={number}"));
                config.expect_error(400, "BAD_REQUEST");
            }
        }
    }
}

/// Returns the number in full-width digits, percent-encoded.
fn wide(number: i64) -> String {
    let digits = number.to_string();
    let wide = digits
        .bytes()
        .map(|digit| format!("%EF%BC%{:02X}", 0x90 + digit - b'0'));
    wide.collect()
}

#[test]
fn numbers_are_digits_only() {
    let (gateway, _tree) = with_models(Setup::new().proxy("far", "http://127.0.0.1:9"));
    let of = |name: &str| {
        let path = format!("{}/account/local/model/{name}", PREFIXES[0]);
        gateway.get(&path).expect(200).json()["id"].clone()
    };
    let (own, far) = (of("negate"), of("far"));
    let account = own["accountId"].as_i64().expect("a number");
    let negate = own["modelId"].as_i64().expect("a number");
    let far = far["modelId"].as_i64().expect("a number");
    let body = three([1.0, 2.0, 3.0]);
    let base = format!("{}/account", PREFIXES[0]);
    gateway
        .get(&format!("{base}/{account}/model/{negate}"))
        .expect(200);
    let config = json!({"name": "c", "config": "{}"}).to_string();
    let config = gateway.post(&format!("{base}/local/model/negate/predict-config"), config);
    let config = config.expect(200).json()["id"]["configId"]
        .as_i64()
        .expect("a number");
    let configs = format!("{base}/local/model/negate/predict-config");
    gateway.get(&format!("{configs}/{config}")).expect(200);
    let spellings: [fn(i64) -> String; 4] = [
        |number| format!("%2B{number}"),
        |number| format!("%20{number}"),
        |number| format!("-{number}"),
        wide,
    ];
    for spelled in spellings {
        for number in [negate, far] {
            let path = format!("{base}/local/model/{}", spelled(number));
            gateway.get(&path).expect(404);
            gateway
                .post(&format!("{path}/predict"), &body)
                .expect_error(400, "SERVICE_NOT_FOUND");
        }
        gateway
            .get(&format!("{base}/{}/model/negate", spelled(account)))
            .expect(403);
        gateway
            .get(&format!("{configs}/{}", spelled(config)))
            .expect(404);
        for path in ["job", "dataset"] {
            gateway
                .get(&format!("{base}/local/{path}/{}", spelled(1)))
                .expect(404);
        }
        let path = format!(
            "{base}/local/model/negate/predict?configId={}",
            spelled(config)
        );
        gateway.post(&path, &body).expect_error(400, "BAD_REQUEST");
        let path = format!("{base}/local/async/task?limit={}", spelled(1));
        gateway.get(&path).expect_error(400, "BAD_REQUEST");
    }
}

#[test]
fn a_number_of_a_key_out_of_range_is_told_on_the_command_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().to_str().expect("a plain path");
    for number in ["0", "9223372036854775808", "99999999999999999999999"] {
        let ran = pkgtool(["keys", "revoke", number, "--data-dir", data]).run();
        let ran = ran.expect_code(2);
        assert!(ran.stderr.contains("unknown key"), "{}", ran.stderr);
    }
}
