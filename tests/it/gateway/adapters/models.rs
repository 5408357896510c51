//! Tests of the adapters' model list, which shows the services.

use serde_json::{Value, json};

use super::{DIRECT, STANDARD, with_chat};
use crate::gateway::with_models;
use crate::support::gateway::{Gateway, Setup};

fn ids(gateway: &Gateway, key: &str, path: &str) -> Vec<String> {
    let list = gateway.send_with(key, "GET", path, "").expect(200).json();
    assert_eq!(list["object"], "list");
    let data = list["data"].as_array().expect("a list").iter();
    data.map(|model| {
        assert_eq!(model["object"], "model");
        assert!(
            model["created"]
                .as_i64()
                .is_some_and(|at| at > 1_700_000_000)
        );
        model["id"].as_str().expect("an id").to_owned()
    })
    .collect()
}

#[test]
fn models_are_those_that_a_key_may_use() {
    let setup = Setup::new().settings("[services.chat]\npublic = true");
    let (gateway, _server) = with_chat(setup);
    for base in [STANDARD, DIRECT] {
        for path in [format!("{base}/models"), format!("{base}/v1/models")] {
            gateway
                .bare("GET", &path, &[])
                .expect_error(401, "mlp.gateway.access_key_required");
            let own = ids(&gateway, &gateway.key, &path);
            assert_eq!(
                own,
                ["local/chat", "local/raw", "local/text", "local/vectors"]
            );
        }
    }
    gateway.account("acme", 100);
    let key = gateway.new_key("acme", "ci", "predict");
    let path = format!("{STANDARD}/models");
    assert_eq!(ids(&gateway, &key, &path), ["local/chat"]);
    let hidden = gateway.send_with(&key, "GET", &format!("{path}/local/raw"), "");
    hidden.expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_NOT_PUBLIC_DENIED");
}

#[test]
fn an_id_is_read_with_its_slashes_and_without() {
    let (gateway, _server) = with_chat(Setup::new());
    let path = format!("{STANDARD}/models");
    for (written, id) in [
        ("local/chat", "local/chat"),
        ("local%2Fchat", "local/chat"),
        ("local%2fchat%2Fa%20b", "local/chat/a b"),
        ("local/chat/a/b", "local/chat/a/b"),
    ] {
        let model = gateway.get(&format!("{path}/{written}")).expect(200).json();
        assert_eq!(model["id"], id);
        assert_eq!(
            (&model["object"], &model["owned_by"]),
            (&json!("model"), &json!("local"))
        );
    }
    for unknown in [
        "gpt-4o",
        "local",
        "local/none",
        "local%2Fnone",
        "local%252Fchat",
    ] {
        let reply = gateway.get(&format!("{path}/{unknown}"));
        let reply = reply.expect_error(404, "SERVICE_NOT_FOUND");
        assert_eq!(reply.json()["error"]["param"], "model");
    }
    let reply = gateway.get(&format!("{path}/local/%ff"));
    assert_eq!(reply.expect(400).json()["error"]["param"], Value::Null);
    let reply = gateway.post(&format!("{path}/local/chat"), "{}");
    assert_eq!(reply.header("allow"), Some("GET, HEAD"));
    reply.expect_error(405, "METHOD_NOT_ALLOWED");
}

#[test]
fn what_takes_nothing_of_the_kind_is_no_model() {
    let (gateway, _tree) = with_models(Setup::new());
    let none: [&str; 0] = [];
    assert_eq!(
        ids(&gateway, &gateway.key, &format!("{STANDARD}/models")),
        none
    );
}
