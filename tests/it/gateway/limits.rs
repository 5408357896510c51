//! Tests that the limits of accounts, services and bodies hold exactly.

use std::sync::Mutex;

use serde_json::json;

use super::{first_output, three, with_models};
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{Reply, Upstream};

const CREATE: &str = "/api/mlpgateway/account/local/model/slow/async/predict";

/// Sends many requests at once and returns their answers.
fn at_once(gateway: &Gateway, count: usize, path: &str) -> Vec<Reply> {
    let replies = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let reply = gateway.post(path, "{}");
                replies.lock().expect("no thread panicked").push(reply);
            });
        }
    });
    replies.into_inner().expect("no thread panicked")
}

#[test]
fn waiting_tasks_are_as_many_as_the_account_may_have() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nwaiting = 7\nrunning = 1")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let first = gateway.create("slow", "{}");
    gateway.wait_for(&first, "PROCESSING");
    let replies = at_once(&gateway, 30, CREATE);
    let accepted = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(accepted, 7);
    for refused in replies.into_iter().filter(|reply| reply.status != 200) {
        let refused = refused.expect_error(429, "TOO_MANY_IDLE_ASYNC_TASKS");
        assert_eq!(refused.json()["error"]["args"]["limit"], 7);
        assert!(refused.header("retry-after").is_some());
    }
    let ready = gateway.get("/readyz").expect(200).json();
    assert_eq!(
        (&ready["waiting"], &ready["running"]),
        (&json!(7), &json!(1))
    );
    upstream.release();
    gateway.until(|| gateway.get("/readyz").json()["waiting"] == 0);
    gateway.create("slow", "{}");
}

#[test]
fn requests_per_second_are_counted_for_tasks_and_predicts_alike() {
    let upstream = Upstream::start();
    upstream.release();
    let gateway = Setup::new().proxy("slow", &upstream.url("/hold")).start();
    gateway
        .command(&["accounts", "set", "local", "--rps", "4"])
        .expect_code(0);
    let predict = "/api/mlpgateway/account/local/model/slow/predict";
    let refused = Mutex::new(None);
    gateway.until(|| {
        let replies = at_once(&gateway, 12, predict);
        let mut replies = replies.into_iter();
        let found = replies
            .find(|reply| reply.status == 429 && reply.json()["error"]["args"]["limit"] == 4);
        let is_there = found.is_some();
        *refused.lock().expect("no thread panicked") = found;
        is_there
    });
    let refused = refused
        .into_inner()
        .expect("no thread panicked")
        .expect("one was");
    let refused = refused.expect_error(429, "REQUESTS_PER_SECOND_LIMIT_EXCEEDED");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // The window is full of predicts: the rate limit rejects a create.
    gateway.until(|| {
        at_once(&gateway, 8, predict);
        let reply = gateway.post(CREATE, "{}");
        reply.status == 429 && reply.code() == "REQUESTS_PER_SECOND_LIMIT_EXCEEDED"
    });
    // Reads do not count.
    for _ in 0..20 {
        gateway
            .get("/api/mlpgateway/account/local/async/task")
            .expect(200);
    }
}

#[test]
fn running_tasks_are_as_many_as_the_account_may_have() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 3")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    for _ in 0..6 {
        gateway.create("slow", "{}");
    }
    gateway.until(|| upstream.seen() == 3);
    let ready = gateway.get("/readyz").expect(200).json();
    assert_eq!(
        (&ready["waiting"], &ready["running"]),
        (&json!(3), &json!(3))
    );
    upstream.release();
    gateway.until(|| upstream.seen() == 6);
}

#[test]
fn accounts_take_turns() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[tasks]\nrunning = 1")
        .proxy("slow", &upstream.url("/hold"))
        .settings("[services.slow]\npublic = true")
        .start();
    gateway.account("other", 50);
    let other = gateway.new_key("other", "all", "predict,read,write");
    let first = gateway.create("slow", "{}");
    gateway.wait_for(&first, "PROCESSING");
    let mine: Vec<String> = (0..10).map(|_| gateway.create("slow", "{}")).collect();
    let late = gateway
        .send_with(&other, "POST", CREATE, "{}")
        .expect(200)
        .json();
    let late = late.as_str().expect("an id").to_owned();
    upstream.release();
    let last = gateway.wait_for(&mine[9], "COMPLETED");
    let path = format!("/api/mlpgateway/account/other/async/task/{late}");
    let late = gateway
        .send_with(&other, "GET", &path, "")
        .expect(200)
        .json();
    assert_eq!(late["status"], "COMPLETED");
    assert!(late["completedAt"].as_i64() <= last["completedAt"].as_i64());
}

#[test]
fn a_full_queue_of_a_service_is_told() {
    let (gateway, _tree) =
        with_models(Setup::new().settings("[services.negate]\nqueue = 1\nbatch_max_size = 1"));
    gateway
        .command(&["accounts", "set", "local", "--rps", "100000"])
        .expect_code(0);
    let path = "/api/mlpgateway/account/local/model/negate/predict";
    let body = three([1.0, 2.0, 3.0]);
    // The first request loads the model while others arrive.
    let replies = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                let reply = gateway.post(path, &body);
                replies.lock().expect("no thread panicked").push(reply);
            });
        }
    });
    let replies = replies.into_inner().expect("no thread panicked");
    for reply in &replies {
        if reply.status == 200 {
            assert_eq!(first_output(&reply.json()), [-1.0, -2.0, -3.0]);
        } else if reply.code() != "REQUESTS_PER_SECOND_LIMIT_EXCEEDED" {
            reply.clone().expect_error(429, "SERVICE_QUEUE_IS_FULL");
        }
    }
    assert!(replies.iter().any(|reply| reply.status == 200));
    assert!(replies.iter().any(|reply| reply.status == 429));
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nbody_bytes = 1000")
        .proxy("slow", &upstream.url("/echo"))
        .start();
    let large = "x".repeat(1001);
    for path in [CREATE, "/p/local/slow"] {
        let refused = gateway.post(path, &large);
        let refused = refused.expect_error(413, "REQUEST_BODY_IS_TOO_LARGE");
        assert_eq!(refused.json()["error"]["args"]["limit"], 1000);
    }
    gateway.post("/p/local/slow", "x".repeat(1000)).expect(200);
}
