//! Tests of the names of derived services, which may contain a `-`, unlike model tokens.

use serde_json::json;

use super::{BASE, derived, fit, fixture, labels, start, succeeded, uploaded};
use crate::support::run::validate;

#[test]
fn a_name_may_have_what_a_model_token_has_not() {
    let gateway = start();
    let scenes = std::fs::read_to_string(fixture("scenes.csv")).expect("the fixture is there");
    let dataset = uploaded(&gateway, "scenes.csv", scenes);
    let names = ["my-scenes", "my_scenes", "2-go"];
    for name in names {
        let service = derived(&gateway, "hush_sentence", name);
        assert_eq!(service["modelName"], name);
        succeeded(&gateway, fit(&gateway, name, dataset, &json!({"l2": 0.1})));
        assert_eq!(labels(&gateway, name, &["a cat sleeps"]).len(), 1);
    }
    let account = gateway
        .get(&format!("{BASE}/model/my-scenes"))
        .expect(200)
        .json();
    let account = account["id"]["accountId"].to_string();
    let trained = gateway.data().join("trained").join(account);
    let config = trained.join("my-scenes/xnnpack/config.json");
    let backend = if config.is_file() { "xnnpack" } else { "mlx" };
    let config = trained.join(format!("my-scenes/{backend}/config.json"));
    let config = std::fs::read_to_string(config).expect("it is there");
    let config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    assert_eq!(config["model"], "my_scenes", "a token of the format");
    let checked = validate(&trained.join("my-scenes"), ".").expect_code(0);
    assert_eq!(checked.codes(), Vec::<String>::new());
    let gateway = gateway.kill_and_restart();
    for name in names {
        assert_eq!(labels(&gateway, name, &["a cat sleeps"]).len(), 1);
        let info = gateway
            .get(&format!("{BASE}/model/{name}"))
            .expect(200)
            .json();
        assert_eq!(
            (&info["modelName"], &info["isActive"]),
            (&json!(name), &json!(true))
        );
    }
}
