//! Tests of trainings with several labels per row.

use std::fs;

use serde_json::{Value, json};

use super::{BASE, derived, ended, fit, fixture, start, succeeded, upload, uploaded};
use crate::support::gateway::Gateway;

fn pairs() -> String {
    fs::read_to_string(fixture("pairs.csv")).expect("the fixture is there")
}

/// Returns the labels that hold for a text.
fn holding(gateway: &Gateway, text: &str, config: &Value) -> Vec<String> {
    let path = format!("{BASE}/model/pairs/predict-with-config");
    let body = json!({"data": {"texts": [text]}, "config": config});
    let said = gateway.post(&path, body.to_string()).expect(200).json();
    let labels = said["classified_texts"][0]["labels"].as_array();
    let labels = labels.expect("a list").iter();
    let holding = labels.filter(|it| it["holds"] == json!(true));
    let mut names: Vec<String> = holding
        .map(|it| it["label"].as_str().expect("a label").to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_text_has_the_labels_that_hold() {
    let gateway = start();
    let dataset = uploaded(&gateway, "pairs.csv", pairs());
    let path = format!("{BASE}/dataset/{dataset}");
    let stored = gateway.get(&path).expect(200).json();
    assert_eq!(
        (&stored["multiLabel"], &stored["rows"]),
        (&json!(true), &json!(174))
    );
    assert_eq!(
        stored["labels"].as_object().map(serde_json::Map::len),
        Some(3)
    );
    derived(&gateway, "hush_sentence", "pairs");
    // The third training has the same result as the first.
    let mut results = Vec::new();
    for _ in 0..3 {
        let job = succeeded(&gateway, fit(&gateway, "pairs", dataset, &json!({})));
        let metrics = job["metrics"].clone();
        let f1 = metrics["validation"]["macro_f1"]
            .as_f64()
            .expect("a number");
        assert!(f1 > 0.85, "{metrics}");
        assert_eq!(metrics["multi_label"], json!(true));
        assert_eq!(
            metrics["curve"].as_array().map(Vec::len),
            Some(4),
            "{metrics}"
        );
        assert!(
            metrics["validation"].get("confusion_matrix").is_none(),
            "{metrics}"
        );
        results.push(metrics);
    }
    assert_eq!(results[0], results[2]);
    let none = json!({});
    assert_eq!(
        holding(&gateway, "a small dog and the river", &none),
        ["animals", "places"]
    );
    assert_eq!(holding(&gateway, "the old man", &none), ["people"]);
    assert_eq!(holding(&gateway, "a new phone", &none), [""; 0]);
    let all = json!({"threshold": 0.0});
    assert_eq!(holding(&gateway, "a new phone", &all).len(), 3);
    let document = gateway
        .get("/openapi.json?service=local/pairs")
        .expect(200)
        .json();
    let path = "/api/mlpgateway/account/{account}/model/{model}/predict";
    let answer = "/post/responses/200/content/application~1json/schema/anyOf/0/properties/classified_texts/items";
    let answer = document["paths"][path].pointer(answer).expect("a schema");
    let label = &answer["properties"]["labels"]["items"]["properties"];
    assert_eq!(
        label["label"]["enum"],
        json!(["animals", "people", "places"])
    );
    assert_eq!(label["holds"]["type"], "boolean");
    let page = gateway
        .get(&format!("{BASE}/job/1/report"))
        .expect(200)
        .text();
    assert!(
        page.contains("method logistic") && !page.contains("<h2>Confusion"),
        "{page}"
    );
}

#[test]
fn rows_have_one_key_for_labels_and_centroids_one_label() {
    let gateway = start();
    let row = |labels: &str| format!("{{\"text\": \"a dog\", {labels}}}\n");
    let good = row("\"labels\": [\"x\", \"y\"]") + &row("\"labels\": []");
    for (wrong, words) in [
        ("\"label\": \"x\"", "has `label`, but line 1 has `labels`"),
        (
            "\"label\": \"x\", \"labels\": []",
            "has both `label` and `labels`",
        ),
        (
            "\"labels\": \"x\"",
            "`labels` is a string; expected an array",
        ),
        ("\"labels\": [\"x\", \"x\"]", "`labels` has `x` twice"),
        ("\"labels\": [\" \"]", "`labels` has an empty label"),
        (
            "\"labels\": [\"x\", 1]",
            "`labels` has a number, but a string",
        ),
        (
            "\"labels\": [[\"x\"]]",
            "`labels` has an array; expected a string",
        ),
    ] {
        let text = upload(&gateway, "a.jsonl", good.clone() + &row(wrong))
            .expect(400)
            .text();
        assert!(
            text.contains("line 3: ") && text.contains(words),
            "{words}: {text}"
        );
    }
    for (all, words) in [
        (row("\"labels\": []").repeat(2), "all `labels` are empty"),
        (
            row("\"labels\": [\"x\"]").repeat(2),
            "all 2 rows have the label `x`",
        ),
        (
            "text,label,labels\na,x,y\n".to_owned(),
            "has both `label` and `labels`",
        ),
        ("text,labels\na,x|\nb,y\n".to_owned(), "an empty label"),
    ] {
        let text = upload(&gateway, "a", all).expect(400).text();
        assert!(text.contains(words), "{words}: {text}");
    }
    let dataset = uploaded(&gateway, "good.jsonl", good);
    derived(&gateway, "hush_sentence", "pairs");
    let job = fit(&gateway, "pairs", dataset, &json!({"method": "centroids"}));
    let job = ended(&gateway, job);
    assert_eq!(job["status"], "FAILED");
    assert!(job.to_string().contains("one `label` per row"), "{job}");
}
