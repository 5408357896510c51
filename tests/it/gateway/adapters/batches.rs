//! Tests of files and batches: requests of a file that run when nothing else does.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{STANDARD, post, say, with_chat};
use crate::gateway::examples;
use crate::support::gateway::{Gateway, ON_POSTGRES, Setup};
use crate::support::http::{Reply, request};

/// Number of requests, and of kills, in the test that kills the server.
const LINES: usize = 2000;
const KILLS: usize = 12;

/// Sends a request to the adapters with a key.
fn send(gateway: &Gateway, key: &str, (method, path): (&str, &str), body: &[u8]) -> Reply {
    let bearer = format!("Bearer {key}");
    let path = format!("{STANDARD}{path}");
    let mut headers = vec![("authorization", bearer.as_str())];
    if body.starts_with(b"--cut") {
        headers.push(("content-type", "multipart/form-data; boundary=cut"));
    }
    request(gateway.address, method, &path, &headers, body)
}

fn get(gateway: &Gateway, path: &str) -> Reply {
    send(gateway, &gateway.key, ("GET", path), b"")
}

/// Returns a form with these parts; the part `file` has a name.
fn form(parts: &[(&str, &str)]) -> Vec<u8> {
    let parts = parts.iter().map(|(name, content)| {
        let file = if *name == "file" {
            "; filename=\"lines.jsonl\""
        } else {
            ""
        };
        format!(
            "--cut\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n"
        )
    });
    format!("{}--cut--\r\n", parts.collect::<String>()).into_bytes()
}

pub(crate) fn line(id: &str, endpoint: &str, body: &Value) -> String {
    json!({"custom_id": id, "method": "POST", "url": endpoint, "body": body}).to_string()
}

/// Uploads lines and returns the file's id.
#[track_caller]
fn upload(gateway: &Gateway, lines: &[String]) -> String {
    let form = form(&[("purpose", "batch"), ("file", &lines.join("\n"))]);
    let file = send(gateway, &gateway.key, ("POST", "/files"), &form).expect(200);
    file.json()["id"].as_str().expect("an id").to_owned()
}

fn ask_for(gateway: &Gateway, file: &str, endpoint: &str) -> Reply {
    let body = json!({
        "input_file_id": file, "endpoint": endpoint, "completion_window": "24h",
        "metadata": {"run": "7"},
    });
    post(gateway, &format!("{STANDARD}/batches"), &body.to_string())
}

/// Creates a batch and returns its path.
#[track_caller]
pub(crate) fn create(gateway: &Gateway, lines: &[String], endpoint: &str) -> String {
    let file = upload(gateway, lines);
    let batch = ask_for(gateway, &file, endpoint).expect(200).json();
    assert_eq!(batch["status"], "validating");
    format!("/batches/{}", batch["id"].as_str().expect("an id"))
}

/// Asks to cancel a batch.
fn cancel(gateway: &Gateway, batch: &str) -> Reply {
    let path = format!("{batch}/cancel");
    send(gateway, &gateway.key, ("POST", &path), b"")
}

/// Waits until a batch has this status.
#[track_caller]
pub(crate) fn wait_for(gateway: &Gateway, batch: &str, status: &str) -> Value {
    let read = || get(gateway, batch).expect(200).json();
    gateway.until(|| read()["status"] == status);
    read()
}

/// Returns the lines of a batch's file by their ids, and fails if an id occurs twice.
#[track_caller]
fn lines_of(gateway: &Gateway, batch: &Value, file: &str) -> BTreeMap<String, Value> {
    let Some(id) = batch[file].as_str() else {
        return BTreeMap::new();
    };
    let content = get(gateway, &format!("/files/{id}/content")).expect(200);
    let mut lines = BTreeMap::new();
    for line in content.text().lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let id = line["custom_id"].as_str().expect("a text").to_owned();
        assert!(
            lines.insert(id.clone(), line).is_none(),
            "{id} is there twice"
        );
    }
    lines
}

#[test]
fn a_batch_has_the_answers_of_single_requests() {
    let (gateway, _server) = with_chat(Setup::new());
    let chat = "/v1/chat/completions";
    let lines = [
        line("one", chat, &say("local/chat", "hello there")),
        line("unknown", chat, &say("local/nothing", "hello")),
        line("told", chat, &say("local/chat", "!status 418")),
        line("odd", chat, &say("local/chat", "!odd")),
        line(
            "ünï\"code",
            chat,
            &say("local/chat", "line\nbreak \u{1F600}"),
        ),
    ];
    let path = create(&gateway, &lines, chat);
    let batch = wait_for(&gateway, &path, "completed");
    assert_eq!(
        batch["request_counts"],
        json!({"total": 5, "completed": 3, "failed": 2})
    );
    assert_eq!(batch["metadata"], json!({"run": "7"}));
    assert_eq!(batch["endpoint"], chat);
    for time in [
        "created_at",
        "in_progress_at",
        "finalizing_at",
        "completed_at",
    ] {
        assert!(batch[time].as_i64().is_some(), "{time}");
    }
    assert_eq!(batch["errors"], Value::Null);
    let answers = lines_of(&gateway, &batch, "output_file_id");
    let names: Vec<&String> = answers.keys().collect();
    assert_eq!(names, ["odd", "one", "ünï\"code"]);
    let one = &answers["one"]["response"];
    assert_eq!(one["status_code"], 200);
    assert_eq!(answers["one"]["error"], Value::Null);
    let text = &one["body"]["choices"][0]["message"]["content"];
    assert_eq!(*text, "You said: hello there");
    assert_eq!(answers["odd"]["response"]["body"], json!({"odd": true}));
    let failures = lines_of(&gateway, &batch, "error_file_id");
    let unknown = &failures["unknown"]["response"];
    assert_eq!(unknown["status_code"], 404);
    assert_eq!(unknown["body"]["error"]["param"], "model");
    assert_eq!(failures["told"]["response"]["status_code"], 418);
    assert_eq!(
        failures["told"]["response"]["body"]["error"]["code"],
        "told"
    );
    assert_eq!(failures.len(), 2);
    // Each answer is counted as usage of the account.
    gateway.until(|| {
        let usage = gateway.get("/api/mlpcore/account/local/usage");
        usage.expect(200).json()["total"]["requests"] == 3
    });
    assert!(gateway.metrics().contains("operation=\"batch\""));
}

#[test]
fn every_endpoint_has_batches() {
    let (gateway, _server) = with_chat(Setup::new());
    let cases = [
        (
            "/v1/responses",
            json!({"model": "local/chat", "input": "hello"}),
            "/output/0/content/0/text",
        ),
        (
            "/v1/completions",
            json!({"model": "local/chat", "prompt": "hello"}),
            "/choices/0/text",
        ),
        (
            "/v1/embeddings",
            json!({"model": "local/chat", "input": ["a", "b"]}),
            "/data/0/embedding",
        ),
    ];
    for (endpoint, body, place) in cases {
        let path = create(&gateway, &[line("a", endpoint, &body)], endpoint);
        let batch = wait_for(&gateway, &path, "completed");
        let answers = lines_of(&gateway, &batch, "output_file_id");
        let body = &answers["a"]["response"]["body"];
        assert!(body.pointer(place).is_some(), "{endpoint}: {body}");
        assert_eq!(batch["error_file_id"], Value::Null);
    }
    let list = get(&gateway, "/batches?limit=2").expect(200).json();
    assert_eq!(list["has_more"], true);
    assert_eq!(list["first_id"], "batch_3");
    let next = get(&gateway, "/batches?limit=2&after=batch_2")
        .expect(200)
        .json();
    assert_eq!(
        (&next["has_more"], &next["last_id"]),
        (&json!(false), &json!("batch_1"))
    );
    let files = get(&gateway, "/files?purpose=batch_output&order=asc").expect(200);
    assert_eq!(files.json()["data"].as_array().map(Vec::len), Some(3));
}

#[test]
fn each_line_is_answered_once_through_kills() {
    let mut gateway = Setup::new()
        .packages(examples().join("hush-sentence"))
        .start();
    let endpoint = "/v1/embeddings";
    let body = |number: usize| json!({"model": "local/hush_sentence", "input": format!("number {number}")});
    let lines: Vec<String> = (0..LINES)
        .map(|number| line(&number.to_string(), endpoint, &body(number)))
        .collect();
    let path = create(&gateway, &lines, endpoint);
    let done = |gateway: &Gateway| {
        let batch = get(gateway, &path).expect(200).json();
        let counts = &batch["request_counts"];
        counts["completed"].as_u64().unwrap_or(0) + counts["failed"].as_u64().unwrap_or(0)
    };
    for kill in 0..KILLS {
        // Each time a little further, and sometimes at once.
        let target = ((LINES * kill) / (KILLS + 1)) as u64;
        gateway.until(|| done(&gateway) >= target);
        std::thread::sleep(Duration::from_millis(37 * kill as u64 % 200));
        gateway = gateway.kill_and_restart();
    }
    let batch = wait_for(&gateway, &path, "completed");
    assert_eq!(
        batch["request_counts"],
        json!({"total": LINES, "completed": LINES, "failed": 0})
    );
    let answers = lines_of(&gateway, &batch, "output_file_id");
    assert_eq!(answers.len(), LINES);
    assert_eq!(batch["error_file_id"], Value::Null);
    for number in [0, LINES / 2, LINES - 1] {
        let single = post(
            &gateway,
            &format!("{STANDARD}/embeddings"),
            &body(number).to_string(),
        );
        let single = single.expect(200).json();
        let answer = &answers[&number.to_string()]["response"]["body"];
        let vector = |answer: &Value| -> Vec<f64> {
            let values = answer["data"][0]["embedding"].as_array().expect("a list");
            values.iter().filter_map(Value::as_f64).collect()
        };
        let (one, other) = (vector(answer), vector(&single));
        assert!(one.len() == other.len() && !one.is_empty());
        // Texts that share a run differ in the last bits.
        let pairs = one.iter().zip(&other);
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5));
    }
    if std::env::var_os(ON_POSTGRES).is_some() {
        return;
    }
    // The answers are in the file alone.
    gateway.until(|| {
        let database = rusqlite::Connection::open(gateway.data().join("pkgtool.db"));
        let left = database.and_then(|database| {
            database.query_row("SELECT count(*) FROM batch_line", [], |row| {
                row.get::<_, i64>(0)
            })
        });
        left.is_ok_and(|left| left == 0)
    });
}

#[test]
fn models_of_batches_have_a_low_priority_and_leave() {
    let gateway = Setup::new()
        .packages(examples().join("hush-sentence"))
        .start();
    let endpoint = "/v1/embeddings";
    let body = json!({"model": "local/hush_sentence", "input": "a"});
    post(
        &gateway,
        &format!("{STANDARD}/embeddings"),
        &body.to_string(),
    )
    .expect(200);
    let path = create(&gateway, &[line("a", endpoint, &body)], endpoint);
    wait_for(&gateway, &path, "completed");
    // The policies of Linux: 0 is the usual one, 5 is for processes that run when no other wants to.
    let policies = || {
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").expect("Linux").flatten() {
            let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            // The name in parentheses may have spaces.
            let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
            let fields: Vec<&str> = after.split_whitespace().collect();
            let is_child = fields.get(1) == Some(&gateway.process().to_string().as_str());
            if is_child && fields.first() != Some(&"Z") {
                found.push(fields[38].to_owned());
            }
        }
        found.sort();
        found
    };
    // A model and a parser of each.
    assert_eq!(policies(), ["0", "0", "5", "5"]);
    let start = Instant::now();
    gateway.until(|| policies().iter().filter(|it| *it == "5").count() == 1);
    assert!(
        start.elapsed() > Duration::from_secs(20),
        "it left too early"
    );
}

#[test]
fn an_invalid_input_fails_with_its_lines() {
    let (gateway, server) = with_chat(Setup::new());
    let chat = "/v1/chat/completions";
    let good = line("a", chat, &say("local/chat", "hello"));
    let lines = [
        good.clone(),
        "{".to_owned(),
        good,
        line("b", "/v1/x", &json!({})),
    ];
    let batch = wait_for(&gateway, &create(&gateway, &lines, chat), "failed");
    let faults = batch["errors"]["data"].as_array().expect("a list");
    let faults: Vec<_> = faults
        .iter()
        .map(|fault| (fault["line"].as_u64(), fault["code"].as_str()))
        .collect();
    assert_eq!(
        faults,
        [
            (Some(2), Some("invalid_json_line")),
            (Some(3), Some("duplicate_custom_id")),
            (Some(4), Some("invalid_url"))
        ]
    );
    assert!(batch["failed_at"].as_i64().is_some());
    assert_eq!(batch["output_file_id"], Value::Null);
    let empty = wait_for(&gateway, &create(&gateway, &[], chat), "failed");
    assert_eq!(empty["errors"]["data"][0]["code"], "empty_file");
    assert_eq!(server.left(), 0, "nothing ran");
}

#[test]
fn a_canceled_batch_keeps_its_answers_through_a_restart() {
    let (gateway, server) = with_chat(Setup::new().settings("batches.running = 1"));
    let chat = "/v1/chat/completions";
    let lines = [
        line("a", chat, &say("local/chat", "first")),
        line("b", chat, &say("local/chat", "!status 400")),
        line("c", chat, &say("local/chat", "!stay")),
        line("d", chat, &say("local/chat", "last")),
    ];
    let path = create(&gateway, &lines, chat);
    let counts =
        |gateway: &Gateway| get(gateway, &path).expect(200).json()["request_counts"].clone();
    let two = json!({"total": 4, "completed": 1, "failed": 1});
    gateway.until(|| counts(&gateway) == two);
    // A second batch of the account waits, and its cancel need not wait for the first.
    let second = create(&gateway, &lines[..1], chat);
    wait_for(&gateway, &second, "in_progress");
    let canceled = cancel(&gateway, &second);
    assert_eq!(canceled.expect(200).json()["status"], "cancelling");
    let second = wait_for(&gateway, &second, "cancelled");
    assert_eq!(lines_of(&gateway, &second, "error_file_id").len(), 1);
    let gateway = gateway.kill_and_restart();
    assert_eq!(counts(&gateway), two);
    cancel(&gateway, &path).expect(200);
    let batch = wait_for(&gateway, &path, "cancelled");
    assert!(batch["cancelling_at"].is_i64() && batch["cancelled_at"].is_i64());
    let answers = lines_of(&gateway, &batch, "output_file_id");
    let names: Vec<&String> = answers.keys().collect();
    assert_eq!(names, ["a"]);
    let failures = lines_of(&gateway, &batch, "error_file_id");
    let names: Vec<&String> = failures.keys().collect();
    assert_eq!(names, ["b", "c", "d"]);
    assert_eq!(failures["b"]["response"]["status_code"], 400);
    assert_eq!(failures["d"]["error"]["code"], "batch_cancelled");
    // A cancel after the end changes nothing.
    let again = cancel(&gateway, &path);
    assert_eq!(again.expect(200).json()["status"], "cancelled");
    drop(server);
}

#[test]
fn limits_delay_a_request_of_a_batch() {
    let (gateway, server) = with_chat(Setup::new());
    let chat = "/v1/chat/completions";
    // The upstream rejects the request until it may pass.
    let lines = [line("a", chat, &say("local/chat", "!status 429"))];
    let path = create(&gateway, &lines, chat);
    gateway.until(|| server.seen().len() >= 3);
    assert_eq!(
        get(&gateway, &path).expect(200).json()["status"],
        "in_progress"
    );
    let single = post(
        &gateway,
        &format!("{STANDARD}/chat/completions"),
        &say("local/chat", "hi").to_string(),
    );
    single.expect(200);
    cancel(&gateway, &path).expect(200);
    wait_for(&gateway, &path, "cancelled");
}

#[test]
fn accounts_see_only_their_own_files_and_batches() {
    let (gateway, _server) = with_chat(Setup::new());
    gateway.account("other", 100);
    let other = gateway.new_key("other", "k", "predict");
    let chat = "/v1/chat/completions";
    let lines = [line("a", chat, &say("local/chat", "hello"))];
    let file = upload(&gateway, &lines);
    let batch = ask_for(&gateway, &file, chat).expect(200).json();
    let batch = batch["id"].as_str().expect("an id");
    wait_for(&gateway, &format!("/batches/{batch}"), "completed");
    for (method, path) in [
        ("GET", format!("/files/{file}")),
        ("GET", format!("/files/{file}/content")),
        ("DELETE", format!("/files/{file}")),
        ("GET", format!("/batches/{batch}")),
        ("POST", format!("/batches/{batch}/cancel")),
    ] {
        let reply = send(&gateway, &other, (method, &path), b"");
        reply.expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
        send(&gateway, "pk_wrong", (method, &path), b"").expect(401);
    }
    let body = json!({"input_file_id": file, "endpoint": chat, "completion_window": "24h"});
    let stolen = send(
        &gateway,
        &other,
        ("POST", "/batches"),
        body.to_string().as_bytes(),
    );
    stolen.expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    for list in ["/files", "/batches"] {
        let list = send(&gateway, &other, ("GET", list), b"")
            .expect(200)
            .json();
        assert_eq!(list["data"], json!([]));
    }
    let reading = gateway.new_key("local", "reader", "read");
    send(&gateway, &reading, ("GET", "/files"), b"").expect_error(403, "TOKEN_PERMISSION_REQUIRED");
}

#[test]
fn wrong_requests_name_their_field() {
    let settings = "[batches]\nfile_bytes = 2000\nfiles = 2\nopen = 1\nrunning = 1";
    let (gateway, _server) = with_chat(Setup::new().settings(settings));
    let chat = "/v1/chat/completions";
    let good = line("a", chat, &say("local/chat", "!stay"));
    let place = |reply: &Reply| reply.json()["error"]["param"].clone();
    let big = "x".repeat(70_000);
    for (parts, status, param) in [
        (vec![("file", "x")], 400, json!("purpose")),
        (vec![("purpose", "batch")], 400, json!("file")),
        (
            vec![("purpose", "assistants"), ("file", "x")],
            400,
            json!("purpose"),
        ),
        (
            vec![
                ("purpose", "batch"),
                ("expires_after[seconds]", "-1"),
                ("file", "x"),
            ],
            400,
            json!("expires_after.seconds"),
        ),
        (
            vec![("purpose", big.as_str()), ("file", "x")],
            413,
            Value::Null,
        ),
    ] {
        let reply = send(&gateway, &gateway.key, ("POST", "/files"), &form(&parts));
        let reply = reply.expect(status);
        assert_eq!(place(&reply), param, "{}", reply.text());
    }
    send(&gateway, &gateway.key, ("POST", "/files"), b"{}").expect(400);
    send(
        &gateway,
        &gateway.key,
        ("POST", "/files"),
        b"--cut\r\nbroken",
    )
    .expect(400);
    let file = upload(&gateway, &[good]);
    let right = json!({"input_file_id": file, "endpoint": chat, "completion_window": "24h"});
    let many: BTreeMap<String, &str> = (0..17).map(|n| (n.to_string(), "x")).collect();
    for (field, value, status) in [
        ("input_file_id", json!("file-99"), 404),
        ("input_file_id", json!("12"), 404),
        ("endpoint", json!("/v1/audio"), 400),
        ("completion_window", json!("1h"), 400),
        ("metadata", json!(many), 400),
    ] {
        let mut body = right.clone();
        body[field] = value;
        let reply = post(&gateway, &format!("{STANDARD}/batches"), &body.to_string());
        let reply = reply.expect(status);
        assert_eq!(place(&reply), field, "{}", reply.text());
    }
    for body in ["", "[]", "{}", "{\"input_file_id\": 1}", &"[".repeat(5000)] {
        post(&gateway, &format!("{STANDARD}/batches"), body).expect(400);
    }
    let batch = post(&gateway, &format!("{STANDARD}/batches"), &right.to_string());
    let batch = batch.expect(200).json()["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let second = post(&gateway, &format!("{STANDARD}/batches"), &right.to_string());
    second.expect_error(409, "TOO_MANY_BATCHES");
    let needed = send(
        &gateway,
        &gateway.key,
        ("DELETE", &format!("/files/{file}")),
        b"",
    );
    assert!(
        needed
            .expect_error(409, "FILE_IS_NEEDED")
            .text()
            .contains(&batch)
    );
    upload(&gateway, &["x".to_owned()]);
    let third = send(
        &gateway,
        &gateway.key,
        ("POST", "/files"),
        &form(&[("purpose", "batch"), ("file", "x")]),
    );
    third.expect_error(409, "TOO_MANY_FILES");
    for query in ["limit=0", "limit=-1", "limit=x", "order=up", "purpose=x"] {
        get(&gateway, &format!("/files?{query}")).expect(400);
    }
    for id in [
        "file-",
        "file-x",
        "file-0",
        "batch_1",
        "file-99999999999999999999",
    ] {
        get(&gateway, &format!("/files/{id}")).expect(404);
    }
}

#[test]
fn files_expire_and_backups_have_them() {
    let (gateway, _server) = with_chat(Setup::new());
    let file = upload(&gateway, &["kept".to_owned()]);
    let parts = [
        ("purpose", "batch"),
        ("expires_after[seconds]", "1"),
        ("file", "x"),
    ];
    let short = send(&gateway, &gateway.key, ("POST", "/files"), &form(&parts)).expect(200);
    let short = short.json()["id"].as_str().expect("an id").to_owned();
    let backup = gateway.data().with_file_name("backup");
    gateway
        .command(&["admin", "backup", &backup.display().to_string()])
        .expect_code(0);
    let files = |root: &std::path::Path| {
        walkdir::WalkDir::new(root.join("blobs/file"))
            .into_iter()
            .flatten()
            .filter(|it| it.file_type().is_file())
            .count()
    };
    assert_eq!(files(&backup), 2);
    gateway.until(|| get(&gateway, &format!("/files/{short}")).status == 404);
    gateway.until(|| files(&gateway.data()) == 1);
    get(&gateway, &format!("/files/{file}/content")).expect(200);
    let deleted = send(
        &gateway,
        &gateway.key,
        ("DELETE", &format!("/files/{file}")),
        b"",
    );
    assert_eq!(deleted.expect(200).json()["deleted"], true);
    assert_eq!(files(&gateway.data()), 0);
}
