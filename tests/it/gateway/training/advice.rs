//! Tests of what a training advises: few rows, thresholds, and the report.

use std::fs;

use serde_json::{Value, json};

use super::{BASE, derived, fit, fixture, start, succeeded, uploaded};

/// Returns the first `count` rows of each label, with their header.
fn some_scenes(count: usize) -> String {
    let text = fs::read_to_string(fixture("scenes.csv")).expect("the fixture is there");
    let mut lines = text.lines();
    let mut kept = vec![lines.next().expect("a header")];
    for label in ["animals", "people", "places"] {
        let own = text
            .lines()
            .filter(|line| line.ends_with(&format!(",{label}")));
        kept.extend(own.take(count));
    }
    kept.join("\n")
}

#[test]
fn few_rows_are_judged_by_the_others_and_thresholds_abstain() {
    let gateway = start();
    for (name, count, is_few) in [("few-scenes", 7, true), ("scenes", 30, false)] {
        let dataset = uploaded(&gateway, &format!("{name}.csv"), some_scenes(count));
        derived(&gateway, "hush_sentence", name);
        let job = succeeded(&gateway, fit(&gateway, name, dataset, &json!({})));
        let metrics = &job["metrics"];
        assert_eq!(
            metrics["cross_validated"] == json!(true),
            is_few,
            "{metrics}"
        );
        let rows = metrics["validation_rows"].as_u64().expect("a number");
        assert_eq!(rows == 3 * count as u64, is_few, "{metrics}");
        assert_eq!(
            metrics["curve"].as_array().map(Vec::len),
            Some(if is_few { 0 } else { 4 })
        );
        let hints = metrics["hints"].to_string();
        assert_eq!(hints.contains("fewer than 8 rows"), is_few, "{hints}");
        for wrong in metrics["worst"].as_array().expect("a list") {
            let line = wrong["line"].as_u64().expect("a line");
            assert!((2..=1 + 3 * count as u64).contains(&line), "{wrong}");
            assert_ne!(wrong["label"], wrong["predicted"]);
        }
    }
    // A threshold of a config replaces that of the package.
    let path = format!("{BASE}/model/scenes/predict-with-config");
    let ask = |threshold: Value| {
        let config = json!({ "threshold": threshold });
        let body = json!({"data": {"texts": ["a small dog"]}, "config": config});
        gateway.post(&path, body.to_string())
    };
    for (threshold, abstains) in [(json!(1.0), json!(true)), (json!(0.0), json!(false))] {
        let said = ask(threshold).expect(200).json();
        assert_eq!(said["classified_texts"][0]["abstains"], abstains, "{said}");
        assert_eq!(said["classified_texts"][0]["labels"][0]["label"], "animals");
    }
    let refused = ask(json!(2)).expect(400).text();
    assert!(refused.contains("a number from 0 to 1"), "{refused}");
}

#[test]
fn a_report_is_a_page_in_which_labels_are_texts() {
    let gateway = start();
    let rows = some_scenes(10).replace(",people", ",<script>alert(1)</script>");
    let dataset = uploaded(&gateway, "hostile.csv", rows);
    derived(&gateway, "hush_sentence", "hostile");
    let job = fit(
        &gateway,
        "hostile",
        dataset,
        &json!({"method": "centroids"}),
    );
    succeeded(&gateway, job);
    let page = gateway.get(&format!("{BASE}/job/{job}/report")).expect(200);
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    let page = page.text();
    assert!(
        page.contains("&lt;script&gt;alert(1)") && !page.contains("<script"),
        "{page}"
    );
    assert!(page.contains("method centroids"), "{page}");
    gateway.get(&format!("{BASE}/job/999/report")).expect(404);
}
