//! Tests of `pkgtool admin`: status, deletion of tasks, and backups that another server can
//! continue from.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, Setup, task_path};
use crate::support::http::Upstream;
use crate::support::run::pkgtool;

/// Prepares a server with the services `echo` and `slow`; one task may run at a time.
fn server(upstream: &Upstream, settings: &str) -> Gateway {
    setup(upstream, settings).start()
}

fn setup(upstream: &Upstream, settings: &str) -> Setup {
    Setup::new()
        .settings(&format!("[limits]\nrunning = 1\n{settings}"))
        .proxy("echo", &upstream.url("/echo"))
        .proxy("slow", &upstream.url("/hold"))
}

/// Returns a unique request body of about `size` bytes.
fn body(size: usize, number: usize) -> String {
    json!({"text": format!("{number}-{}", "x".repeat(size))}).to_string()
}

/// Creates a task as soon as the account's rate limit allows it.
fn create(gateway: &Gateway, service: &str, body: &str) -> String {
    let path = format!("/api/mlpgateway/account/local/model/{service}/async/predict");
    let mut made = None;
    gateway.until(|| {
        let reply = gateway.post(&path, body);
        if reply.status != 429 {
            made = Some(reply.expect(200).json());
        }
        made.is_some()
    });
    let made = made.expect("it was made");
    made.as_str().expect("an id").to_owned()
}

fn status(gateway: &Gateway) -> Value {
    let shown = gateway.command(&["admin", "status", "--json"]);
    shown.expect_code(0).json()
}

#[test]
fn the_users_data_directory_is_the_default() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().to_str().expect("a plain path");
    let run = |arguments: &[&str]| {
        let run = pkgtool(arguments);
        run.variable("XDG_DATA_HOME", path).run()
    };
    let arguments = ["accounts", "create", "--name", "acme", "--rps", "5"];
    run(&arguments).expect_code(0);
    assert!(home.path().join("pkgtool/pkgtool.db").is_file());
    let listed = run(&["accounts", "list"]).expect_code(0);
    assert!(listed.stdout.contains("acme"), "{}", listed.stdout);
    run(&["keys", "list"]).expect_code(0);
    let link = run(&["keys", "link"]).expect_code(0).stdout;
    assert!(
        link.starts_with("http://127.0.0.1:8080/#login=pc_"),
        "{link}"
    );
    run(&["admin", "status"]).expect_code(0);
}

#[test]
fn the_status_counts_what_is_stored() {
    let upstream = Upstream::start();
    let gateway = server(&upstream, "[tasks]\ninline_bytes = 1000");
    let empty = status(&gateway);
    assert_eq!(empty["oldestCreatedAt"], json!(null));
    assert_eq!(empty["blobs"], json!({"files": 0, "bytes": 0}));
    let long = body(3000, 1);
    let done = gateway.create("echo", &long);
    let ended = gateway.wait_for(&done, "COMPLETED");
    let canceled = gateway.create("slow", "{}");
    gateway
        .post(&format!("{}/cancel", task_path(&canceled)), "")
        .expect(200);
    let running = gateway.create("slow", "{}");
    gateway.wait_for(&running, "PROCESSING");
    for number in 0..3 {
        gateway.create("slow", body(3000, number));
    }
    let found = status(&gateway);
    let tasks = json!({"waiting": 3, "running": 1, "completed": 1, "canceled": 1});
    assert_eq!(found["tasks"], tasks);
    assert_eq!(found["oldestCreatedAt"], ended["createdAt"]);
    // The bodies of three tasks and one answer.
    let bytes = (0..3).map(|number| body(3000, number).len()).sum::<usize>() + long.len();
    assert_eq!(found["blobs"], json!({"files": 4, "bytes": bytes}));
    assert!(found["database"]["bytes"].as_u64() > Some(4096));
    assert!(found["diskFreeBytes"].as_u64() > Some(0));
    let text = gateway.command(&["admin", "status"]).expect_code(0).stdout;
    for line in [
        "waiting       3",
        "oldest task   20",
        "blobs         4 files, 11.",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[test]
fn no_command_makes_data_where_there_are_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("mistyped");
    let data = data.to_str().expect("a plain path");
    for command in [&["status"][..], &["purge"], &["backup", "/nowhere"]] {
        let run = pkgtool(["admin"].iter().chain(command).chain(&["--data-dir", data]));
        let ran = run.run().expect_code(3);
        assert!(ran.stderr.contains("--data-dir"), "{}", ran.stderr);
    }
    assert!(!Path::new(data).exists());
}

#[test]
fn a_purge_beside_a_running_server_deletes_what_has_ended() {
    let upstream = Upstream::start();
    let gateway = server(&upstream, "[tasks]\ninline_bytes = 1000");
    let rate = ["accounts", "set", "local", "--rps", "100000"];
    gateway.command(&rate).expect_code(0);
    let ended: Vec<String> = (0..120)
        .map(|number| create(&gateway, "echo", &body([10, 500, 2000][number % 3], number)))
        .collect();
    for task in &ended {
        gateway.wait_for(task, "COMPLETED");
    }
    let running = gateway.create("slow", "{}");
    gateway.wait_for(&running, "PROCESSING");
    let waiting = gateway.create("echo", body(2000, 7));
    // The setting's default of seven days applies.
    let purged = gateway.command(&["admin", "purge"]).expect_code(0);
    assert!(
        purged.stdout.starts_with("deleted 0 tasks"),
        "{}",
        purged.stdout
    );
    gateway.get(&task_path(&ended[0])).expect(200);
    let purged = gateway.command(&["admin", "purge", "--older-than", "0s"]);
    let purged = purged.expect_code(0);
    assert!(
        purged.stdout.starts_with("deleted 120 tasks"),
        "{}",
        purged.stdout
    );
    // A running server may cache a task for a second.
    for task in &ended {
        gateway.until(|| gateway.get(&task_path(task)).status == 404);
    }
    let left = status(&gateway);
    let tasks = json!({"waiting": 1, "running": 1, "completed": 0, "canceled": 0});
    assert_eq!(left["tasks"], tasks);
    assert_eq!(left["blobs"]["files"], 1);
    upstream.release();
    for task in [&running, &waiting] {
        gateway.wait_for(task, "COMPLETED");
    }
    let wrong = gateway.command(&["admin", "purge", "--older-than", "soon"]);
    assert!(wrong.expect_code(2).stderr.contains("such as 30m"));
}

#[test]
fn a_purge_keeps_what_the_settings_keep() {
    let upstream = Upstream::start();
    let gateway = server(&upstream, "");
    let task = gateway.create("echo", "{}");
    gateway.wait_for(&task, "COMPLETED");
    let settings = gateway.data().join("gateway.toml");
    fs::write(&settings, "[tasks]\nrecord_ttl_days = 0").expect("a file");
    let refused = gateway.command(&["admin", "purge"]).expect_code(2);
    assert!(
        refused.stderr.contains("--older-than"),
        "{}",
        refused.stderr
    );
    fs::write(&settings, "[tasks]\nrecord_ttl_days = 0.00000001").expect("a file");
    let purged = gateway.command(&["admin", "purge"]).expect_code(0);
    assert!(
        purged.stdout.starts_with("deleted 1 tasks"),
        "{}",
        purged.stdout
    );
}

/// Copies a directory the way that the README describes.
fn copy(from: &Path, into: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, into]).status();
    assert!(copied.expect("cp runs").success());
}

#[test]
fn a_backup_is_restored_with_all_tasks_and_results() {
    let upstream = Upstream::start();
    let settings = "[tasks]\ninline_bytes = 1000";
    let gateway = server(&upstream, settings);
    let rate = ["accounts", "set", "local", "--rps", "100000"];
    gateway.command(&rate).expect_code(0);
    fs::write(gateway.data().join("gateway.toml"), "# mine\n").expect("a file");
    // Bodies for each kind of storage: in the row, in the database, in a file.
    let bodies: Vec<String> = (0..30)
        .map(|number| body([5, 500, 2000][number % 3], number))
        .collect();
    let done: Vec<String> = bodies
        .iter()
        .map(|text| create(&gateway, "echo", text))
        .collect();
    for task in &done {
        gateway.wait_for(task, "COMPLETED");
    }
    let running = gateway.create("slow", body(2000, 100));
    gateway.wait_for(&running, "PROCESSING");
    let waiting: Vec<String> = (0..6)
        .map(|number| gateway.create("echo", body([5, 500, 2000][number % 3], number)))
        .collect();
    let home = tempfile::tempdir().expect("a directory");
    let backup = home.path().join("deep/backup");
    // The remains of an interrupted backup neither count nor block a new one.
    fs::create_dir_all(home.path().join("deep/backup.partial/blobs")).expect("a directory");
    let backup_name = backup.to_str().expect("a plain path");
    let made = gateway
        .command(&["admin", "backup", backup_name])
        .expect_code(0);
    assert!(
        made.stdout.contains("37 tasks (6 waiting, 1 running)"),
        "{}",
        made.stdout
    );
    assert!(!home.path().join("deep/backup.partial").exists());
    let again = gateway
        .command(&["admin", "backup", backup_name])
        .expect_code(2);
    assert!(again.stderr.contains("not empty"), "{}", again.stderr);
    // Later changes neither appear in the backup nor affect it.
    for task in &done {
        gateway.send("DELETE", &task_path(task), "").expect(200);
    }
    upstream.release();
    for task in waiting.iter().chain([&running]) {
        gateway.wait_for(task, "COMPLETED");
    }
    let marker = fs::read_to_string(backup.join("backup.json")).expect("a file");
    let marker: Value = serde_json::from_str(&marker).expect("JSON");
    assert_eq!(marker["tasks"]["completed"], 30);
    assert_eq!(marker["blobs"], 13);
    let key = gateway.key.clone();
    drop(gateway);
    let restored = setup(&upstream, settings).start_on(&key, |data| copy(&backup, data));
    assert!(restored.data().join("gateway.toml").is_file());
    for (task, text) in done.iter().zip(&bodies) {
        assert_eq!(restored.status(task)["status"], "COMPLETED");
        assert_eq!(restored.result(task).expect(200).text(), *text);
    }
    for (number, task) in waiting.iter().enumerate() {
        restored.wait_for(task, "COMPLETED");
        let text = body([5, 500, 2000][number % 3], number);
        assert_eq!(restored.result(task).expect(200).text(), text);
    }
    restored.wait_for(&running, "COMPLETED");
}

#[test]
fn a_backup_under_traffic_is_of_one_moment() {
    let upstream = Upstream::start();
    let settings = "[tasks]\ninline_bytes = 200";
    let gateway = server(&upstream, settings);
    let rate = ["accounts", "set", "local", "--rps", "100000"];
    gateway.command(&rate).expect_code(0);
    for number in 0..60 {
        create(&gateway, "echo", &body(500, number));
    }
    let home = tempfile::tempdir().expect("a directory");
    let stopped = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..3 {
            let (gateway, stopped) = (&gateway, &stopped);
            scope.spawn(move || {
                let mut number = client;
                while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                    let task = create(gateway, "echo", &body(500, number));
                    number += 3;
                    if number % 2 == 0 {
                        gateway.wait_for(&task, "COMPLETED");
                        gateway.send("DELETE", &task_path(&task), "").expect(200);
                    }
                }
            });
        }
        // Three backups, with traffic in between.
        for number in 0..3 {
            let into = home.path().join(number.to_string());
            let into = into.to_str().expect("a plain path");
            let made = gateway.command(&["admin", "backup", into]);
            assert_eq!(
                (made.code, made.stderr.as_str()),
                (0, ""),
                "{}",
                made.stdout
            );
        }
        stopped.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let key = gateway.key.clone();
    drop(gateway);
    let backup = home.path().join("2");
    let restored = setup(&upstream, settings).start_on(&key, |data| copy(&backup, data));
    restored.until(|| {
        let found = status(&restored);
        found["tasks"]["waiting"] == 0 && found["tasks"]["running"] == 0
    });
    let found = status(&restored);
    assert_eq!(found["tasks"]["canceled"], 0, "no body was lost");
    let listed = restored.get("/api/mlpgateway/account/local/async/task?limit=1000");
    let listed = listed.expect(200).json();
    let listed = listed.as_array().expect("a list");
    assert!(!listed.is_empty());
    for task in listed {
        let task = task["taskId"].as_str().expect("an id");
        restored.result(task).expect(200);
    }
}

#[test]
fn a_blob_that_was_lost_before_is_named_and_the_rest_is_there() {
    let upstream = Upstream::start();
    let gateway = server(&upstream, "[tasks]\ninline_bytes = 200");
    let tasks: Vec<String> = (0..3)
        .map(|number| gateway.create("echo", body(500, number)))
        .collect();
    for task in &tasks {
        gateway.wait_for(task, "COMPLETED");
    }
    let blob = |task: &str| {
        let shard = &task[task.len() - 2..];
        gateway
            .data()
            .join(format!("blobs/answer/{shard}/{task}.1"))
    };
    fs::remove_file(blob(&tasks[0])).expect("it is there");
    fs::write(blob(&tasks[1]), "altered").expect("it is there");
    let home = tempfile::tempdir().expect("a directory");
    let into = home.path().join("backup");
    let made = gateway.command(&["admin", "backup", into.to_str().expect("a plain path")]);
    let made = made.expect_code(1);
    for (number, task) in tasks.iter().enumerate() {
        assert_eq!(
            made.stderr.contains(task.as_str()),
            number < 2,
            "{}",
            made.stderr
        );
    }
    assert!(into.join("backup.json").is_file());
}

#[test]
fn nothing_that_a_backup_may_need_is_removed_while_it_copies() {
    let upstream = Upstream::start();
    let gateway = server(&upstream, "[tasks]\ninline_bytes = 200");
    let task = gateway.create("echo", body(500, 1));
    gateway.wait_for(&task, "COMPLETED");
    let files = || status(&gateway)["blobs"]["files"].clone();
    assert_eq!(files(), 1);
    let hold = File::create(gateway.data().join("blobs.lock")).expect("a file");
    hold.lock().expect("nobody has it");
    gateway.send("DELETE", &task_path(&task), "").expect(200);
    gateway.get(&task_path(&task)).expect(404);
    assert_eq!(files(), 1);
    drop(hold);
    let other = gateway.create("echo", body(500, 2));
    gateway.wait_for(&other, "COMPLETED");
    gateway.send("DELETE", &task_path(&other), "").expect(200);
    assert_eq!(files(), 1, "orphan cleanup removes the file that stayed");
}
