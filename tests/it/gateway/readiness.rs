//! Tests that the server reports its readiness and the activity of its services correctly.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{examples, package};
use crate::support::gateway::Setup;
use crate::support::http::Upstream;
use crate::support::tree::Tree;

#[test]
fn a_full_disk_is_not_ready() {
    let gateway = Setup::new()
        .settings("[limits]\ndisk_free_bytes = 1000000000000000000")
        .start();
    for _ in 0..3 {
        let told = gateway.get("/readyz").expect_error(503, "NOT_READY").json();
        assert_eq!(told["error"]["args"]["reason"], "STORAGE_IS_FULL");
        let message = told["error"]["message"].as_str().expect("words");
        assert!(message.contains("disk is full"), "{message}");
        gateway.get("/healthz").expect(200);
    }
}

/// Overwrites the page that holds a task with nonsense.
fn damage(data: &Path, task: &str) {
    let log = fs::metadata(data.join("pkgtool.db-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0, "it is written back");
    let digits: Vec<u8> = task.bytes().filter(|it| *it != b'-').collect();
    let id: Vec<u8> = digits
        .chunks(2)
        .map(|two| {
            let two = std::str::from_utf8(two).expect("digits");
            u8::from_str_radix(two, 16).expect("digits")
        })
        .collect();
    let file = data.join("pkgtool.db");
    let mut bytes = fs::read(&file).expect("it can be read");
    // A leaf page: the pages above it lead to other tasks, too.
    let page = bytes
        .chunks(4096)
        .position(|page| [10, 13].contains(&page[0]) && page.windows(16).any(|it| it == id))
        .expect("a page with the task");
    bytes[page * 4096..page * 4096 + 64].fill(0xa5);
    fs::write(&file, bytes).expect("it can be changed");
}

#[test]
fn a_damaged_database_is_not_ready() {
    let upstream = Upstream::start();
    upstream.release();
    let gateway = Setup::new().proxy("slow", &upstream.url("/hold")).start();
    let set = ["accounts", "set", "local", "--rps", "10000"];
    gateway.command(&set).expect_code(0);
    let gateway = gateway.kill_and_restart();
    let tasks: Vec<String> = (0..200).map(|_| gateway.create("slow", "{}")).collect();
    for task in &tasks {
        gateway.wait_for(task, "COMPLETED");
    }
    gateway.get("/readyz").expect(200);
    // SQLite moves the write-ahead log into the file when the last connection closes, so the server
    // stops first.
    let gateway = gateway.stop_and_change(|data| damage(data, &tasks[20]));
    gateway.until(|| gateway.get("/readyz").status == 503);
    for _ in 0..3 {
        let told = gateway.get("/readyz").expect_error(503, "NOT_READY").json();
        assert_eq!(told["error"]["args"]["reason"], "STORAGE_IS_DAMAGED");
        gateway.get("/healthz").expect(200);
    }
    assert!(
        gateway
            .whole_log()
            .contains("database integrity check failed")
    );
}

#[test]
fn what_nothing_here_runs_is_not_active() {
    let gateway = Setup::new().packages(examples()).start();
    let (mut active, mut inactive) = (0, 0);
    let services = gateway
        .get("/api/mlpgateway/account/local/model")
        .expect(200)
        .json();
    for service in services.as_array().expect("a list") {
        let name = service["modelName"].as_str().expect("a name");
        let body = json!({"inputs": []}).to_string();
        let told = gateway.post(&format!("/p/local/{name}"), body).expect(400);
        let runs = told.code() != "NO_ACTIVE_INSTANCES";
        // A service rejected for its default model may have other models that run.
        if runs {
            assert_eq!(service["isActive"], true, "{name}");
        }
        if service["isActive"] == true {
            active += 1;
        } else {
            assert!(!runs, "{name}");
            inactive += 1;
        }
    }
    assert!(active >= 6, "{active}");
    let ready = gateway.get("/readyz").expect(200).json();
    assert_eq!(ready["inactive"], inactive);
    let mosaic = gateway
        .get("/api/mlpgateway/account/local/model/mosaic_nano")
        .json();
    let path = "/api/mlpcore/providers";
    let providers = gateway.get(path).expect(200).json();
    for provider in providers["providers"].as_array().expect("a list") {
        let name = provider["name"].as_str().expect("a name");
        let models = gateway
            .get(&format!("{path}/{name}/models"))
            .expect(200)
            .json();
        for model in models["models"].as_array().expect("a list") {
            assert!(model["isActive"].is_boolean(), "{model}");
            if model["name"] == "mosaic_nano" && mosaic["isActive"] == false {
                assert_eq!(model["isActive"], false);
            }
        }
    }
}

#[test]
fn a_model_that_cannot_be_loaded_is_not_active_until_it_can() {
    let tree = package(
        package(Tree::new(), "negate", "Neg"),
        "broken",
        // The standard defines this operator for matrices only.
        "Det",
    );
    let gateway = Setup::new().packages(tree.root()).start();
    let info = |name: &str| {
        let path = format!("/api/mlpgateway/account/local/model/{name}");
        gateway.get(&path).expect(200).json()["isActive"].clone()
    };
    let ask = |name: &str| gateway.post(&format!("/p/local/{name}"), super::three([1.0; 3]));
    assert_eq!(info("broken"), true);
    for _ in 0..3 {
        ask("broken").expect_error(400, "NO_ACTIVE_INSTANCES");
        assert_eq!(info("broken"), false);
        ask("negate").expect(200);
        assert_eq!(info("negate"), true);
    }
}

#[test]
fn a_server_is_ready_when_its_models_are_loaded() {
    let tree = package(package(Tree::new(), "negate", "Neg"), "relu", "Relu");
    let gateway = Setup::new()
        .packages(tree.root())
        .settings("[defaults]\nwarm_up = true")
        .start();
    let mut seen = Vec::new();
    gateway.until(|| {
        let told = gateway.get("/readyz");
        if told.status != 200 {
            seen.push(told.json()["error"]["args"]["reason"].clone());
        }
        told.status == 200
    });
    assert!(
        seen.iter().all(|reason| reason == "MODELS_ARE_LOADING"),
        "{seen:?}"
    );
    let sessions = "pkgtool_sessions 2";
    assert!(
        gateway.metrics().lines().any(|line| line == sessions),
        "{}",
        gateway.metrics()
    );
}
