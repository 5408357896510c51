//! Databases that servers cannot use: at the start, and while they run.

use std::fs;
use std::time::Duration;

use super::{Cluster, first_output, long_request, tasks_of};
use crate::support::gateway::Gateway;
use crate::support::http::Upstream;
use crate::support::postgres::OwnPostgres;
use crate::support::preloaded::Preloaded;
use crate::support::random::Random;

/// Fails the test unless a server is not ready for a reason, now and a while later.
#[track_caller]
fn expect_not_ready(server: &Gateway, reason: &str) {
    server.until(|| server.get("/readyz").status == 503);
    for _ in 0..4 {
        let told = server.get("/readyz").expect_error(503, "NOT_READY").json();
        assert_eq!(told["error"]["args"]["reason"], reason, "{told}");
        server.get("/healthz").expect(200);
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn a_server_says_why_it_cannot_use_a_database() {
    let Some(database) = OwnPostgres::start("a_server_says_why_it_cannot_use_a_database") else {
        return;
    };
    database.sql(
        "CREATE ROLE guarded SUPERUSER LOGIN PASSWORD 'right';
        CREATE ROLE reader SUPERUSER LOGIN; ALTER ROLE reader SET default_transaction_read_only = on",
    );
    let rules = database.data().join("pg_hba.conf");
    let before = fs::read_to_string(&rules).expect("a file");
    fs::write(&rules, format!("local all guarded scram-sha-256\n{before}")).expect("a file");
    database.reload();
    let host = database.directory().display();
    let url =
        |user: &str, name: &str| format!("postgres://{user}@/{name}?host={host}&sslmode=disable");
    let nobody = "postgres://tests@/own?host=/nowhere&sslmode=disable".to_owned();
    for (url, said, remedy) in [
        (
            url("guarded:s3cr3t", "own"),
            "password authentication failed",
            "correct the user and the password",
        ),
        (url("tests", "missing"), "does not exist", "createdb"),
        (
            url("reader", "own"),
            "read-only transaction",
            "target_session_attrs=read-write",
        ),
        (nobody, "the database does not answer", "try again"),
    ] {
        let refused = Cluster::of(url).refused(&[]);
        for told in [said, remedy] {
            assert!(refused.contains(told), "no `{told}`: {refused}");
        }
        assert!(!refused.contains("s3cr3t"), "{refused}");
    }
    let mut cluster = Cluster::of(url("guarded:right", "own"));
    cluster.add(&[]);
    cluster.servers[0].get("/readyz").expect(200);
}

#[test]
fn the_primary_of_several_hosts_is_found() {
    let test = "the_primary_of_several_hosts_is_found";
    let (Some(replica), Some(primary)) = (OwnPostgres::start(test), OwnPostgres::start(test))
    else {
        return;
    };
    replica.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    replica.reload();
    let [first, second] = [&replica, &primary].map(|it| it.directory().display());
    let url = format!("postgres://tests@/own?host={first}&host={second}&sslmode=disable");
    let refused = Cluster::of(url.clone()).refused(&[]);
    assert!(refused.contains("target_session_attrs"), "{refused}");
    let mut cluster = Cluster::of(format!("{url}&target_session_attrs=read-write"));
    cluster.add(&[]);
    let task = cluster.servers[0].create("negate", long_request(1).0);
    cluster.servers[0].wait_for(&task, "COMPLETED");
    assert_eq!(primary.sql("SELECT count(*) FROM task_done"), "1");
}

#[test]
fn a_database_that_becomes_read_only_is_told_and_waited_for() {
    let test = "a_database_that_becomes_read_only_is_told_and_waited_for";
    let Some(database) = OwnPostgres::start(test) else {
        return;
    };
    let upstream = Upstream::start();
    let mut cluster = Cluster::of(database.url());
    cluster.add_with(&[], |setup| setup.proxy("slow", &upstream.url("/keep")));
    let server = &cluster.servers[0];
    let held = server.create("slow", r#"{"keep": 1}"#);
    server.wait_for(&held, "PROCESSING");
    // As after a failover to a replica.
    database.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    database.reload();
    expect_not_ready(server, "STORAGE_IS_READ_ONLY");
    let (body, answer) = long_request(1);
    let refused = server.post(&tasks_of("negate"), &body);
    refused.expect_error(503, "STORAGE_IS_READ_ONLY");
    assert_eq!(server.status(&held)["status"], "PROCESSING");
    upstream.release();
    std::thread::sleep(Duration::from_secs(1));
    database.sql("ALTER SYSTEM RESET default_transaction_read_only");
    database.reload();
    server.until(|| server.get("/readyz").status == 200);
    let task = server.create("negate", body);
    for (task, _) in [(&task, 0), (&held, 1)] {
        server.wait_for(task, "COMPLETED");
    }
    let result = server.result(&task).expect(200);
    assert_eq!(first_output(&result.json()), answer);
    assert_eq!(server.result(&held).expect(200).json()["keep"], 1);
}

/// Returns a body that cannot be made shorter.
fn incompressible(random: &mut Random) -> String {
    let words: Vec<String> = (0..500)
        .map(|_| format!("{:016x}", random.number()))
        .collect();
    serde_json::json!({ "words": words.concat() }).to_string()
}

#[test]
fn a_full_disk_of_the_database_is_told_and_loses_nothing() {
    let preloaded = Preloaded::build();
    let (library, sign) = (preloaded.library(), preloaded.full());
    let environment = [
        ("LD_PRELOAD", library.to_str().expect("a plain path")),
        ("TEST_FULL_DISK", sign.to_str().expect("a plain path")),
    ];
    let test = "a_full_disk_of_the_database_is_told_and_loses_nothing";
    let Some(database) = OwnPostgres::start_with(test, &environment) else {
        return;
    };
    let upstream = Upstream::start();
    let mut cluster = Cluster::of(database.url());
    for _ in 0..2 {
        // Bodies and answers are in the database.
        cluster.add_with(&[("PKGTOOL_TASKS_INLINE_BYTES", "16384")], |setup| {
            setup
                .proxy("slow", &upstream.url("/keep"))
                .proxy("echo", &upstream.url("/echo"))
        });
    }
    let mut random = Random::new(1);
    let mut accepted = Vec::new();
    for number in 0..20 {
        let body = incompressible(&mut random);
        let service = ["slow", "echo"][number % 2];
        accepted.push((cluster.servers[number % 2].create(service, &body), body));
    }
    for (task, _) in accepted.iter().step_by(2) {
        cluster.servers[0].wait_for(task, "PROCESSING");
    }
    // The log has room: without, the database stops.
    database.sql("SELECT pg_switch_wal(); CHECKPOINT");
    preloaded.fill(true);
    for server in &cluster.servers {
        let refused = loop {
            let body = incompressible(&mut random);
            let reply = server.post(&tasks_of("echo"), &body);
            if reply.status != 200 {
                break reply;
            }
            accepted.push((reply.json().as_str().expect("an id").to_owned(), body));
            assert!(accepted.len() < 1000, "the disk is never full");
        };
        assert_eq!(refused.status, 507, "{}", server.whole_log());
        refused.expect_error(507, "STORAGE_IS_FULL");
        expect_not_ready(server, "STORAGE_IS_FULL");
    }
    // Answers that come now are kept until there is room.
    upstream.release();
    for (task, _) in &accepted {
        assert_ne!(cluster.servers[0].status(task)["status"], "CANCELED");
    }
    preloaded.fill(false);
    for server in &cluster.servers {
        server.until(|| server.get("/readyz").status == 200);
        let body = incompressible(&mut random);
        accepted.push((server.create("echo", &body), body));
    }
    for (number, (task, body)) in accepted.iter().enumerate() {
        let server = &cluster.servers[number % 2];
        server.wait_for(task, "COMPLETED");
        assert_eq!(&server.result(task).expect(200).text(), body);
    }
}
