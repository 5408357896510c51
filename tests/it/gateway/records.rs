//! Tests of task deletion: by users, by age, by an operator, and by the limit on kept tasks.

use serde_json::json;

use super::PREFIXES;
use super::tasks::find;
use crate::support::gateway::{Setup, task_path};
use crate::support::http::Upstream;

#[test]
fn a_task_that_has_ended_is_deleted_with_its_answer() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[tasks]\ninline_bytes = 1000")
        .proxy("echo", &upstream.url("/echo"))
        .start();
    for (prefix, size) in PREFIXES.iter().zip([2, 500, 2000]) {
        let task = gateway.create("echo", json!({"text": "x".repeat(size)}).to_string());
        gateway.wait_for(&task, "COMPLETED");
        gateway.result(&task).expect(200);
        let kept = find(&gateway.data().join("blobs"), &task);
        assert_eq!(kept.is_some(), size > 1000);
        let path = format!("{prefix}/account/1/async/task/{task}");
        let deleted = gateway.send("DELETE", &path, "").expect(200);
        assert!(deleted.body.is_empty());
        assert_eq!(find(&gateway.data().join("blobs"), &task), None);
        for (method, path) in [
            ("DELETE", path.clone()),
            ("GET", path.clone()),
            ("GET", format!("{path}/response")),
            ("POST", format!("{path}/cancel")),
        ] {
            let gone = gateway.send(method, &path, "");
            gone.expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
        }
    }
    let listed = gateway.get("/api/mlpgateway/account/local/async/task");
    assert_eq!(listed.expect(200).json(), json!([]));
    let unknown = task_path("0199d0d0-0000-7000-8000-000000000000");
    let gone = gateway.send("DELETE", &unknown, "");
    gone.expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
}

#[test]
fn a_task_that_has_not_ended_is_not_deleted() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 1")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let (running, waiting) = (gateway.create("slow", "{}"), gateway.create("slow", "{}"));
    gateway.wait_for(&running, "PROCESSING");
    for task in [&running, &waiting] {
        let refused = gateway.send("DELETE", &task_path(task), "");
        let refused = refused.expect_error(409, "ASYNC_TASK_IS_NOT_FINISHED");
        assert!(refused.text().contains("cancel it first"));
        gateway
            .post(&format!("{}/cancel", task_path(task)), "")
            .expect(200);
        gateway.send("DELETE", &task_path(task), "").expect(200);
    }
    upstream.release();
    let third = gateway.create("slow", "{}");
    gateway.wait_for(&third, "COMPLETED");
    gateway.get(&task_path(&running)).expect(404);
}

#[test]
fn only_the_tasks_own_account_deletes_it_and_only_with_the_right_to_write() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    gateway.account("other", 9);
    let stranger = gateway.new_key("other", "all", "predict,read,write");
    let reader = gateway.new_key("local", "reads", "predict,read");
    let task = gateway.create("echo", "{}");
    gateway.wait_for(&task, "COMPLETED");
    let path = task_path(&task);
    let delete = |key: &str, path: &str| gateway.send_with(key, "DELETE", path, "");
    delete("", &path).expect(401);
    delete(&reader, &path).expect_error(403, "TOKEN_PERMISSION_REQUIRED");
    delete(&stranger, &path).expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_DENIED");
    let own = path.replace("/local/", "/other/");
    delete(&stranger, &own).expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_DENIED");
    gateway.result(&task).expect(200);
    delete(&gateway.key, &path).expect(200);
}

#[test]
fn records_end_by_age() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 1\n[tasks]\nrecord_ttl_days = 0.00002\nlease_s = 1\ninline_bytes = 1000")
        .proxy("slow", &upstream.url("/hold"))
        .proxy("echo", &upstream.url("/echo"))
        .start();
    let tasks: Vec<String> = [2, 500, 2000]
        .map(|size| gateway.create("echo", json!({"text": "x".repeat(size)}).to_string()))
        .into();
    gateway.until(|| {
        let gone = |task: &String| gateway.get(&task_path(task)).status == 404;
        tasks.iter().all(gone)
    });
    for task in &tasks {
        gateway.until(|| find(&gateway.data().join("blobs"), task).is_none());
        let gone = gateway.result(task);
        gone.expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    }
    // Age removes only tasks that have ended.
    let running = gateway.create("slow", "{}");
    let waiting = gateway.create("slow", "{}");
    gateway.wait_for(&running, "PROCESSING");
    let later = gateway.create("echo", "{}");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(gateway.status(&running)["status"], "PROCESSING");
    assert_eq!(gateway.status(&waiting)["status"], "QUEUED");
    upstream.release();
    gateway.until(|| gateway.get(&task_path(&later)).status == 404);
}

#[test]
fn a_refusal_for_what_is_stored_says_what_to_do() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nstored_tasks = 2\nstored_bytes = 3000")
        .proxy("echo", &upstream.url("/echo"))
        .start();
    let path = "/api/mlpgateway/account/local/model/echo/async/predict";
    let first = gateway.create("echo", json!({"text": "x".repeat(2000)}).to_string());
    gateway.wait_for(&first, "COMPLETED");
    let large = json!({"text": "x".repeat(1500)}).to_string();
    let refused = gateway.post(path, &large);
    let refused = refused.expect_error(429, "STORED_BYTES_LIMIT_EXCEEDED");
    assert!(refused.text().contains("DELETE"), "{}", refused.text());
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert_eq!(refused.header("retry-after"), None);
    assert_eq!(refused.json()["error"]["args"]["limit"], 3000);
    let second = gateway.create("echo", "{}");
    gateway.wait_for(&second, "COMPLETED");
    gateway
        .post(path, "{}")
        .expect_error(429, "TOO_MANY_STORED_TASKS");
    gateway.send("DELETE", &task_path(&first), "").expect(200);
    gateway.post(path, &large).expect(200);
    // The server counts the tasks again when it starts.
    let gateway = gateway.kill_and_restart();
    gateway
        .post(path, "{}")
        .expect_error(429, "TOO_MANY_STORED_TASKS");
    gateway.send("DELETE", &task_path(&second), "").expect(200);
    gateway.post(path, "{}").expect(200);
}

#[test]
fn a_clock_that_jumped_ahead_deletes_nothing() {
    const YEARS: i64 = 3 * 365 * 24 * 3600 * 1000;
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    let task = gateway.create("echo", "{}");
    gateway.wait_for(&task, "COMPLETED");
    // All records become three years older, which equals a clock three years ahead.
    let age = |data: &std::path::Path| {
        let database = rusqlite::Connection::open(data.join("pkgtool.db")).expect("it opens");
        let sql = "UPDATE task SET created_at = created_at - ?1, completed_at = completed_at - ?1";
        database.execute(sql, [YEARS]).expect("it is changed");
        let clock = data.join("retention.json");
        let text = std::fs::read_to_string(&clock).expect("it is there");
        let mut kept: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        kept["seen"] = json!(kept["seen"].as_i64().expect("a moment") - YEARS);
        std::fs::write(clock, kept.to_string()).expect("it is written");
    };
    let gateway = gateway.stop_and_change(age);
    gateway.line(|line| {
        let message = line["message"].as_str().unwrap_or_default();
        message.contains("the system clock is ahead")
    });
    // Housekeeping runs at the start.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(gateway.status(&task)["status"], "COMPLETED");
    // The next start, which sees no jump of the clock, keeps it too.
    let gateway = gateway.kill_and_restart();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(gateway.status(&task)["status"], "COMPLETED");
}
