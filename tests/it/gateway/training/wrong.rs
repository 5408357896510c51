//! Tests of invalid requests to derive and to train services.

use serde_json::json;

use super::{BASE, derived, ended, fit, scenes, start, uploaded};
use crate::gateway::with_models;
use crate::support::gateway::Setup;

#[test]
fn what_cannot_be_derived_is_refused() {
    let gateway = start();
    let path = format!("{BASE}/model/hush_sentence/derived");
    for name in ["", "Scenes", "-a", "17", "a%20b", &"x".repeat(101)] {
        let refused = gateway
            .post(&format!("{path}?name={name}"), "")
            .expect(400)
            .json();
        assert_eq!(refused["error"]["args"]["place"], "name", "{name}");
    }
    gateway.post(&path, "").expect(400);
    gateway.post(&path, "[").expect(400);
    gateway
        .post(&path, json!({"name": "in_body"}).to_string())
        .expect(200);
    gateway
        .post(
            &format!("{path}?name=in_query"),
            json!({"name": "in_body"}).to_string(),
        )
        .expect(200);
    for taken in ["in_query", "hush_sentence"] {
        gateway
            .post(&format!("{path}?name={taken}"), "")
            .expect_error(409, "SERVICE_NAME_IS_TAKEN");
    }
    gateway
        .post(&format!("{BASE}/model/nobody/derived?name=x"), "")
        .expect(404);
    gateway
        .post(&format!("{BASE}/model/in_query/derived?name=x"), "")
        .expect_error(409, "SERVICE_IS_NOT_TRAINABLE");
    let (models, _tree) = with_models(Setup::new());
    models
        .post(&format!("{BASE}/model/negate/derived?name=x"), "")
        .expect_error(409, "SERVICE_IS_NOT_TRAINABLE");
    // Derived services survive a restart.
    let gateway = gateway.kill_and_restart();
    gateway
        .post(&format!("{path}?name=in_query"), "")
        .expect_error(409, "SERVICE_NAME_IS_TAKEN");
    let info = gateway
        .get(&format!("{BASE}/model/in_query"))
        .expect(200)
        .json();
    assert_eq!(
        (&info["isActive"], &info["derivedFrom"]["modelName"]),
        (&json!(false), &json!("hush_sentence"))
    );
}

#[test]
fn what_cannot_be_trained_is_refused() {
    let gateway = start();
    let dataset = uploaded(&gateway, "scenes.csv", scenes());
    derived(&gateway, "hush_sentence", "scenes");
    let path = format!("{BASE}/model/scenes/fit");
    for (body, status, words) in [
        (json!({"datasetId": dataset}), 400, "got neither"),
        (
            json!({"datasetId": dataset, "config": {}, "configId": 0}),
            400,
            "got both",
        ),
        (json!({"config": {}}), 400, "datasetId"),
        (
            json!({"datasetId": "one", "config": {}}),
            400,
            "invalid body",
        ),
        (
            json!({"datasetId": 99, "config": {}}),
            404,
            "unknown dataset `99`",
        ),
        (
            json!({"datasetId": dataset, "configId": 99}),
            404,
            "unknown fit config `99`",
        ),
        (
            json!({"datasetId": dataset, "config": {"l2": -1}}),
            400,
            "from 0",
        ),
        (
            json!({"datasetId": dataset, "config": {"precision": "int4"}}),
            400,
            "unknown precision `int4`",
        ),
        (
            json!({"datasetId": dataset, "config": "{"}),
            400,
            "invalid JSON",
        ),
        (json!({"datasetId": dataset, "config": 1}), 400, "an object"),
    ] {
        let refused = gateway.post(&path, body.to_string()).expect(status);
        assert!(refused.text().contains(words), "{body}: {}", refused.text());
    }
    let body = json!({"datasetId": dataset, "config": {}}).to_string();
    let base = format!("{BASE}/model/hush_sentence/fit");
    gateway
        .post(&base, body)
        .expect_error(409, "SERVICE_IS_NOT_DERIVED");
    let pictures =
        "{\"image_base64\": \"AA==\", \"label\": 1}\n{\"image_base64\": \"AAA=\", \"label\": 2}\n";
    let pictures = uploaded(&gateway, "pictures.jsonl", pictures);
    let refused = gateway
        .post(
            &path,
            json!({"datasetId": pictures, "config": {}}).to_string(),
        )
        .expect(400);
    assert!(
        refused.text().contains("does not embed pictures"),
        "{}",
        refused.text()
    );
    let config = format!("{BASE}/model/scenes/fit-config");
    gateway
        .post(&config, json!({"name": " ", "config": {}}).to_string())
        .expect(400);
    gateway
        .post(
            &config,
            json!({"name": "a", "config": {"depth": 1}}).to_string(),
        )
        .expect(400);
    assert_eq!(
        gateway.get(&format!("{BASE}/job")).expect(200).json(),
        json!([])
    );
}

#[test]
fn a_row_that_the_model_does_not_take_fails_the_job_with_its_line() {
    let gateway = start();
    derived(&gateway, "hush_sentence", "scenes");
    let long = "dog ".repeat(3000);
    let text = format!("text,label\na cat,x\n\"two\nlines\",y\n{long},x\n");
    let dataset = uploaded(&gateway, "long.csv", text);
    let number = fit(&gateway, "scenes", dataset, &json!({}));
    let failed = ended(&gateway, number);
    assert_eq!(failed["status"], "FAILED");
    let message = failed["errorMessage"].as_str().expect("a text");
    assert!(message.starts_with("line 5: "), "{message}");
    let number = fit(&gateway, "scenes", dataset, &json!({"truncate": true}));
    assert_eq!(
        ended(&gateway, number)["status"],
        "SUCCESS",
        "cut, as it was asked for"
    );
}
