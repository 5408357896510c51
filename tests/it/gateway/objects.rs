//! Tests of a gateway that stores its blobs in object storage, against moto.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;

use crate::support::gateway::{Gateway, Setup, task_path};
use crate::support::http::{self, Upstream};
use crate::support::objects::{BUCKET, ObjectKey, ObjectServer, PLACE};
use crate::support::run::{Ran, pkgtool};

fn setup(upstream: &Upstream, server: &ObjectServer) -> Setup {
    let variables = server.variables().into_iter();
    let setup = variables.fold(Setup::new(), |setup, (name, value)| {
        setup.variable(&name, &value)
    });
    setup
        .argument("--objects")
        .argument(PLACE)
        .settings("[tasks]\ninline_bytes = 1000")
        .proxy("echo", &upstream.url("/echo"))
}

/// Returns a body of two parts of S3 and a bit.
fn big() -> String {
    json!({"text": "x".repeat(11 << 20)}).to_string()
}

/// Runs a command of the tool on the gateway's data directory, with the keys of the server.
fn command(gateway: &Gateway, server: &ObjectServer, arguments: &[&str]) -> Ran {
    let data = gateway.data();
    let data = data.to_str().expect("a plain path");
    let run = pkgtool(arguments.iter().copied().chain(["--data-dir", data]));
    let variables = server.variables().into_iter();
    variables
        .fold(run, |run, (name, value)| run.variable(&name, &value))
        .run()
}

#[test]
fn big_bodies_and_results_live_in_the_bucket_until_their_task_is_deleted() {
    let test = "big_bodies_and_results_live_in_the_bucket_until_their_task_is_deleted";
    let Some(server) = ObjectServer::start(test) else {
        return;
    };
    let upstream = Upstream::start();
    let gateway = setup(&upstream, &server).start();
    let body = big();
    let task = gateway.create("echo", &body);
    gateway.wait_for(&task, "COMPLETED");
    assert!(gateway.result(&task).expect(200).text() == body);
    // The body is deleted soon after the task ended.
    gateway.until(|| server.objects().len() == 1);
    let [answer] = &server.objects()[..] else {
        panic!("one answer");
    };
    assert!(answer.starts_with("answer/20"), "{answer}");
    assert!(!gateway.data().join("blobs").exists());
    let gateway = gateway.kill_and_restart();
    assert!(gateway.result(&task).expect(200).text() == body);
    gateway.send("DELETE", &task_path(&task), "").expect(200);
    gateway.until(|| server.objects().is_empty());
    assert_eq!(server.ask(&format!("uploads {BUCKET}")), 0);
}

#[test]
fn a_part_counts_as_memory_of_bodies() {
    let Some(server) = ObjectServer::start("a_part_counts_as_memory_of_bodies") else {
        return;
    };
    let upstream = Upstream::start();
    let limits = "[limits]\nbody_bytes = 6291456\nbody_memory_bytes = 6291456";
    let gateway = setup(&upstream, &server).settings(limits).start();
    let path = "/api/mlpgateway/account/local/model/echo/async/predict";
    // A body that begins and stays.
    let mut begun = http::connect(gateway.address);
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nMLP-API-KEY: {}\r\nContent-Length: 6000000\r\n\r\n",
        gateway.key
    );
    begun.write_all(head.as_bytes()).expect("it is sent");
    begun.write_all(&vec![b' '; 400_000]).expect("it is sent");
    let second = json!({"text": "x".repeat(2 << 20)}).to_string();
    gateway.until(|| gateway.post(path, &second).status == 503);
    gateway
        .post(path, &second)
        .expect_error(503, "BODY_MEMORY_IS_FULL");
    drop(begun);
    gateway.until(|| gateway.post(path, &second).status == 200);
}

#[test]
fn an_outage_of_the_storage_loses_nothing() {
    let Some(server) = ObjectServer::start("an_outage_of_the_storage_loses_nothing") else {
        return;
    };
    let upstream = Upstream::start();
    let gateway = setup(&upstream, &server)
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let body = json!({"text": "x".repeat(2000)}).to_string();
    let done = gateway.create("echo", &body);
    gateway.wait_for(&done, "COMPLETED");
    let running = gateway.create("slow", &body);
    gateway.wait_for(&running, "PROCESSING");
    gateway.get("/readyz").expect(200);
    server.ask("stop");
    let path = "/api/mlpgateway/account/local/model/echo/async/predict";
    gateway
        .post(path, &body)
        .expect_error(503, "mlp-action.common.service-unavailable");
    let unready = || gateway.get("/readyz").status == 503;
    gateway.until(unready);
    let told = gateway.get("/readyz").expect_error(503, "NOT_READY").json();
    assert_eq!(told["error"]["args"]["reason"], "OBJECT_STORAGE_FAILED");
    gateway.get("/healthz").expect(200);
    // Small tasks need no storage.
    let small = gateway.create("echo", "{}");
    gateway.wait_for(&small, "COMPLETED");
    // The answer waits until it can be stored.
    upstream.release();
    std::thread::sleep(Duration::from_millis(500));
    server.ask("start");
    gateway.wait_for(&running, "COMPLETED");
    assert_eq!(gateway.result(&done).expect(200).text(), body);
    gateway.until(|| !unready());
    let again = gateway.create("echo", &body);
    gateway.wait_for(&again, "COMPLETED");
}

#[test]
fn commands_find_the_bucket_of_a_data_directory() {
    let Some(server) = ObjectServer::start("commands_find_the_bucket_of_a_data_directory") else {
        return;
    };
    let upstream = Upstream::start();
    let gateway = setup(&upstream, &server).start();
    let body = json!({"text": "x".repeat(2000)}).to_string();
    let task = gateway.create("echo", &body);
    gateway.wait_for(&task, "COMPLETED");
    let status = command(&gateway, &server, &["admin", "status", "--json"]).expect_code(0);
    assert_eq!(status.json()["objects"], PLACE);
    let parent = tempfile::tempdir().expect("a directory");
    let into = parent.path().join("backup");
    let backup = ["admin", "backup", into.to_str().expect("a plain path")];
    let backup = command(&gateway, &server, &backup).expect_code(0);
    assert!(
        backup.stderr.contains("are not in this backup"),
        "{}",
        backup.stderr
    );
    assert!(into.join("objects.url").is_file());
    let purge = ["admin", "purge", "--older-than", "0m"];
    let other = [&purge[..], &["--objects", "s3://bodies/other"]].concat();
    let other = command(&gateway, &server, &other).expect_code(2);
    assert!(other.stderr.contains(PLACE), "{}", other.stderr);
    gateway.until(|| server.objects().len() == 1);
    let purged = command(&gateway, &server, &purge).expect_code(0);
    assert!(
        purged.stdout.contains("deleted 1 tasks"),
        "{}",
        purged.stdout
    );
    gateway.until(|| server.objects().is_empty());
    let data = gateway.data();
    let data = data.to_str().expect("a plain path").to_owned();
    let (_, _, _directory) = gateway.stop();
    let files = pkgtool(["serve", "--listen", "127.0.0.1:0", "--data-dir", &data]).run();
    let files = files.expect_code(2);
    assert!(
        files.stderr.contains("not in local files"),
        "{}",
        files.stderr
    );
}

#[test]
fn a_bucket_that_does_not_work_stops_the_start() {
    let Some(server) = ObjectServer::start("a_bucket_that_does_not_work_stops_the_start") else {
        return;
    };
    let start = |url: &str, variables: Vec<(String, String)>| {
        let data = tempfile::tempdir().expect("a directory");
        let serve = pkgtool(["serve", "--listen", "127.0.0.1:0", "--objects", url]);
        let serve = variables
            .into_iter()
            .fold(serve, |serve, (name, value)| serve.variable(&name, &value));
        let data = data.path().to_str().expect("a plain path");
        serve.variable("PKGTOOL_DATA_DIR", data).run()
    };
    let missing = start("s3://missing/a", server.variables()).expect_code(2);
    let expected = "s3://missing/a at http://127.0.0.1:";
    assert!(missing.stderr.contains(expected), "{}", missing.stderr);
    assert!(missing.stderr.contains("the bucket does not exist"));
    let reader = server.key("s3:Get*,s3:List*");
    let reads = start(PLACE, server.variables_with(&reader)).expect_code(2);
    assert!(
        reads.stderr.contains("may not write objects"),
        "{}",
        reads.stderr
    );
    let wrong = ObjectKey::new("AKIAWRONG", "topsecret");
    let wrong = start(PLACE, server.variables_with(&wrong)).expect_code(2);
    assert!(wrong.stderr.contains("credentials are rejected"));
    assert!(!wrong.stderr.contains("topsecret"), "{}", wrong.stderr);
    let mut variables = server.variables();
    "http://127.0.0.1:1".clone_into(&mut variables[0].1);
    let closed = start(PLACE, variables).expect_code(2);
    assert!(closed.stderr.contains("no connection"), "{}", closed.stderr);
    let scheme = start("gs://bodies", server.variables()).expect_code(2);
    assert!(
        scheme.stderr.contains("expected s3://BUCKET"),
        "{}",
        scheme.stderr
    );
}
