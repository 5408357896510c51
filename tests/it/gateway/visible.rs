//! Tests of service visibility: the services and names that each account sees in the registry, and
//! the owners of settings.

use serde_json::Value;

use super::package;
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{Reply, Upstream};
use crate::support::run::pkgtool;
use crate::support::tree::Tree;

const MODELS: &str = "/api/mlpcore/providers/xnnpack/models";

/// Starts a server with packages in the accounts `local` and `acme`; both have a service `both`.
fn of_two(settings: &str) -> (Gateway, [Tree; 2]) {
    let own = package(package(Tree::new(), "both", "Neg"), "mine", "Neg");
    let others = package(package(Tree::new(), "both", "Relu"), "theirs", "Relu");
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let data = data.to_str().expect("a plain path");
    let setup = Setup::new().on_tested_database();
    // These sort before `local`, by number and by name.
    for name in ["acme", "bolt"] {
        let made = ["accounts", "create", "--rps", "20", "--name", name];
        let mut create = pkgtool(made.into_iter().chain(["--data-dir", data]));
        if let Some(url) = setup.database() {
            create = create.variable("PKGTOOL_DATABASE", url);
        }
        create.run().expect_code(0);
    }
    let publisher = format!(
        "[[publishers]]\naccount = \"acme\"\npackages = [\"{}\"]",
        others.root().display()
    );
    let setup = setup.settings(settings).settings(&publisher);
    let gateway = setup.packages(own.root()).start_in(directory);
    (gateway, [own, others])
}

fn ask(gateway: &Gateway, key: Option<&str>, path: &str) -> Reply {
    let headers: Vec<(&str, &str)> = key.into_iter().map(|key| ("MLP-API-KEY", key)).collect();
    gateway.bare("GET", path, &headers)
}

/// Returns the names that a key's owner sees.
#[track_caller]
fn names(gateway: &Gateway, key: Option<&str>) -> Vec<String> {
    let models = ask(gateway, key, MODELS).expect(200).json();
    let models = models["models"].as_array().expect("a list").clone();
    let name = |model: &Value| model["name"].as_str().expect("a name").to_owned();
    let mut names: Vec<String> = models.iter().map(name).collect();
    // Each service is reachable under its listed name.
    for (name, model) in names.iter().zip(&models) {
        let path = format!("{MODELS}/{}", name.replace('/', "%2F"));
        assert_eq!(ask(gateway, key, &path).expect(200).json(), *model);
    }
    names.sort();
    names
}

#[test]
fn private_services_are_seen_by_their_account_only() {
    let (gateway, _trees) = of_two("");
    let acme = gateway.new_key("acme", "ci", "predict");
    let bolt = gateway.new_key("bolt", "ci", "read");
    // Repeated requests get the same list, also after requests of others.
    for _ in 0..3 {
        assert_eq!(names(&gateway, None), ["both", "mine"]);
        assert_eq!(names(&gateway, Some(&gateway.key)), ["both", "mine"]);
        assert_eq!(names(&gateway, Some(&bolt)), ["both", "mine"]);
        assert_eq!(
            names(&gateway, Some(&acme)),
            ["both", "local/both", "mine", "theirs"]
        );
        // An invalid key counts as a missing key.
        assert_eq!(names(&gateway, Some("pk_wrong")), ["both", "mine"]);
    }
    let theirs = format!("{MODELS}/theirs");
    ask(&gateway, None, &theirs).expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    ask(&gateway, Some(&gateway.key), &theirs).expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    let full = format!("{MODELS}/acme%2Ftheirs");
    ask(&gateway, None, &full).expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    ask(&gateway, Some(&acme), &full).expect(200);
    gateway
        .command(&["accounts", "set", "acme", "--blocked", "true"])
        .expect_code(0);
    gateway.until(|| ask(&gateway, Some(&acme), &theirs).status == 404);
}

#[test]
fn an_accounts_own_names_are_its_own_whatever_others_show() {
    let (gateway, _trees) = of_two("[services.\"acme/both\"]\nlisted = true");
    let acme = gateway.new_key("acme", "ci", "predict");
    for _ in 0..3 {
        assert_eq!(names(&gateway, None), ["acme/both", "both", "mine"]);
        let own = names(&gateway, Some(&gateway.key));
        assert_eq!(own, ["acme/both", "both", "mine"]);
        let theirs = names(&gateway, Some(&acme));
        assert_eq!(theirs, ["both", "local/both", "mine", "theirs"]);
    }
}

#[test]
fn an_owner_chooses_what_is_listed() {
    let (gateway, _trees) = of_two(
        "[services.mine]\nlisted = false\n[services.\"acme/theirs\"]\npublic = true\n\
         [services.\"acme/both\"]\nlisted = true",
    );
    let bolt = gateway.new_key("bolt", "ci", "predict");
    assert_eq!(names(&gateway, None), ["acme/both", "acme/theirs", "both"]);
    assert_eq!(names(&gateway, Some(&bolt)), names(&gateway, None));
    let own = names(&gateway, Some(&gateway.key));
    assert_eq!(own, ["acme/both", "acme/theirs", "both", "mine"]);
    // Visibility does not grant use.
    let base = "/api/mlpgateway/account/acme/model";
    let denied = gateway.get(&format!("{base}/both"));
    denied.expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_NOT_PUBLIC_DENIED");
    let info = gateway.get(&format!("{base}/theirs")).expect(200).json();
    assert_eq!(info["publicSettings"]["isPublic"], true);
    assert_eq!(info["publicSettings"]["isListed"], false);
}

#[test]
fn settings_are_of_one_accounts_service() {
    let (gateway, _trees) = of_two(
        "[services.both]\npredict_timeout_s = 11.0\n\
         [services.\"acme/both\"]\npredict_timeout_s = 22.0",
    );
    let acme = gateway.new_key("acme", "ci", "read");
    for (key, account, seconds) in [(&gateway.key, "local", 11), (&acme, "acme", 22)] {
        let path = format!("/api/mlpgateway/account/{account}/model/both");
        let info = gateway.send_with(key, "GET", &path, "").expect(200).json();
        assert_eq!(info["timeouts"]["predictTimeoutSec"], seconds);
    }
}

#[test]
fn providers_have_names_of_their_own() {
    let upstream = Upstream::start();
    let proxy = |account: &str, name: &str| {
        let url = upstream.url("/echo");
        format!(
            "[[proxies]]\nname = \"{name}\"\naccount = \"{account}\"\nupstream = \"{url}\"\n\
             display_name = \"{name} of {account}\"\n"
        )
    };
    let proxies = [
        proxy("acme", "echo"),
        proxy("local", "echo"),
        proxy("acme", "xnnpack"),
        "[defaults]\nlisted = true\n".to_owned(),
    ];
    let (gateway, _trees) = of_two(&proxies.concat());
    let acme = gateway.new_key("acme", "ci", "predict");
    let providers = |key| {
        let found = ask(&gateway, key, "/api/mlpcore/providers")
            .expect(200)
            .json();
        let found = found["providers"].as_array().expect("a list").clone();
        let text = |it: &Value| format!("{}: {}", it["name"], it["displayName"]).replace('"', "");
        found.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(
        providers(None),
        [
            "acme/echo: echo of acme",
            "acme/xnnpack: xnnpack of acme",
            "echo: echo of local",
            "xnnpack: XNNPACK"
        ]
    );
    assert_eq!(
        providers(Some(&acme)),
        [
            "echo: echo of acme",
            "local/echo: echo of local",
            "xnnpack: XNNPACK"
        ]
    );
    let path = "/api/mlpcore/providers/acme%2Fecho/models/acme%2Fecho";
    let model = ask(&gateway, None, path).expect(200).json();
    assert_eq!(model["provider"]["displayName"], "echo of acme");
}
