//! Tests of training jobs that survive crashes, stops and cancellations.

use serde_json::json;

use super::{BASE, derived, ended, fit, job, labels, many, scenes, start, succeeded, uploaded};
use crate::support::gateway::Gateway;

/// Waits until a job is in the middle of its work.
#[track_caller]
fn under_way(gateway: &Gateway, number: i64) {
    gateway.until(|| {
        let now = job(gateway, number);
        assert_eq!(now["done"], json!(false), "it was too fast: {now}");
        now["status"] == "RUNNING" && now["percentage"].as_u64().expect("a number") >= 5
    });
}

#[test]
fn a_kill_in_the_middle_loses_neither_dataset_nor_job() {
    let mut gateway = start();
    let text = many(8000);
    let dataset = uploaded(&gateway, "many.csv", &text);
    derived(&gateway, "hush_sentence", "sorted");
    derived(&gateway, "hush_sentence", "scenes");
    let number = fit(&gateway, "sorted", dataset, &json!({}));
    let small = uploaded(&gateway, "scenes.csv", scenes());
    let waiting = fit(&gateway, "scenes", small, &json!({}));
    for attempt in 1..=2 {
        under_way(&gateway, number);
        assert_eq!(job(&gateway, number)["attempt"], json!(attempt));
        gateway = gateway.kill_and_restart();
    }
    let content = gateway
        .get(&format!("{BASE}/dataset/{dataset}/content"))
        .expect(200);
    assert_eq!(content.text(), text);
    let done = succeeded(&gateway, number);
    assert_eq!(done["attempt"], json!(3));
    succeeded(&gateway, waiting);
    assert_eq!(
        labels(
            &gateway,
            "sorted",
            &[
                "cat cat cat cat dog tree",
                "night night night night dog tree"
            ]
        ),
        ["first", "second"]
    );
    let gateway = gateway.kill_and_restart();
    assert_eq!(job(&gateway, number), done, "a finished job never changes");
    assert_eq!(labels(&gateway, "scenes", &["a fast dog"]), ["animals"]);
    let making = gateway.data().join("trained/making");
    assert_eq!(std::fs::read_dir(making).expect("it is there").count(), 0);
}

#[test]
fn a_stop_puts_a_job_back_and_a_cancel_ends_it() {
    let gateway = start();
    let dataset = uploaded(&gateway, "many.csv", many(8000));
    let service = derived(&gateway, "hush_sentence", "sorted");
    let number = fit(&gateway, "sorted", dataset, &json!({}));
    under_way(&gateway, number);
    let gateway = gateway.stop_and_change(|_| {});
    under_way(&gateway, number);
    assert_eq!(
        job(&gateway, number)["attempt"],
        json!(1),
        "a stop does not count as a failed attempt"
    );
    gateway
        .send("DELETE", &format!("{BASE}/dataset/{dataset}"), "")
        .expect_error(409, "DATASET_IS_NEEDED");
    let again = json!({"datasetId": dataset, "config": {}}).to_string();
    gateway
        .post(&format!("{BASE}/model/sorted/fit"), &again)
        .expect_error(409, "SERVICE_IS_BEING_TRAINED");
    let cancel = format!("{BASE}/job/{number}/cancel");
    let canceled = gateway.post(&cancel, "").expect(200).json();
    assert_eq!(
        (&canceled["status"], &canceled["done"]),
        (&json!("CANCELED"), &json!(true))
    );
    assert_eq!(
        gateway.post(&cancel, "").expect(200).json(),
        canceled,
        "the second time, too"
    );
    assert_eq!(ended(&gateway, number), canceled);
    gateway
        .get(&format!("{BASE}/job/{number}/metrics"))
        .expect_error(404, "JOB_HAS_NO_METRICS");
    let info = gateway
        .get(&format!("{BASE}/model/sorted"))
        .expect(200)
        .json();
    assert_eq!(
        (&info["isActive"], &info["id"]),
        (&json!(false), &service["id"])
    );
    // The service is free: a waiting job is cancelled at once, and the next job runs.
    let small = uploaded(&gateway, "scenes.csv", scenes());
    let next = fit(&gateway, "sorted", small, &json!({}));
    succeeded(&gateway, next);
    assert_eq!(labels(&gateway, "sorted", &["a fast dog"]), ["animals"]);
    gateway
        .send("DELETE", &format!("{BASE}/dataset/{dataset}"), "")
        .expect(200);
    gateway
        .get(&format!("{BASE}/dataset/{dataset}"))
        .expect(404);
    assert_eq!(job(&gateway, number)["datasetId"], json!(dataset));
}

#[test]
fn a_backup_has_datasets_and_results() {
    let gateway = start();
    let dataset = uploaded(&gateway, "scenes.csv", scenes());
    derived(&gateway, "hush_sentence", "scenes");
    let number = fit(&gateway, "scenes", dataset, &json!({}));
    succeeded(&gateway, number);
    let directory = tempfile::tempdir().expect("a directory");
    let into = directory.path().join("copy");
    gateway
        .command(&["admin", "backup", into.to_str().expect("a plain path")])
        .expect_code(0);
    let key = gateway.key.clone();
    let packages = super::examples().join("hush-sentence");
    let copied = crate::support::gateway::Setup::new()
        .packages(packages)
        .start_on(&key, |data| {
            std::fs::rename(&into, data).expect("it can be moved");
        });
    let content = copied
        .get(&format!("{BASE}/dataset/{dataset}/content"))
        .expect(200);
    assert_eq!(content.text(), scenes());
    assert_eq!(labels(&copied, "scenes", &["a fast dog"]), ["animals"]);
    assert_eq!(job(&copied, number)["status"], "SUCCESS");
}
