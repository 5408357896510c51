//! Tests of access control in the gateway: API keys, permissions and accounts, and the order in
//! which missing access is reported.

use serde_json::json;

use super::{PREFIXES, three, with_models};
use crate::support::gateway::{Gateway, Setup, task_path};
use crate::support::http::Upstream;

/// Returns every operation of an account with the permission that it needs.
fn operations(task: &str) -> Vec<(&'static str, String, &'static str)> {
    let model = "account/local/model/echo";
    let of_task = format!("account/local/async/task/{task}");
    vec![
        ("POST", format!("{model}/async/predict"), "predict"),
        (
            "POST",
            format!("{model}/async/predict-with-config"),
            "predict",
        ),
        (
            "POST",
            format!("{model}/async/predict-with-config-v2"),
            "predict",
        ),
        ("POST", format!("{model}/predict"), "predict"),
        ("POST", format!("{model}/predict-with-config"), "predict"),
        ("POST", format!("{model}/predict-with-config-v2"), "predict"),
        ("GET", of_task.clone(), "read"),
        ("GET", format!("{of_task}/response"), "read"),
        ("GET", "account/local/async/task".to_owned(), "read"),
        ("POST", format!("{of_task}/cancel"), "write"),
        ("DELETE", of_task.clone(), "write"),
        ("GET", model.to_owned(), "read"),
        ("GET", "account/local/model".to_owned(), "read"),
        ("GET", format!("{model}/predict-config"), "read"),
        ("GET", format!("{model}/predict-config/1"), "read"),
        ("POST", format!("{model}/predict-config"), "write"),
        ("DELETE", format!("{model}/predict-config/1"), "write"),
        ("GET", "account/local/usage".to_owned(), "read"),
        ("POST", format!("{model}/derived"), "write"),
        ("POST", format!("{model}/fit"), "write"),
        ("POST", format!("{model}/fit-v2"), "write"),
        ("GET", format!("{model}/fit-config"), "read"),
        ("POST", format!("{model}/fit-config"), "write"),
        ("GET", format!("{model}/last-job"), "read"),
        ("POST", "account/local/dataset/raw".to_owned(), "write"),
        ("GET", "account/local/dataset".to_owned(), "read"),
        ("GET", "account/local/dataset/1".to_owned(), "read"),
        ("GET", "account/local/dataset/1/content".to_owned(), "read"),
        ("DELETE", "account/local/dataset/1".to_owned(), "write"),
        ("GET", "account/local/job".to_owned(), "read"),
        ("GET", "account/local/job/1".to_owned(), "read"),
        ("GET", "account/local/job/1/metrics".to_owned(), "read"),
        ("POST", "account/local/job/1/cancel".to_owned(), "write"),
    ]
}

fn with_echo() -> (Gateway, Upstream) {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    gateway
        .command(&["accounts", "set", "local", "--rps", "1000"])
        .expect_code(0);
    (gateway, upstream)
}

#[test]
fn every_operation_needs_a_key() {
    let (gateway, _upstream) = with_echo();
    for prefix in PREFIXES {
        for (method, path, _) in operations("0199d0d0-0000-7000-8000-000000000000") {
            let path = format!("{prefix}/{path}");
            gateway
                .bare(method, &path, &[])
                .expect_error(401, "mlp.gateway.access_key_required");
            gateway
                .bare(method, &path, &[("MLP-API-KEY", "pk_wrong")])
                .expect_error(401, "mlp.gateway.api_key_not_found");
        }
    }
    gateway
        .bare("POST", "/p/local/echo", &[])
        .expect_error(401, "mlp.gateway.access_key_required");
}

#[test]
fn every_operation_needs_its_permission() {
    let (gateway, _upstream) = with_echo();
    let task = gateway.create("echo", "{}");
    let keys: Vec<(&str, String)> = ["predict", "read", "write"]
        .map(|permission| (permission, gateway.new_key("local", permission, permission)))
        .into();
    for (method, path, needed) in operations(&task) {
        let path = format!("/api/mlpgateway/{path}");
        for (permission, key) in &keys {
            let allowed = needed == *permission || needed == "read" && *permission == "write";
            let reply = gateway.send_with(key, method, &path, "");
            if allowed {
                assert_ne!(reply.status, 403, "{method} {path} with {permission}");
            } else {
                let reply = reply.expect_error(403, "TOKEN_PERMISSION_REQUIRED");
                assert_eq!(reply.json()["error"]["args"]["permission"], needed);
            }
        }
    }
}

#[test]
fn keys_come_in_either_header() {
    let (gateway, _upstream) = with_echo();
    let bearer = format!("Bearer {}", gateway.key);
    let lower = format!("bearer {}", gateway.key);
    for headers in [
        [("authorization", gateway.key.as_str())],
        [("Authorization", &bearer)],
        [("AUTHORIZATION", &lower)],
    ] {
        let path = "/api/mlpgateway/account/local/model/echo";
        let reply = gateway.bare("GET", path, &headers);
        assert_eq!(reply.expect(200).json()["modelName"], "echo");
    }
}

#[test]
fn revoked_and_expired_keys_are_unknown() {
    let (gateway, _upstream) = with_echo();
    let key = gateway.new_key("local", "temporary", "read");
    let path = "/api/mlpgateway/account/local/model/echo";
    gateway.send_with(&key, "GET", path, "").expect(200);
    gateway
        .command(&["keys", "revoke", "temporary"])
        .expect_code(0);
    gateway.until(|| gateway.send_with(&key, "GET", path, "").status == 401);
    let reply = gateway.send_with(&key, "GET", path, "");
    reply.expect_error(401, "mlp.gateway.api_key_not_found");
}

#[test]
fn a_blocked_account_is_told_so_before_anything_else() {
    let (gateway, _upstream) = with_echo();
    let reader = gateway.new_key("local", "reader", "read");
    gateway
        .command(&["accounts", "set", "local", "--blocked", "true"])
        .expect_code(0);
    let any = "/api/mlpgateway/account/local/model/nosuch";
    gateway.until(|| gateway.get(any).status == 402);
    for (method, path, _) in operations("0199d0d0-0000-7000-8000-000000000000") {
        let path = format!("/api/mlpgateway/{path}");
        // Some operations lack the permission, and the objects that they name do not exist.
        gateway
            .send_with(&reader, method, &path, "")
            .expect_error(402, "ACCOUNT_IS_BLOCKED");
    }
    gateway
        .send_with("pk_wrong", "GET", any, "")
        .expect_error(401, "mlp.gateway.api_key_not_found");
    gateway
        .command(&["accounts", "set", "local", "--blocked", "false"])
        .expect_code(0);
    gateway.until(|| gateway.get(any).status == 404);
}

#[test]
fn other_accounts_are_out_of_reach_operation_by_operation() {
    let (gateway, _upstream) = with_echo();
    let task = gateway.create("echo", r#"{"secret":1}"#);
    gateway.wait_for(&task, "COMPLETED");
    gateway.account("other", 100);
    let stranger = gateway.new_key("other", "all", "predict,read,write");
    for (method, path, _) in operations(&task) {
        let path = format!("/api/mlpgateway/{path}");
        let reply = gateway.send_with(&stranger, method, &path, "{}");
        assert_eq!(reply.status, 403, "{method} {path}: {}", reply.text());
        let of_account = ["/async/task", "/usage", "/dataset", "/job"];
        let code = if of_account.iter().any(|part| path.contains(part)) {
            "ACCESS_TO_ANOTHER_ACCOUNT_DENIED"
        } else {
            "ACCESS_TO_ANOTHER_ACCOUNT_NOT_PUBLIC_DENIED"
        };
        assert_eq!(reply.code(), code, "{method} {path}");
        assert!(!reply.text().contains("secret"));
    }
    // The stranger finds a task of that number under its own name, but not the other account's
    // content.
    let own = format!("/api/mlpgateway/account/other/async/task/{task}");
    for path in [own.clone(), format!("{own}/response")] {
        gateway
            .send_with(&stranger, "GET", &path, "")
            .expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_DENIED");
    }
    gateway
        .send_with(&stranger, "POST", &format!("{own}/cancel"), "")
        .expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_DENIED");
    // To a stranger, a missing service looks the same as a private one.
    for path in ["account/local/model/nosuch", "account/nobody/model/echo"] {
        gateway
            .send_with(&stranger, "GET", &format!("/api/mlpgateway/{path}"), "")
            .expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_NOT_PUBLIC_DENIED");
    }
    let list = gateway.send_with(
        &stranger,
        "GET",
        "/api/mlpgateway/account/other/async/task",
        "",
    );
    assert_eq!(list.expect(200).json(), json!([]));
}

#[test]
fn a_public_service_makes_the_callers_own_task() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .proxy("echo", &upstream.url("/echo"))
        .settings("[services.echo]\npublic = true")
        .start();
    gateway.account("other", 100);
    let key = gateway.new_key("other", "all", "predict,read,write");
    let path = "/api/mlpgateway/account/local/model/echo/async/predict";
    let id = gateway
        .send_with(&key, "POST", path, "{}")
        .expect(200)
        .json();
    let id = id.as_str().expect("an id");
    let own = format!("/api/mlpgateway/account/other/async/task/{id}?wait=30");
    let done = gateway.send_with(&key, "GET", &own, "").expect(200).json();
    assert_eq!(done["status"], "COMPLETED");
    assert_eq!(done["callerId"], 2);
    // The service belongs to a different account than the task.
    gateway
        .get(&task_path(id))
        .expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_DENIED");
}

#[test]
fn secrets_are_nowhere_but_with_their_owner() {
    let (gateway, _tree) = with_models(Setup::new().settings("[log]\nlevel = \"trace\""));
    let secret = gateway.new_key("local", "second", "predict,read");
    let task = gateway.create("negate", three([1.0; 3]));
    gateway.wait_for(&task, "COMPLETED");
    gateway
        .send_with(&secret, "POST", "/p/local/negate", "{")
        .expect(400);
    let metrics = gateway.bare("GET", "/metrics", &[]).expect(200).text();
    let wrong = gateway.send_with(
        "pk_wrong_one",
        "GET",
        "/api/mlpgateway/account/local/model/x",
        "",
    );
    let first = gateway.key.clone();
    let (_, log, directory) = gateway.stop();
    let mut places = vec![("log", log), ("metrics", metrics), ("error", wrong.text())];
    for file in ["pkgtool.db", "pkgtool.db-wal"] {
        let bytes = std::fs::read(directory.path().join("data").join(file)).unwrap_or_default();
        places.push((file, String::from_utf8_lossy(&bytes).into_owned()));
    }
    assert!(
        places[0].1.contains("second"),
        "keys are logged by their name"
    );
    for (place, text) in &places {
        for secret in [&first, &secret, "pk_wrong_one"] {
            assert!(!text.contains(secret), "{place} has a key");
        }
        // The request's body is stored only in the task's record.
        let is_record = place.starts_with("pkgtool.db");
        assert!(
            is_record || !text.contains("\"data\":["),
            "{place} has a body"
        );
    }
}

#[test]
fn a_request_keeps_its_id() {
    let (gateway, _upstream) = with_echo();
    let reply = gateway.bare("GET", "/healthz", &[("Z-requestId", "mine-17")]);
    assert_eq!(reply.expect(200).header("z-requestid"), Some("mine-17"));
    let reply = gateway.bare("GET", "/nowhere", &[("Z-requestId", "mine-18")]);
    let reply = reply.expect_error(404, "PATH_NOT_FOUND");
    assert_eq!(reply.header("z-requestid"), Some("mine-18"));
    for wrong in ["with space", &"x".repeat(200)] {
        let reply = gateway.bare("GET", "/healthz", &[("Z-requestId", wrong)]);
        let made = reply.header("z-requestid").expect("one is made").to_owned();
        assert_ne!(made, wrong);
    }
    let mut ids: Vec<String> = (0..20)
        .map(|_| gateway.bare("GET", "/healthz", &[]))
        .map(|reply| reply.header("z-requestid").expect("one is made").to_owned())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
}
