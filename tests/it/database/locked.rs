//! Tests of a database that another process uses: one that keeps it locked, and one that reads for
//! long.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pkgtool_serve::database::{DatabaseError, Timestamp};
use pkgtool_serve::task::{Caps, EnqueueError, NewTask, StoredContent};

use crate::support::gateway::Setup;
use crate::support::http::Upstream;
use crate::task::{WIDE, block_on, directory, id, new, open};

/// Maximum time until a request is answered, even while another process holds the lock.
const LONGEST: Duration = Duration::from_secs(8);

#[test]
fn a_lock_of_another_process_stalls_nobody_for_long() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("slow", &upstream.url("/hold")).start();
    let path = "/api/mlpgateway/account/local/model/slow/async/predict";
    gateway.post(path, "{}").expect(200);
    let other = rusqlite::Connection::open(gateway.data().join("pkgtool.db"));
    let other = other.expect("it opens");
    other.busy_timeout(LONGEST).expect("it can be set");
    // During a short lock, all requests wait and succeed. During a long one they are rejected, and
    // none waits for earlier ones.
    for (held, accepted) in [
        (Duration::from_millis(700), true),
        (Duration::from_secs(12), false),
    ] {
        other.execute_batch("BEGIN IMMEDIATE").expect("it is free");
        let released = AtomicBool::new(false);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..12)
                .map(|number| {
                    let (gateway, released) = (&gateway, &released);
                    scope.spawn(move || {
                        thread::sleep(Duration::from_millis(100 * number));
                        let mut replies = Vec::new();
                        while !released.load(Ordering::Relaxed) {
                            let began = Instant::now();
                            replies.push((gateway.post(path, "{}"), began.elapsed()));
                            thread::sleep(Duration::from_millis(200));
                        }
                        replies
                    })
                })
                .collect();
            // Account changes also need the lock. They must not block the threads that answer other
            // requests.
            for number in 0..4 {
                let (gateway, held) = (&gateway, held.as_millis());
                scope.spawn(move || {
                    let path = "/api/mlpgateway/account/local/model/slow/predict-config";
                    let config = format!(r#"{{"name":"{held}-{number}","config":{{}}}}"#);
                    let reply = gateway.post(path, config);
                    assert!([200, 503].contains(&reply.status), "{}", reply.text());
                });
            }
            thread::sleep(held);
            other.execute_batch("ROLLBACK").expect("it is ours");
            released.store(true, Ordering::Relaxed);
            let mut busy = 0;
            for client in clients {
                for (reply, took) in client.join().expect("no client panicked") {
                    assert!(took < LONGEST, "{took:?} with the lock held for {held:?}");
                    match reply.status {
                        503 => {
                            assert_eq!(reply.code(), "STORAGE_IS_BUSY");
                            assert!(reply.header("retry-after").is_some());
                            busy += 1;
                        }
                        // The account's own limits.
                        200 | 429 => {}
                        other => panic!("{other}: {}", reply.text()),
                    }
                }
            }
            assert_eq!(busy == 0, accepted, "{busy} were refused after {held:?}");
        });
        // Once the lock is released, requests succeed at once.
        gateway.until(|| gateway.post(path, "{}").status != 503);
        let listed = gateway.get("/api/mlpgateway/account/local/async/task");
        for task in listed.expect(200).json().as_array().expect("a list") {
            let task = task["taskId"].as_str().expect("an id");
            let cancel = format!("/api/mlpgateway/account/local/async/task/{task}/cancel");
            gateway.post(&cancel, "").expect(200);
        }
    }
}

#[test]
fn who_only_reads_does_not_wait_for_the_lock() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    let other = rusqlite::Connection::open(gateway.data().join("pkgtool.db"));
    let other = other.expect("it opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("it is free");
    let home = tempfile::tempdir().expect("a directory");
    let backup = home.path().join("backup");
    let backup = backup.to_str().expect("a plain path");
    for command in [
        &["admin", "status"][..],
        &["admin", "backup", backup],
        &["accounts", "list"],
    ] {
        gateway.command(command).expect_code(0);
    }
    // A command that changes accounts names the lock in its error.
    let set = ["accounts", "set", "local", "--rps", "7"];
    let refused = gateway.command(&set).expect_code(2);
    assert!(
        refused.stderr.contains("another process"),
        "{}",
        refused.stderr
    );
    other.execute_batch("ROLLBACK").expect("it is ours");
    gateway.command(&set).expect_code(0);
}

#[test]
fn a_lock_is_told_as_such() {
    let (directory, stores) = directory();
    let store = open(&stores, WIDE);
    let other = rusqlite::Connection::open(directory.path().join("pkgtool.db"));
    let other = other.expect("it opens");
    block_on(async {
        for number in [1, 3, 5] {
            other.execute_batch("BEGIN IMMEDIATE").expect("it is free");
            let refused = store.enqueue(new(number), Timestamp(1)).await;
            let Err(EnqueueError::Database(error @ DatabaseError::Busy { .. })) = refused else {
                panic!("{refused:?}");
            };
            assert!(error.to_string().contains("another process"), "{error}");
            other.execute_batch("ROLLBACK").expect("it is ours");
            assert_eq!(store.get(id(number)).await.expect("it works"), None);
            let made = store.enqueue(new(number + 1), Timestamp(1)).await;
            made.expect("it is accepted");
        }
        assert_eq!(store.load().await.expect("it works"), (3, 0));
    });
}

#[test]
fn a_log_that_a_reader_let_grow_becomes_short_again() {
    let (directory, stores) = directory();
    let caps = Caps {
        waiting: 1_000_000,
        ..WIDE
    };
    let store = open(&stores, caps);
    let file = directory.path().join("pkgtool.db");
    let log_bytes =
        || fs::metadata(directory.path().join("pkgtool.db-wal")).map_or(0, |it| it.len());
    let reader = rusqlite::Connection::open(&file).expect("it opens");
    reader.execute_batch("BEGIN").expect("it works");
    let tasks = |reader: &rusqlite::Connection| {
        let count = reader.query_row("SELECT count(*) FROM task", [], |row| row.get::<_, i64>(0));
        count.expect("a number").unsigned_abs()
    };
    assert_eq!(tasks(&reader), 0);
    let long = StoredContent::Inline(vec![b'x'; 1 << 20]);
    let mut number = 0;
    let mut add = |now| {
        number += 1;
        let task = NewTask {
            body: long.clone(),
            ..new(number)
        };
        block_on(store.enqueue(task, Timestamp(now))).expect("it is accepted");
        number
    };
    while log_bytes() < 100 << 20 {
        add(1);
    }
    assert_eq!(tasks(&reader), 0, "it sees its own moment");
    reader.execute_batch("COMMIT").expect("it works");
    // New records keep arriving while the log is written back.
    let deadline = Instant::now() + Duration::from_mins(2);
    while log_bytes() > 40 << 20 {
        let last = add(10_000 * i64::try_from(number_of(&store)).unwrap_or(0));
        assert!(
            Instant::now() < deadline,
            "{} bytes after {last} tasks",
            log_bytes()
        );
        thread::sleep(Duration::from_millis(20));
    }
    let count = number_of(&store);
    assert_eq!(tasks(&reader), count);
    let found = block_on(store.get(id(count))).expect("it works");
    assert!(found.is_some());
}

fn number_of(store: &crate::task::Limited) -> u64 {
    block_on(store.load()).expect("it works").0
}
