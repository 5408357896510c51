//! Servers that share a database.

use std::process::Command;

use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::ON_POSTGRES;

/// Tests that run a second time, with a PostgreSQL database for each server.
const ON_POSTGRES_TOO: [&str; 6] = [
    "gateway::tasks::",
    "gateway::records::",
    "gateway::webhooks::",
    "gateway::quotas::",
    "gateway::limits::",
    "gateway::access::",
];

/// Tests that read or change the file of an SQLite database.
const NOT_ON_POSTGRES: [&str; 3] = [
    "cpu_time_is_counted_and_limited",
    "a_clock_that_jumped_ahead_deletes_nothing",
    "a_server_that_is_asked_to_stop_lets_tasks_end_and_keeps_the_rest",
];

/// What the gateway stores in an SQLite database, it stores in a PostgreSQL database, too.
#[test]
fn tests_of_stored_work_pass_on_postgresql() {
    if std::env::var_os(ON_POSTGRES).is_some()
        || EnvironmentPiece::Postgres
            .or_skip("tests_of_stored_work_pass_on_postgresql")
            .is_none()
    {
        return;
    }
    let tests = std::env::current_exe().expect("these tests");
    let ran = Command::new(tests)
        .args(ON_POSTGRES_TOO)
        .args(NOT_ON_POSTGRES.iter().flat_map(|test| ["--skip", test]))
        .args(["--test-threads", "2"])
        .env(ON_POSTGRES, "1")
        .output()
        .expect("they run");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    let passed = said
        .lines()
        .filter(|line| line.starts_with("test ") && line.ends_with("... ok"));
    assert!(passed.count() >= 35, "{said}");
}
