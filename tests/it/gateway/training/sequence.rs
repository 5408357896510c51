//! Test of the specification's training sequence with a real text encoder, compared with
//! scikit-learn.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use super::{BASE, derived, ended, fit, fixture, labels, scenes, start, succeeded, uploaded};
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, Setup};
use crate::support::run::validate;
use crate::support::sklearn::scikit_learn;

/// Script that trains scikit-learn on the same vectors. Standard input holds the vectors, the
/// labels and the first test row.
const SCIKIT_LEARN: &str = "
import json, sys
from sklearn.linear_model import LogisticRegression
given = json.load(sys.stdin)
x, y, first = given['x'], given['y'], given['first']
model = LogisticRegression(C=1.0, max_iter=1000).fit(x[:first], y[:first])
print(json.dumps({'accuracy': model.score(x[first:], y[first:])}))
";

/// Script that lets scikit-learn choose by cross-validation among penalties and nearest centroids, for some of the first
/// rows and for all of them, and measures macro F1 on the others.
const CHOSEN_BY_SCIKIT_LEARN: &str = "
import json, sys, warnings
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import NearestCentroid
warnings.simplefilter('ignore')
given = json.load(sys.stdin)
x, y, first = np.array(given['x']), np.array(given['y']), given['first']
models = [LogisticRegression(C=c, max_iter=1000) for c in np.logspace(-2, 4, 7)] + [NearestCentroid()]
def best(rows):
    folds = StratifiedKFold(min(4, min(np.unique(y[rows], return_counts=True)[1])))
    score = lambda model: cross_val_score(model, x[rows], y[rows], cv=folds, scoring='f1_macro').mean()
    model = max(models, key=score).fit(x[rows], y[rows])
    return f1_score(y[first:], model.predict(x[first:]), average='macro')
few = np.mean([best(draw) for draw in given['draws']])
print(json.dumps([few, best(list(range(first)))]))
";

struct Row {
    text: String,
    label: String,
}

fn topics() -> Vec<Row> {
    let text = fs::read_to_string(fixture("topics.jsonl")).expect("the fixture is there");
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let of = |key: &str| row[key].as_str().expect("a text").to_owned();
        Row {
            text: of("text"),
            label: of("label"),
        }
    };
    text.lines().map(row).collect()
}

/// Returns the vectors that the service computes for texts.
fn vectors(gateway: &Gateway, service: &str, rows: &[Row]) -> Vec<Value> {
    let path = format!("{BASE}/model/{service}/predict");
    let mut vectors = Vec::new();
    for rows in rows.chunks(40) {
        let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
        let answer = gateway
            .post(&path, json!({"texts": texts}).to_string())
            .expect(200)
            .json();
        let embedded = answer["embedded_texts"].as_array().expect("a list");
        vectors.extend(embedded.iter().map(|it| it["vector"].clone()));
    }
    vectors
}

fn accuracy(found: &[String], rows: &[Row]) -> f64 {
    let right = found
        .iter()
        .zip(rows)
        .filter(|(found, row)| **found == row.label);
    f64::from(u32::try_from(right.count()).expect("few"))
        / f64::from(u32::try_from(rows.len()).expect("few"))
}

#[test]
fn a_real_encoder_learns_as_well_as_scikit_learn() {
    let test = "a_real_encoder_learns_as_well_as_scikit_learn";
    let (Some(package), Some(sklearn)) = (
        EnvironmentPiece::Minilm.or_skip(test),
        EnvironmentPiece::Sklearn.or_skip(test),
    ) else {
        return;
    };
    let gateway = Setup::new().packages(package).start();
    let base = "all_minilm_l6_v2";
    let rows = topics();
    let first = 160;
    let lines = fs::read_to_string(fixture("topics.jsonl")).expect("the fixture is there");
    let training: Vec<&str> = lines.lines().take(first).collect();
    let dataset = uploaded(&gateway, "topics.jsonl", training.join("\n"));
    let service = derived(&gateway, base, "topics");
    let (account, model) = (&service["id"]["accountId"], &service["id"]["modelId"]);
    // The path uses numbers and the prefix spelling of the specification.
    let path = format!("/api/mlpgate/account/{account}/model/{model}/fit");
    let body = json!({"datasetId": dataset, "config": {"validation_fraction": 0.0}});
    let job = gateway.post(&path, body.to_string()).expect(200).json();
    succeeded(&gateway, job["jobId"].as_i64().expect("a number"));
    let test_rows = &rows[first..];
    let texts: Vec<&str> = test_rows.iter().map(|row| row.text.as_str()).collect();
    let own = accuracy(&labels(&gateway, "topics", &texts), test_rows);
    let given = json!({
        "x": vectors(&gateway, base, &rows),
        "y": rows.iter().map(|row| row.label.as_str()).collect::<Vec<_>>(),
        "first": first,
    });
    let said = scikit_learn(&sklearn, SCIKIT_LEARN, &given);
    let theirs = said["accuracy"].as_f64().expect("a number");
    assert!(theirs > 0.7, "scikit-learn separates the topics: {theirs}");
    assert!(
        (own - theirs).abs() <= 0.01,
        "{own}, and scikit-learn {theirs}"
    );
}

/// Returns the mean F1 of the labels.
fn macro_f1(found: &[String], rows: &[Row]) -> f64 {
    let names: BTreeSet<&str> = rows.iter().map(|row| row.label.as_str()).collect();
    let count = |holds: &dyn Fn(&str, &str) -> bool| {
        let pairs = found.iter().zip(rows);
        let count = pairs
            .filter(|(found, row)| holds(found, &row.label))
            .count();
        f64::from(u32::try_from(count).expect("few"))
    };
    let scores = names.iter().map(|name| {
        let hits = count(&|found, label| found == *name && label == *name);
        let others = count(&|found, label| (found == *name) != (label == *name));
        2.0 * hits / (2.0 * hits + others).max(1.0)
    });
    scores.sum::<f64>() / f64::from(u32::try_from(names.len()).expect("few"))
}

#[test]
fn a_training_without_settings_is_as_good_as_a_choice_by_cross_validation() {
    let test = "a_training_without_settings_is_as_good_as_a_choice_by_cross_validation";
    let (Some(package), Some(sklearn)) = (
        EnvironmentPiece::Minilm.or_skip(test),
        EnvironmentPiece::Sklearn.or_skip(test),
    ) else {
        return;
    };
    let gateway = Setup::new().packages(package).start();
    let base = "all_minilm_l6_v2";
    let (rows, first) = (topics(), 160);
    let lines = fs::read_to_string(fixture("topics.jsonl")).expect("the fixture is there");
    let lines: Vec<&str> = lines.lines().collect();
    // Six draws of four rows of each label: a single one says little.
    let mut draws = vec![Vec::new(); 6];
    let mut seen = BTreeMap::<&str, usize>::new();
    for (place, row) in rows[..first].iter().enumerate() {
        let seen = seen.entry(&row.label).or_default();
        if let Some(draw) = draws.get_mut(*seen / 4) {
            draw.push(place);
        }
        *seen += 1;
    }
    let test_rows = &rows[first..];
    let texts: Vec<&str> = test_rows.iter().map(|row| row.text.as_str()).collect();
    let learnt = |name: &str, chosen: &[usize], is_few: bool| {
        let training: Vec<&str> = chosen.iter().map(|row| lines[*row]).collect();
        let dataset = uploaded(&gateway, &format!("{name}.jsonl"), training.join("\n"));
        derived(&gateway, base, name);
        let job = succeeded(&gateway, fit(&gateway, name, dataset, &json!({})));
        let is_validated = job["metrics"]["cross_validated"] == json!(true);
        assert_eq!(is_validated, is_few, "{job}");
        macro_f1(&labels(&gateway, name, &texts), test_rows)
    };
    let few = draws.iter().enumerate();
    let few = few.map(|(place, draw)| learnt(&format!("few-{place}"), draw, true));
    let few = few.sum::<f64>() / 6.0;
    let all = learnt("all", &(0..first).collect::<Vec<_>>(), false);
    let given = json!({
        "x": vectors(&gateway, base, &rows),
        "y": rows.iter().map(|row| row.label.as_str()).collect::<Vec<_>>(),
        "first": first,
        "draws": draws,
    });
    let theirs = scikit_learn(&sklearn, CHOSEN_BY_SCIKIT_LEARN, &given);
    let theirs: Vec<f64> = serde_json::from_value(theirs).expect("a list of numbers");
    assert!(
        few >= theirs[0] - 0.02 && all >= theirs[1] - 0.02,
        "few rows, and all: {few}, {all}; scikit-learn {theirs:?}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one walk, step after step")]
fn every_step_answers_as_the_contract_says() {
    let gateway = start();
    let base = format!("{BASE}/model/hush_sentence");
    let info = gateway.get(&base).expect(200).json();
    assert_eq!(info["fittable"], true);
    let stored = json!({"name": "ours", "config": {"precision": "fp32", "normalize": true}, "isDefault": true});
    gateway
        .post(&format!("{base}/predict-config"), stored.to_string())
        .expect(200);
    let config = json!({"name": "strong", "config": {"l2": 0.3, "seed": 4}, "isDefault": true});
    let config = gateway
        .post(&format!("{base}/fit-config"), config.to_string())
        .expect(200)
        .json();
    let configs = gateway
        .get(&format!("{base}/fit-config"))
        .expect(200)
        .json();
    let told: Vec<_> = configs.as_array().expect("a list").iter().collect();
    assert_eq!(told.len(), 2);
    assert_eq!(
        (
            &told[0]["name"],
            &told[0]["isManual"],
            &told[0]["isDefault"]
        ),
        (&json!("default"), &json!(false), &json!(false))
    );
    assert_eq!(
        (
            &told[1]["name"],
            &told[1]["isManual"],
            &told[1]["isDefault"]
        ),
        (&json!("strong"), &json!(true), &json!(true))
    );
    for config in &told {
        let text = config["config"].as_str().expect("a text");
        assert!(
            serde_json::from_str::<Value>(text)
                .expect("JSON")
                .is_object()
        );
        assert!(config["id"]["accountId"].is_i64() && config["id"]["configId"].is_i64());
    }
    let service = derived(&gateway, "hush_sentence", "scenes");
    for key in [
        "imageAccountId",
        "composite",
        "fittable",
        "favorite",
        "restrictedImageAccess",
        "hostingType",
        "persistentVolumes",
        "dataImageMounts",
        "timeouts",
        "resourceLimits",
        "retriesConfig",
        "batchesConfig",
        "caching",
        "priorityQueue",
        "autoScalingConfiguration",
        "publicSettings",
        "billingSettings",
        "httpSettings",
        "archiveSettings",
    ] {
        assert!(!service[key].is_null(), "{key}: {service}");
    }
    assert_eq!(service["derivedFrom"]["modelName"], "hush_sentence");
    assert_eq!(
        (&service["isActive"], &service["fittable"]),
        (&json!(false), &json!(true))
    );
    let own = format!("{BASE}/model/scenes");
    assert_eq!(gateway.get(&own).expect(200).json()["id"], service["id"]);
    // The new service has the same predict configs and registry entry as the trainable one.
    let inherited = gateway
        .get(&format!("{own}/predict-config"))
        .expect(200)
        .json();
    assert_eq!(
        (&inherited[0]["name"], &inherited[0]["config"]),
        (&json!("ours"), &json!("{\"precision\":\"fp32\"}"))
    );
    let registry = "/api/mlpcore/providers/xnnpack/models";
    let of_base = gateway
        .get(&format!("{registry}/hush_sentence"))
        .expect(200)
        .json();
    let of_own = gateway
        .get(&format!("{registry}/scenes"))
        .expect(200)
        .json();
    assert_eq!(of_own["parameters"], of_base["parameters"]);
    assert_eq!(of_own["isActive"], false);
    let predict = format!("{own}/predict");
    gateway
        .post(&predict, json!({"texts": ["a dog"]}).to_string())
        .expect(400);
    gateway
        .get(&format!("{own}/last-job"))
        .expect_error(404, "SERVICE_HAS_NO_JOB");
    let dataset = uploaded(&gateway, "scenes.csv", scenes());
    let body = json!({"datasetId": dataset, "configId": config["id"]["configId"]});
    let job = gateway
        .post(&format!("{own}/fit"), body.to_string())
        .expect(200)
        .json();
    for key in ["accountId", "jobId", "percentage"] {
        assert!(job[key].is_i64(), "{key}: {job}");
    }
    assert_eq!(
        (&job["state"], &job["done"], &job["error"]),
        (&job["status"], &json!(false), &json!(false))
    );
    let number = job["jobId"].as_i64().expect("a number");
    let job = succeeded(&gateway, number);
    assert_eq!(job["state"], "SUCCESS");
    let metrics = gateway
        .get(&format!("{BASE}/job/{number}/metrics"))
        .expect(200)
        .json();
    assert_eq!(job["metrics"], metrics);
    let validation = &metrics["validation"];
    assert!(
        validation["accuracy"].as_f64().expect("a number") > 0.6,
        "{metrics}"
    );
    assert_eq!(
        validation["confusion_matrix"]
            .as_array()
            .expect("a list")
            .len(),
        3
    );
    assert_eq!(
        gateway.get(&format!("{own}/last-job")).expect(200).json(),
        job
    );
    assert_eq!(
        gateway.get(&format!("{BASE}/job")).expect(200).json(),
        json!([job])
    );
    // It is served, through every API.
    let info = gateway.get(&own).expect(200).json();
    assert_eq!(
        (&info["isActive"], &info["id"]),
        (&json!(true), &service["id"])
    );
    let texts = json!({"texts": ["a small dog", "the woman by the river", ""]});
    let answer = gateway.post(&predict, texts.to_string()).expect(200).json();
    let first = &answer["classified_texts"][0]["labels"];
    assert_eq!(first[0]["label"], "animals");
    let scores: f64 = first
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| it["score"].as_f64().expect("a number"))
        .sum();
    assert!(
        (scores - 1.0).abs() < 1e-5 && first.as_array().expect("a list").len() == 3,
        "{first}"
    );
    let task = gateway.create("scenes", texts.to_string());
    gateway.wait_for(&task, "COMPLETED");
    assert_eq!(gateway.result(&task).expect(200).json(), answer);
    let with = json!({"data": texts, "config": {"top_k": 1, "truncate": true}});
    let one = gateway
        .post(&format!("{predict}-with-config"), with.to_string())
        .expect(200)
        .json();
    assert_eq!(one["classified_texts"][0]["labels"], json!([first[0]]));
    let wrong = json!({"data": texts, "config": {"normalize": true}});
    gateway
        .post(&format!("{predict}-with-config"), wrong.to_string())
        .expect(400);
    let model = gateway
        .get(&format!("{registry}/scenes"))
        .expect(200)
        .json();
    let constants = model["parameters"]["constants"].as_array().expect("a list");
    let labels = constants.iter().find(|it| it["name"] == "labels");
    assert_eq!(
        labels.expect("labels")["value"],
        json!(["animals", "people", "places"])
    );
    // The head alone accepts vectors.
    let vector =
        json!({"data": {"inputs": [{"data": [vec![0.5; 32]]}]}, "config": {"component": "head"}});
    let head = gateway
        .post(&format!("{predict}-with-config"), vector.to_string())
        .expect(200)
        .json();
    assert_eq!(head["outputs"][0]["shape"], json!([1, 3]));
}

#[test]
fn a_result_is_a_package_that_another_server_serves() {
    let gateway = start();
    let dataset = uploaded(&gateway, "scenes.csv", scenes());
    derived(&gateway, "hush_sentence", "scenes");
    let body = json!({"datasetId": dataset, "config": "{\"seed\": 9}"});
    let path = format!("{BASE}/model/scenes/fit-v2");
    let job = gateway.post(&path, body.to_string()).expect(200).json();
    succeeded(&gateway, job["jobId"].as_i64().expect("a number"));
    let texts = ["a fast dog", "the old woman", "a green house"];
    let expected = labels(&gateway, "scenes", &texts);
    let package = gateway.data().join("trained/1/scenes");
    let checked = validate(&package, ".");
    assert_eq!(checked.expect_code(0).codes(), Vec::<String>::new());
    // It survives a restart, and a crash.
    let gateway = gateway.kill_and_restart();
    assert_eq!(labels(&gateway, "scenes", &texts), expected);
    let other = tempfile::tempdir().expect("a directory");
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([&package, other.path()])
        .status();
    assert!(copied.expect("cp runs").success());
    let elsewhere = Setup::new().packages(other.path()).start();
    assert_eq!(labels(&elsewhere, "scenes", &texts), expected);
    // The service is trained again, twice, and the newest version answers each time.
    for (place, swapped) in [(2, "places"), (3, "animals")] {
        let text = scenes()
            .replace("places", "swap")
            .replace("animals", "places")
            .replace("swap", "animals");
        let text = if place == 2 { text } else { scenes() };
        let dataset = uploaded(&gateway, "again.csv", text);
        let number = fit(&gateway, "scenes", dataset, &json!({"seed": 9}));
        let job = succeeded(&gateway, number);
        assert_eq!(job["jobId"], json!(place));
        assert_eq!(labels(&gateway, "scenes", &["a fast dog"]), [swapped]);
    }
    let jobs = gateway.get(&format!("{BASE}/job")).expect(200).json();
    assert_eq!(jobs.as_array().expect("a list").len(), 3);
    let failed = fit(
        &gateway,
        "scenes",
        dataset,
        &json!({"class_weights": {"nobody": 2}}),
    );
    let failed = ended(&gateway, failed);
    assert_eq!(
        (&failed["status"], &failed["error"]),
        (&json!("FAILED"), &json!(true))
    );
    let message = failed["errorMessage"].as_str().expect("a text");
    assert!(message.contains("`nobody`"), "{message}");
    assert_eq!(
        labels(&gateway, "scenes", &["a fast dog"]),
        ["animals"],
        "the one before answers"
    );
}
