//! Servers are replaced one by one, while the schema is that of the next release.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Cluster, first_output, long_request, tasks_of};
use crate::support::http;
use crate::support::postgres::OwnPostgres;

const TEST: &str = "servers_are_replaced_one_by_one_while_the_schema_advances";

const SERVERS: usize = 3;

/// Longest time until a request is accepted.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the next release does to the schema: this release can use it.
const NEXT: &str = "ALTER TABLE task_active ADD COLUMN later BIGINT;
    ALTER TABLE task_done ADD COLUMN later BIGINT;
    CREATE TABLE later (id BIGINT PRIMARY KEY);
    UPDATE pkgtool_schema SET version = version + 1";

/// Creates tasks until it is over, as a client of a load balancer.
fn create(
    addresses: &[Mutex<SocketAddr>],
    key: &str,
    is_over: &AtomicBool,
) -> Vec<(String, [f64; 3])> {
    let mut accepted = Vec::new();
    for number in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let (body, answer) = long_request(number);
        let idempotency = format!("request {number}");
        let headers = [("MLP-API-KEY", key), ("Idempotency-Key", &idempotency)];
        let since = Instant::now();
        let task = (0..).find_map(|attempt| {
            assert!(since.elapsed() < PATIENCE, "nobody accepts the request");
            let address = *addresses[(number + attempt) % SERVERS]
                .lock()
                .expect("no panic");
            let path = tasks_of("negate");
            let request = ("POST", path.as_str(), &headers[..], body.as_bytes());
            let reply = http::attempt(address, PATIENCE, request)?;
            let is_refused = [429, 503].contains(&reply.status);
            (!is_refused).then(|| reply.expect(200).json().as_str().expect("an id").to_owned())
        });
        accepted.push((task.expect("the loop ends only with one"), answer));
        std::thread::sleep(Duration::from_millis(10));
    }
    accepted
}

#[test]
fn servers_are_replaced_one_by_one_while_the_schema_advances() {
    let Some(database) = OwnPostgres::start(TEST) else {
        return;
    };
    let mut cluster = Cluster::of(database.url());
    for _ in 0..SERVERS {
        cluster.add(&[("PKGTOOL_TASKS_LEASE_S", "10")]);
    }
    let addresses: Vec<_> = cluster
        .servers
        .iter()
        .map(|it| Mutex::new(it.address))
        .collect();
    let key = cluster.servers[0].key.clone();
    let is_over = AtomicBool::new(false);
    let accepted = std::thread::scope(|scope| {
        let client = scope.spawn(|| create(&addresses, &key, &is_over));
        std::thread::sleep(Duration::from_millis(500));
        database.sql(NEXT);
        for (number, address) in addresses.iter().enumerate() {
            std::thread::sleep(Duration::from_millis(300));
            let server = cluster.servers.remove(number);
            let name = std::fs::read_to_string(server.data().join("server")).expect("a name");
            server.command(&["admin", "drain", &name]).expect_code(0);
            let restarted = server.stop_and_change(|_| {});
            restarted.get("/readyz").expect(200);
            *address.lock().expect("no panic") = restarted.address;
            cluster.servers.insert(number, restarted);
        }
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::SeqCst);
        client.join().expect("no panic")
    });
    assert!(accepted.len() > 50, "{} tasks", accepted.len());
    for (number, (task, answer)) in accepted.iter().enumerate() {
        let server = &cluster.servers[number % SERVERS];
        server.wait_for(task, "COMPLETED");
        let result = server.result(task).expect(200);
        assert_eq!(first_output(&result.json()), answer);
    }
    // A server that is drained ends what it runs: no task ran twice.
    let done = database.sql("SELECT count(*), max(attempt) FROM task_done");
    assert_eq!(done, format!("{}|1", accepted.len()));
    let nodes = database.sql("SELECT count(*) FROM node WHERE NOT draining");
    assert_eq!(nodes, SERVERS.to_string());
    // The release after the next one changes more than this release can use.
    database.sql("UPDATE pkgtool_schema SET version = version + 1, oldest = version + 1");
    for server in &cluster.servers {
        server.until(|| server.get("/readyz").status == 503);
        let told = server.get("/readyz").expect_error(503, "NOT_READY").json();
        assert_eq!(told["error"]["args"]["reason"], "STORAGE_IS_TOO_NEW");
    }
    let refused = cluster.refused(&[]);
    assert!(
        refused.contains("created by a later release of pkgtool"),
        "{refused}"
    );
    assert!(refused.contains("use that release"), "{refused}");
}
