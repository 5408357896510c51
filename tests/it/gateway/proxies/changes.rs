//! Tests of proxies that are added, removed and changed while the server runs, and of their names.

use serde_json::json;

use super::{ask, info, proxy, refused, reload};
use crate::gateway::package;
use crate::support::backend::{Backend, Does};
use crate::support::gateway::Setup;
use crate::support::tree::Tree;

#[test]
fn a_reload_adds_changes_and_removes_proxies() {
    let [first, second] = [Backend::start(), Backend::start()];
    let one = |backend: &Backend, more: &str| proxy("one", &[backend.url("/")], more);
    let settings = one(&first, "");
    let gateway = Setup::new()
        .settings(&settings)
        .variable("AN_UPSTREAMS_KEY", "a-key")
        .start();
    let number = info(&gateway, "one")["id"]["modelId"].clone();
    for round in 0..3 {
        // A call in flight finishes at its old address.
        first.does(Does::Holds);
        let task = gateway.create("one", "{}");
        gateway.until(|| first.posts() == 1);
        let changed = one(&second, "key_env = \"AN_UPSTREAMS_KEY\"");
        let both = format!("{changed}{}", proxy("two", &[second.url("/two")], ""));
        assert_eq!(reload(&gateway, &both)["changed"], "proxies");
        assert_eq!(ask(&gateway, "one"), 200);
        assert_eq!(ask(&gateway, "two"), 200);
        assert_eq!(info(&gateway, "one")["id"]["modelId"], number);
        assert_eq!(info(&gateway, "two")["id"]["modelId"], json!(2));
        assert_eq!(ask(&gateway, "2"), 200);
        let seen = second.take_seen();
        let paths: Vec<&str> = seen.iter().map(|seen| seen.path.as_str()).collect();
        assert_eq!(paths, ["/", "/two", "/two"]);
        assert_eq!(seen[0].header("authorization"), ["Bearer a-key"]);
        assert_eq!(gateway.status(&task)["status"], "PROCESSING");
        first.release();
        gateway.wait_for(&task, "COMPLETED");
        assert_eq!(
            gateway.result(&task).expect(200).json(),
            json!({"held": true})
        );

        // Invalid settings change nothing and are reported with their place.
        for (wrong, place) in [
            (
                one(&first, "key_env = \"NO_SUCH_VARIABLE_HERE\""),
                "proxies[0].key_env",
            ),
            (
                one(&first, "account = \"nobody\""),
                "unknown account `nobody`",
            ),
            (
                format!("{both}{}", proxy("3", &[first.url("/")], "")),
                "proxies[2].name",
            ),
            (format!("{both}{both}"), "proxies[2].name"),
        ] {
            let line = reload(&gateway, &wrong).to_string();
            assert!(
                line.contains("reload failed") && line.contains(place),
                "{line}"
            );
            assert_eq!((ask(&gateway, "one"), ask(&gateway, "two")), (200, 200));
        }
        assert_eq!(first.take_seen().len(), 1);

        // A removed proxy's number is not reused.
        assert_eq!(reload(&gateway, &settings)["changed"], "proxies");
        assert_eq!(ask(&gateway, "two"), 400);
        assert_eq!(ask(&gateway, "2"), 400);
        first.answers(200);
        assert_eq!(ask(&gateway, "one"), 200);
        assert_eq!(info(&gateway, "one")["id"]["modelId"], number);
        first.take_seen();
        second.take_seen();
        assert!(round < 3);
    }
    let gateway = gateway.kill_and_restart();
    assert_eq!(info(&gateway, "one")["id"]["modelId"], number);
}

#[test]
fn a_reload_keeps_what_is_known_of_addresses() {
    let backend = Backend::start();
    let gone = ["http://127.0.0.1:9/".to_owned()];
    let settings = [
        proxy("gone", &gone, "health_every_s = 3600"),
        proxy("one", &[backend.url("/")], ""),
    ]
    .concat();
    let gateway = Setup::new().settings(&settings).start();
    gateway.until(|| ask(&gateway, "gone") == 503);
    for level in ["debug", "info", "debug"] {
        let more = format!("{settings}[log]\nlevel = \"{level}\"\n");
        assert_eq!(reload(&gateway, &more)["changed"], "log.level");
        assert_eq!(info(&gateway, "gone")["isActive"], false);
        assert_eq!(ask(&gateway, "one"), 200);
    }
}

#[test]
fn a_name_of_digits_is_refused_and_shadows_no_number() {
    let backend = Backend::start();
    let said = refused(&proxy("2", &[backend.url("/")], ""));
    for part in ["proxies[0].name", "`2`", "id of a service", "`proxy-2`"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    // A package of such a name is not served; the others are.
    let tree = package(package(Tree::new(), "negate", "Neg"), "2", "Relu");
    let gateway = Setup::new()
        .settings(&proxy("one", &[backend.url("/")], ""))
        .packages(tree.root())
        .start();
    gateway.line(|line| {
        let text = line.to_string();
        text.contains("read as a service number") && text.contains("model-2")
    });
    let numbers = ["one", "negate"].map(|name| info(&gateway, name)["id"]["modelId"].clone());
    for (name, number) in ["one", "negate"].into_iter().zip(&numbers) {
        let found = info(&gateway, &number.to_string());
        assert_eq!(found["modelName"], name);
    }
    assert_eq!(gateway.get("/readyz").expect(200).json()["unserved"], 1);
}
