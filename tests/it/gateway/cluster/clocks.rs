//! Servers whose clocks are an hour apart follow that of the database.

use std::time::Duration;

use super::Cluster;
use crate::support::gateway::{Gateway, task_path};
use crate::support::http::Upstream;
use crate::support::postgres::OwnPostgres;
use crate::support::preloaded::Preloaded;

const TEST: &str = "clocks_an_hour_apart_change_nothing";

/// How far the clock of each server is ahead.
const AHEAD_S: [i64; 3] = [3600, -3600, 0];

const DAY_S: i64 = 24 * 3600;

/// Time between two requests. Servers know the database's clock a little less exactly than this.
const BETWEEN_REQUESTS: Duration = Duration::from_millis(110);

/// Settings by which a server that believed its clock would remove tasks, or the lease of others.
const SETTINGS: [(&str, &str); 4] = [
    ("PKGTOOL_TASKS_LEASE_S", "6"),
    // Half an hour.
    ("PKGTOOL_TASKS_ANSWER_TTL_DAYS", "0.0208333"),
    ("PKGTOOL_TASKS_RECORD_TTL_DAYS", "0.0208333"),
    ("PKGTOOL_LIMITS_RUNNING", "1"),
];

/// Longer than the time between two removals of old tasks.
const PAST_A_SWEEP: Duration = Duration::from_secs(4);

/// Returns the clock of a server, in seconds of a day, as its answers show it.
fn clock_of(server: &Gateway) -> i64 {
    let reply = server.get("/healthz").expect(200);
    // `Sun, 06 Nov 1994 08:49:37 GMT`
    let date = reply.header("date").expect("a date").to_owned();
    let clock = date.split(' ').nth(4).expect("a time").split(':');
    let numbers = clock.map(|part| part.parse::<i64>().expect("a number"));
    numbers.fold(0, |sum, number| sum * 60 + number)
}

#[test]
fn clocks_an_hour_apart_change_nothing() {
    let Some(database) = OwnPostgres::start(TEST) else {
        return;
    };
    let preloaded = Preloaded::build();
    let library = preloaded.library();
    let library = library.to_str().expect("a plain path");
    let upstream = Upstream::start();
    let mut cluster = Cluster::of(database.url());
    for ahead in AHEAD_S {
        let ahead = ahead.to_string();
        let clock = [("LD_PRELOAD", library), ("TEST_CLOCK_AHEAD_S", &ahead)];
        cluster.add_with(&[&SETTINGS[..], &clock].concat(), |setup| {
            setup.proxy("echo", &upstream.url("/echo"))
        });
    }
    let right = clock_of(&cluster.servers[2]);
    for (server, ahead) in cluster.servers.iter().zip(AHEAD_S) {
        let shown = (clock_of(server) - right - ahead).rem_euclid(DAY_S);
        assert!(!(10..=DAY_S - 10).contains(&shown), "its clock is shifted");
    }
    let nodes = || database.sql("SELECT id FROM node ORDER BY id");
    let registered = nodes();
    assert_eq!(registered.lines().count(), 3);
    let clock = || -> i64 { database.sql("SELECT clock_ms()").parse().expect("a number") };
    let began = clock();
    let mut tasks = Vec::new();
    for number in 0..30 {
        // Long answers are removed before their tasks.
        let body = format!(r#"{{"number": "{number:05000}"}}"#);
        tasks.push((cluster.servers[number % 3].create("echo", &body), body));
        std::thread::sleep(BETWEEN_REQUESTS);
    }
    for (number, (task, _)) in tasks.iter().enumerate() {
        cluster.servers[number % 3].wait_for(task, "COMPLETED");
    }
    std::thread::sleep(PAST_A_SWEEP);
    let now = clock();
    let mut last = (began, began);
    for (number, (task, answer)) in tasks.iter().enumerate() {
        for (at, server) in cluster.servers.iter().enumerate() {
            let told = server.get(&task_path(task)).expect(200).json();
            let created = told["createdAt"].as_i64().expect("a time");
            let completed = told["completedAt"].as_i64().expect("a time");
            // Tasks run one by one, in the order in which they came.
            if at == 0 {
                let order = (last, (created, completed));
                assert!(
                    created >= last.0 && completed >= last.1,
                    "{number}: {order:?}"
                );
                last = (created, completed);
            }
            assert!(created >= began - 200 && completed <= now + 200, "{told}");
            let result = server.result(task).expect(200);
            assert_eq!(&result.text(), answer);
        }
    }
    // No lease was believed over, so none was lost, and no task ran twice.
    assert_eq!(nodes(), registered);
    assert_eq!(database.sql("SELECT max(attempt) FROM task_done"), "1");
    let kept = "SELECT DISTINCT (expires_at - completed_at + 500) / 1000 FROM task_done";
    assert_eq!(database.sql(kept), "1800");
    // What is too old by the clock of the database leaves.
    database.sql("UPDATE task_done SET completed_at = completed_at - 1900000, expires_at = expires_at - 1900000");
    let old = task_path(&tasks[0].0);
    cluster.servers[2].until(|| cluster.servers[2].get(&old).status == 404);
}
