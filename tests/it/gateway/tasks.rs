//! Tests of the six operations of tasks, of their states and their results.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{PREFIXES, first_output, three, with_models};
use crate::support::gateway::{Setup, task_path};
use crate::support::http::Upstream;

#[test]
fn a_task_is_created_answered_and_read_under_every_spelling() {
    let (gateway, _tree) = with_models(Setup::new());
    let data = json!({"inputs": [{"data": [1.0, -2.0, 3.0]}]});
    for prefix in PREFIXES {
        for (operation, body) in [
            ("predict", data.to_string()),
            ("predict-with-config", json!({"data": data, "config": {"precision": "fp32"}, "dataType": "application/json"}).to_string()),
            ("predict-with-config-v2", json!({"data": data.to_string(), "config": "{}"}).to_string()),
        ] {
            let path = format!("{prefix}/account/local/model/negate/async/{operation}");
            let reply = gateway.post(&path, body).expect(200);
            assert_eq!(reply.header("content-type"), Some("application/json"));
            let id = reply.json().as_str().expect("an id").to_owned();
            let done = gateway.wait_for(&id, "COMPLETED");
            assert_eq!(done["taskId"], id.as_str());
            assert_eq!(done["callerId"], 1);
            assert!(done["completedAt"].as_i64() >= done["createdAt"].as_i64());
            let base = format!("{prefix}/account/1/async/task/{id}");
            assert_eq!(gateway.get(&base).expect(200).json(), done);
            let result = gateway.get(&format!("{base}/response")).expect(200);
            assert_eq!(result.header("content-type"), Some("application/json"));
            assert_eq!(first_output(&result.json()), [-1.0, 2.0, -3.0]);
            // A final state never changes.
            gateway.post(&format!("{base}/cancel"), "").expect(200);
            assert_eq!(gateway.get(&base).expect(200).json(), done);
        }
    }
}

#[test]
fn a_waiting_task_has_a_place_and_no_result_yet() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 1")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let tasks: Vec<String> = (0..3).map(|_| gateway.create("slow", "{}")).collect();
    gateway.wait_for(&tasks[0], "PROCESSING");
    assert_eq!(gateway.status(&tasks[0])["completedAt"], json!(null));
    for (task, place) in tasks[1..].iter().zip(["1", "2"]) {
        let reply = gateway.get(&task_path(task)).expect(200);
        assert_eq!(reply.json()["status"], "QUEUED");
        assert_eq!(reply.header("x-queue-position"), Some(place));
    }
    let nothing = gateway.result(&tasks[2]).expect(204);
    assert!(nothing.body.is_empty());
    gateway.result(&tasks[0]).expect(204);
    let listed = gateway.get("/api/mlpgateway/account/local/async/task?status=QUEUED&limit=10");
    let listed = listed.expect(200).json();
    let ids: Vec<&str> = listed
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|task| task["taskId"].as_str())
        .collect();
    assert_eq!(ids, [&tasks[2], &tasks[1]]);
    upstream.release();
    for task in &tasks {
        gateway.wait_for(task, "COMPLETED");
        assert_eq!(gateway.result(task).expect(200).text(), r#"{"held":true}"#);
    }
}

#[test]
fn a_waiting_task_that_is_canceled_never_runs() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 1")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let first = gateway.create("slow", "{}");
    gateway.wait_for(&first, "PROCESSING");
    gateway.until(|| upstream.seen() == 1);
    let second = gateway.create("slow", "{}");
    gateway
        .post(&format!("{}/cancel", task_path(&second)), "")
        .expect(200);
    let canceled = gateway.status(&second);
    assert_eq!(canceled["status"], "CANCELED");
    assert!(canceled["completedAt"].is_i64());
    gateway
        .result(&second)
        .expect_error(404, "ASYNC_TASK_CANCELED");
    upstream.release();
    gateway.wait_for(&first, "COMPLETED");
    let third = gateway.create("slow", "{}");
    gateway.wait_for(&third, "COMPLETED");
    assert_eq!(upstream.seen(), 2, "the canceled task was never sent");
    assert_eq!(gateway.status(&second), canceled);
}

#[test]
fn a_running_task_that_is_canceled_ends_at_once_and_its_answer_is_dropped() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 1")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let task = gateway.create("slow", "{}");
    gateway.wait_for(&task, "PROCESSING");
    gateway.until(|| upstream.seen() == 1);
    gateway
        .post(&format!("{}/cancel", task_path(&task)), "")
        .expect(200);
    assert_eq!(gateway.status(&task)["status"], "CANCELED");
    // The task's slot is free while the upstream still holds the call.
    let next = gateway.create("slow", "{}");
    gateway.until(|| upstream.seen() == 2);
    upstream.release();
    gateway.wait_for(&next, "COMPLETED");
    gateway
        .result(&task)
        .expect_error(404, "ASYNC_TASK_CANCELED");
}

#[test]
fn a_failure_is_what_the_result_answers() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .proxy("teapot", &upstream.url("/status/418"))
        .proxy("broken", &upstream.url("/status/503"))
        .proxy("gone", "http://127.0.0.1:9/")
        .proxy("late", &upstream.url("/hold"))
        .settings("[services.late]\nasync_timeout_s = 0.05")
        .start();
    for (service, status, says) in [("teapot", 418, "upstream"), ("broken", 503, "upstream")] {
        let task = gateway.create(service, "{}");
        let ended = gateway.wait_for(&task, "CANCELED");
        assert!(ended["completedAt"].is_i64());
        assert_eq!(gateway.result(&task).expect(status).json()[says], "says so");
    }
    let task = gateway.create("gone", "{}");
    gateway.wait_for(&task, "CANCELED");
    gateway
        .result(&task)
        .expect_error(502, "mlp-action.common.service-unavailable");
    let task = gateway.create("late", "{}");
    gateway.wait_for(&task, "CANCELED");
    let late = gateway.result(&task).expect_error(504, "PREDICT_TIMEOUT");
    assert_eq!(late.header("x-should-retry"), Some("false"));
}

#[test]
fn unknown_tasks_are_not_found() {
    let (gateway, _tree) = with_models(Setup::new());
    let unknown = "0199d0d0-0000-7000-8000-000000000000";
    for id in [unknown, "17", "..%2f..", "%00", "not-a-task"] {
        let path = task_path(id);
        gateway
            .get(&path)
            .expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
        gateway
            .get(&format!("{path}/response"))
            .expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
        gateway
            .post(&format!("{path}/cancel"), "")
            .expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    }
}

#[test]
fn a_wrong_request_makes_no_task() {
    let (gateway, _tree) = with_models(Setup::new());
    let base = "/api/mlpgateway/account/local/model/negate/async";
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let in_inputs = format!(r#"{{"inputs":[{{"data":{deep}}}]}}"#);
    for (operation, body) in [
        ("predict", "{".as_bytes().to_vec()),
        ("predict", b"\xff\xfe".to_vec()),
        ("predict", b"{\"inputs\":[{\"data\":[1,2]}]}".to_vec()),
        ("predict", b"{\"inputs\":[{\"data\":[1,2,\"x\"]}]}".to_vec()),
        (
            "predict",
            b"{\"inputs\":[{\"data\":[1,2,3],\"dtype\":\"int64\"}]}".to_vec(),
        ),
        (
            "predict",
            b"{\"inputs\":[{\"data\":[1,2,3],\"name\":\"z\"}]}".to_vec(),
        ),
        ("predict", b"[]".to_vec()),
        ("predict", b"".to_vec()),
        ("predict", deep.clone().into_bytes()),
        ("predict", in_inputs.clone().into_bytes()),
        ("predict?configId=7", three([0.0; 3]).into_bytes()),
        ("predict?configId=x", three([0.0; 3]).into_bytes()),
        ("predict-with-config", b"{}".to_vec()),
        ("predict-with-config", b"{\"data\":\"text\"}".to_vec()),
        (
            "predict-with-config",
            b"{\"data\":{},\"config\":7}".to_vec(),
        ),
        (
            "predict-with-config",
            b"{\"data\":{\"inputs\":[{\"data\":[1,2,3]}]},\"config\":{\"precision\":\"fp7\"}}"
                .to_vec(),
        ),
        (
            "predict-with-config",
            b"{\"data\":{\"inputs\":[{\"data\":[1,2,3]}]},\"config\":{\"presicion\":\"fp32\"}}"
                .to_vec(),
        ),
        (
            "predict-with-config",
            format!("{{\"data\":{in_inputs}}}").into_bytes(),
        ),
        ("predict-with-config-v2", b"{\"data\":{}}".to_vec()),
        ("predict-with-config-v2", b"{\"data\":\"{\"}".to_vec()),
        (
            "predict-with-config-v2",
            b"{\"data\":\"{}\",\"config\":\"[\"}".to_vec(),
        ),
    ] {
        let reply = gateway.post(&format!("{base}/{operation}"), &body);
        let text = String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned();
        assert_eq!(reply.status, 400, "{operation} {text}: {}", reply.text());
        assert!(reply.json()["error"]["message"].is_string());
    }
    gateway
        .post(
            "/api/mlpgateway/account/local/model/nosuch/async/predict",
            "{}",
        )
        .expect_error(400, "SERVICE_NOT_FOUND");
    let listed = gateway
        .get("/api/mlpgateway/account/local/async/task")
        .expect(200);
    assert_eq!(listed.json(), json!([]));
}

#[test]
fn a_repeated_idempotency_key_makes_one_task() {
    let (gateway, _tree) = with_models(Setup::new());
    let path = "/api/mlpgateway/account/local/model/negate/async/predict";
    let send = |key: &str, body: &str| {
        let headers = [
            ("MLP-API-KEY", gateway.key.as_str()),
            ("Idempotency-Key", key),
        ];
        crate::support::http::request(gateway.address, "POST", path, &headers, body.as_bytes())
    };
    let first = send("one", &three([1.0; 3])).expect(200).json();
    assert_eq!(send("one", &three([1.0; 3])).expect(200).json(), first);
    assert_ne!(send("two", &three([1.0; 3])).expect(200).json(), first);
    send("one", &three([2.0; 3])).expect_error(409, "IDEMPOTENCY_KEY_WAS_USED");
    send(&"x".repeat(256), &three([1.0; 3])).expect_error(400, "BAD_REQUEST");
}

#[test]
fn what_is_stored_is_checked_when_it_is_read() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[tasks]\ninline_bytes = 0")
        .proxy("echo", &upstream.url("/echo"))
        .start();
    let long = json!({"text": "x".repeat(500)}).to_string();
    let tasks: Vec<String> = (0..4).map(|_| gateway.create("echo", &long)).collect();
    for task in &tasks {
        gateway.wait_for(task, "COMPLETED");
        assert_eq!(gateway.result(task).expect(200).text(), long);
    }
    let answer = |task: &str| find(&gateway.data().join("blobs"), task).expect("it is in a blob");
    fs::write(answer(&tasks[0]), long.replace('x', "y")).expect("it can be altered");
    fs::write(answer(&tasks[1]), "{").expect("it can be cut");
    fs::remove_file(answer(&tasks[2])).expect("it can be removed");
    for task in &tasks[..3] {
        gateway
            .result(task)
            .expect_error(404, "ASYNC_RESPONSE_IS_CORRUPTED");
        assert_eq!(gateway.status(task)["status"], "COMPLETED");
    }
    assert_eq!(gateway.result(&tasks[3]).expect(200).text(), long);
}

#[test]
fn a_body_that_is_gone_ends_its_task() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 1\n[tasks]\ninline_bytes = 0")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let first = gateway.create("slow", "{}");
    gateway.wait_for(&first, "PROCESSING");
    let long = json!({"text": "x".repeat(500)}).to_string();
    let (lost, altered) = (gateway.create("slow", &long), gateway.create("slow", &long));
    let body = |task: &str| find(&gateway.data().join("blobs"), task).expect("it is in a blob");
    fs::remove_file(body(&lost)).expect("it can be removed");
    fs::write(body(&altered), "{}").expect("it can be altered");
    upstream.release();
    for task in [&lost, &altered] {
        gateway.wait_for(task, "CANCELED");
        gateway
            .result(task)
            .expect_error(404, "ASYNC_REQUEST_BODY_WAS_LOST");
    }
}

#[test]
fn answers_expire() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[tasks]\nanswer_ttl_days = 0.00001\nlease_s = 1\ninline_bytes = 1000")
        .proxy("echo", &upstream.url("/echo"))
        .start();
    let short = gateway.create("echo", "{}");
    gateway.wait_for(&short, "COMPLETED");
    // The large result is stored in a file, the small one in the database.
    for size in [2000, 500] {
        let long = json!({"text": "x".repeat(size)}).to_string();
        let task = gateway.create("echo", &long);
        gateway.wait_for(&task, "COMPLETED");
        gateway.until(|| gateway.result(&task).status == 404);
        gateway.until(|| find(&gateway.data().join("blobs"), &task).is_none());
        assert_eq!(gateway.result(&task).status, 404);
        assert_eq!(gateway.status(&task)["status"], "COMPLETED");
    }
    // Short answers are stored in the record.
    gateway.result(&short).expect(200);
}

#[test]
fn a_kill_loses_nothing_that_was_accepted() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 2")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let tasks: Vec<String> = (0..5).map(|_| gateway.create("slow", "{}")).collect();
    gateway.wait_for(&tasks[1], "PROCESSING");
    let canceled = gateway.create("slow", "{}");
    gateway
        .post(&format!("{}/cancel", task_path(&canceled)), "")
        .expect(200);
    let gateway = gateway.kill_and_restart();
    upstream.release();
    for task in &tasks {
        gateway.wait_for(task, "COMPLETED");
        gateway.result(task).expect(200);
    }
    assert_eq!(gateway.status(&canceled)["status"], "CANCELED");
}

#[test]
fn a_task_whose_process_dies_three_times_is_given_up() {
    let upstream = Upstream::start();
    let mut gateway = Setup::new().proxy("slow", &upstream.url("/hold")).start();
    let task = gateway.create("slow", "{}");
    for round in 1..=3 {
        gateway.wait_for(&task, "PROCESSING");
        gateway.until(|| upstream.seen() == round);
        gateway = gateway.kill_and_restart();
    }
    let ended = gateway.status(&task);
    assert_eq!(ended["status"], "CANCELED");
    gateway
        .result(&task)
        .expect_error(503, "mlp-action.common.service-unavailable");
}

#[test]
fn a_server_that_is_asked_to_stop_lets_tasks_end_and_keeps_the_rest() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 1\n[timeouts]\ngrace_s = 0.2")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let task = gateway.create("slow", "{}");
    gateway.until(|| upstream.seen() == 1);
    let (code, log, directory) = gateway.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("stopped"), "{log}");
    let database = rusqlite::Connection::open(directory.path().join("data/pkgtool.db"));
    let states: Vec<(String, i64)> = {
        let database = database.expect("it opens");
        let mut read = database
            .prepare("SELECT hex(id), status FROM task")
            .expect("a table");
        let rows = read
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .expect("rows");
        rows.map(|row| row.expect("a row")).collect()
    };
    assert_eq!(
        states,
        [(task.replace('-', "").to_uppercase(), 0)],
        "it waits again"
    );
}

/// Finds the file below a directory whose name contains this text.
pub(super) fn find(directory: &Path, text: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find_map(|path| {
            if path.is_dir() {
                return find(&path, text);
            }
            let name = path.file_name()?.to_str()?.to_owned();
            name.contains(text).then_some(path)
        })
}
