//! Tests of training by workers: a service in Python that learns, and a package that trains others.

use serde_json::{Value, json};

use super::super::training::{BASE, derived, ended, fit, labels, many, succeeded, uploaded};
use super::{Running, python_service, start, until_attached, workers};
use crate::gateway::examples;
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, Setup};
use crate::support::run::pkgtool;

fn info(gateway: &Gateway, service: &str) -> Value {
    gateway
        .get(&format!("{BASE}/model/{service}"))
        .expect(200)
        .json()
}

/// Returns the valid tokens of a service, by name.
fn tokens(gateway: &Gateway, service: &str) -> Vec<String> {
    let listed = gateway.command(&["workers", "token", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.expect_code(0).stdout).expect("a list");
    let all = listed.as_array().expect("a list").iter();
    let valid = all.filter(|it| it["service"] == service && it["revokedAt"].is_null());
    valid
        .map(|it| it["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn fails(gateway: &Gateway, job: i64, reason: &str) {
    let job = ended(gateway, job);
    assert_eq!(job["status"], "FAILED", "{job}");
    let message = job["errorMessage"].as_str().expect("a reason");
    assert!(message.contains(reason), "{job}");
}

#[test]
fn a_service_in_python_learns_through_the_gateway() {
    let Some(grpc) =
        EnvironmentPiece::Grpc.or_skip("a_service_in_python_learns_through_the_gateway")
    else {
        return;
    };
    let gateway = start();
    let token = gateway.worker_token("echo", "first");
    let path = format!("{BASE}/model/echo/derived?name=tuned");
    // The service is known as soon as its token is.
    gateway.until(|| gateway.post(&path, "").status != 404);
    gateway
        .post(&path, "")
        .expect_error(409, "SERVICE_IS_NOT_TRAINABLE");
    let mut service = python_service(&gateway, &token, &grpc);
    until_attached(&gateway, 1);
    assert_eq!(info(&gateway, "echo")["fittable"], true);
    let dataset = uploaded(&gateway, "pets", "text,label\na cat,pet\nred,color\n");
    let config = json!({"upper": true, "of its own": [1]});
    let mut dirs = Vec::new();
    for _ in 0..3 {
        let job = fit(&gateway, "echo", dataset, &config);
        let job = succeeded(&gateway, job);
        assert!(job["metrics"]["worker"].is_string(), "{job}");
        dirs.push(job["metrics"]["modelDir"].clone());
        let broken = uploaded(&gateway, "broken", "text,label\nbreak,pet\nred,color\n");
        let job = fit(&gateway, "echo", broken, &json!({}));
        fails(&gateway, job, "no luck; message: break");
    }
    derived(&gateway, "echo", "tuned");
    let several = "text,labels\na cat,pet|small\nred,\n";
    // It has no type of its own.
    let several = gateway.post(&format!("{BASE}/dataset/raw?name=several"), several);
    let several = several.expect(200).json()["id"]["datasetId"].as_i64();
    let several = several.expect("a number");
    let job = fit(&gateway, "tuned", several, &json!({}));
    succeeded(&gateway, job);
    // The platform's SDKs attach nothing: the owner of the service does.
    assert!(tokens(&gateway, "tuned").is_empty());
    let learned = gateway
        .post(&super::path("echo"), "\"learned\"")
        .expect(200)
        .json();
    let first = json!({
        "texts": ["a cat", "red"],
        "labels": [["pet"], ["color"]],
        "config": config,
        "dirs": [dirs[0], ""],
        "target": "echo",
        "token": "",
        "dataset": ["pets", "text"],
    });
    assert_eq!(learned[0], first);
    assert_eq!(learned[2]["dirs"], json!([dirs[2], dirs[1]]));
    assert_eq!(learned[3]["target"], "tuned");
    assert_eq!(learned[3]["dataset"], json!(["several", "csv"]));
    assert_eq!(learned[3]["labels"], json!([["pet", "small"], []]));
    // A worker that leaves has three tries, here of the same one.
    let leaves = uploaded(&gateway, "leaves", "text,label\nleave,pet\nred,color\n");
    let job = fit(&gateway, "echo", leaves, &json!({}));
    service.wait().expect("it ended");
    fails(&gateway, job, "no worker is attached");
    let mut service = python_service(&gateway, &token, &grpc);
    until_attached(&gateway, 1);
    let job = fit(&gateway, "echo", dataset, &json!({}));
    succeeded(&gateway, job);
    let (code, log, _) = gateway.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(service.wait().expect("it ends").success());
}

#[test]
fn a_package_learns_on_its_worker() {
    let texts = ["cat cat cat dog", "dog dog dog house", "night night night"];
    let body = json!({"texts": texts}).to_string();
    let dataset = many(200);
    let path = "/api/mlpgateway/account/local/model/pets/predict";
    // The result is that of a training in the gateway.
    let local = Setup::new()
        .packages(examples().join("hush-sentence"))
        .start();
    derived(&local, "hush_sentence", "pets");
    let number = uploaded(&local, "pets", &dataset);
    let job = fit(&local, "pets", number, &json!({"seed": 1}));
    let measured = succeeded(&local, job)["metrics"].clone();
    let wanted = local.post(path, &body).expect(200).json();
    drop(local);

    let gateway = start();
    let token = gateway.worker_token("hush_sentence", "first");
    let trained = tempfile::tempdir().expect("a folder");
    let attach =
        |gateway: &Gateway| Running::attach_in(gateway, &token, "hush-sentence", trained.path());
    let worker = attach(&gateway);
    until_attached(&gateway, 1);
    assert_eq!(info(&gateway, "hush_sentence")["fittable"], true);
    derived(&gateway, "hush_sentence", "pets");
    let number = uploaded(&gateway, "pets", &dataset);
    let invalid = json!({"datasetId": number, "config": {"l3": 1}}).to_string();
    let fit_path = format!("{BASE}/model/pets/fit");
    gateway
        .post(&fit_path, invalid)
        .expect_error(400, "BAD_REQUEST");
    gateway
        .post(path, &body)
        .expect_error(400, "NO_ACTIVE_INSTANCES");
    for round in 1..=3 {
        let job = fit(&gateway, "pets", number, &json!({"seed": 1}));
        let mut metrics = succeeded(&gateway, job)["metrics"].clone();
        let metrics = metrics.as_object_mut().expect("an object");
        assert!(metrics.remove("worker").is_some() && metrics.remove("modelDir").is_some());
        assert_eq!(json!(metrics), measured);
        let reply = gateway.post(path, &body).expect(200);
        assert_eq!(reply.json(), wanted, "round {round}");
        assert!(reply.header("x-worker").is_some());
        until_attached(&gateway, 2);
        // Only the last result stays.
        let results = trained.path().join("1/pets");
        gateway.until(|| results.read_dir().expect("a folder").count() == 1);
    }
    // Other texts make another service.
    let swapped = uploaded(&gateway, "swapped", "text,label\ncat,night\nnight,cat\n");
    let job = fit(&gateway, "pets", swapped, &json!({}));
    succeeded(&gateway, job);
    assert_eq!(
        labels(&gateway, "pets", &["cat", "night"]),
        ["night", "cat"]
    );
    // Both come back after a restart of the worker, and of the gateway.
    drop(worker);
    until_attached(&gateway, 0);
    let worker = attach(&gateway);
    until_attached(&gateway, 2);
    assert_eq!(
        labels(&gateway, "pets", &["cat", "night"]),
        ["night", "cat"]
    );
    let gateway = gateway.kill_and_restart();
    drop(worker);
    let worker = attach(&gateway);
    until_attached(&gateway, 2);
    assert_eq!(
        labels(&gateway, "pets", &["cat", "night"]),
        ["night", "cat"]
    );
    // A training that fails, or is canceled, changes nothing and leaves no token.
    let before = tokens(&gateway, "pets");
    let long = format!("text,label\ncat,a\n{},b\n", "cat ".repeat(600));
    let long = uploaded(&gateway, "long", long);
    let job = fit(&gateway, "pets", long, &json!({}));
    fails(&gateway, job, "tokens");
    let slow = uploaded(&gateway, "slow", many(20_000));
    let job = fit(&gateway, "pets", slow, &json!({}));
    gateway.until(|| tokens(&gateway, "pets").len() > before.len().min(1));
    let canceled = gateway.post(&format!("{BASE}/job/{job}/cancel"), "");
    assert_eq!(canceled.expect(200).json()["status"], "CANCELED");
    gateway.until(|| tokens(&gateway, "pets").len() == 1);
    assert_eq!(
        labels(&gateway, "pets", &["cat", "night"]),
        ["night", "cat"]
    );
    assert_eq!(workers(&gateway).len(), 2);
    drop(worker);
}

/// The folder of trained services belongs to one process.
#[test]
fn a_folder_of_trained_services_is_not_shared() {
    let gateway = start();
    let token = gateway.worker_token("hush_sentence", "first");
    let trained = tempfile::tempdir().expect("a folder");
    let worker = Running::attach_in(&gateway, &token, "hush-sentence", trained.path());
    until_attached(&gateway, 1);
    let second = |arguments: &[&str]| {
        let package = examples().join("hush-sentence").display().to_string();
        let gate = gateway.gate();
        let command = ["attach", "--plain", "--gate", &gate, &package];
        pkgtool([&command[..], arguments].concat()).variable("MLP_SERVICE_TOKEN", &token)
    };
    let folder = trained.path().display().to_string();
    let refused = second(&["--trained", &folder]).run();
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("another pkgtool"),
        "{}",
        refused.stderr
    );
    drop(worker);
    until_attached(&gateway, 0);
    // A file that nobody wrote is not overwritten.
    std::fs::write(trained.path().join(".attached.json"), "{").expect("it can be written");
    let refused = second(&["--trained", &folder]).run();
    assert!(
        refused.stderr.contains("remove the file"),
        "{}",
        refused.stderr
    );
}
