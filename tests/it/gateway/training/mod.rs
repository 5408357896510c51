//! Tests of training through the gateway in the order of the platform's clients: upload, derive,
//! fit, poll, predict.

mod advice;
mod datasets;
mod durable;
mod names;
mod paths;
mod pictures;
mod sequence;
mod several;
mod wrong;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::examples;
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{self, Reply};

pub(super) const BASE: &str = "/api/mlpgate/account/local";

/// Returns the path of a training fixture.
pub(super) fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/train");
    fixtures.join(name)
}

/// Starts a server with the example package that embeds texts.
fn start() -> Gateway {
    Setup::new()
        .packages(examples().join("hush-sentence"))
        .start()
}

/// Uploads a dataset as the part `file` of a form, as clients do.
fn upload(gateway: &Gateway, name: &str, content: impl AsRef<[u8]>) -> Reply {
    let mut body = b"--=_b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n".to_vec();
    let head = format!(
        "--=_b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    body.extend(head.as_bytes());
    body.extend(content.as_ref());
    body.extend(b"\r\n--=_b--\r\n");
    let path = format!("{BASE}/dataset/raw?name={name}&dataType=text&accessMode=private");
    let headers = [
        ("MLP-API-KEY", gateway.key.as_str()),
        ("Content-Type", "multipart/form-data; boundary=\"=_b\""),
    ];
    http::request(gateway.address, "POST", &path, &headers, &body)
}

/// Uploads a valid dataset and returns its number.
#[track_caller]
pub(super) fn uploaded(gateway: &Gateway, name: &str, content: impl AsRef<[u8]>) -> i64 {
    let reply = upload(gateway, name, content).expect(200).json();
    reply["id"]["datasetId"].as_i64().expect("a number")
}

/// Derives a service from another.
#[track_caller]
pub(super) fn derived(gateway: &Gateway, base: &str, name: &str) -> Value {
    let path = format!("{BASE}/model/{base}/derived?name={name}&hidden=false");
    gateway.post(&path, "").expect(200).json()
}

/// Starts the training of a service and returns the job's number.
#[track_caller]
pub(super) fn fit(gateway: &Gateway, service: &str, dataset: i64, config: &Value) -> i64 {
    let body = json!({"datasetId": dataset, "config": config});
    let path = format!("{BASE}/model/{service}/fit");
    let job = gateway.post(&path, body.to_string()).expect(200).json();
    job["jobId"].as_i64().expect("a number")
}

fn job(gateway: &Gateway, job: i64) -> Value {
    gateway.get(&format!("{BASE}/job/{job}")).expect(200).json()
}

/// Polls a job until it has ended and returns it.
#[track_caller]
pub(super) fn ended(gateway: &Gateway, number: i64) -> Value {
    let mut last = Value::Null;
    gateway.until(|| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        last = job(gateway, number);
        last["done"] == json!(true)
    });
    last
}

#[track_caller]
pub(super) fn succeeded(gateway: &Gateway, number: i64) -> Value {
    let job = ended(gateway, number);
    assert_eq!(job["status"], "SUCCESS", "{job}\n{}", gateway.log());
    assert_eq!(
        (&job["error"], &job["percentage"]),
        (&json!(false), &json!(100))
    );
    job
}

/// Returns the most likely label of each text.
#[track_caller]
pub(super) fn labels(gateway: &Gateway, service: &str, texts: &[&str]) -> Vec<String> {
    let path = format!("{BASE}/model/{service}/predict");
    let mut labels = Vec::new();
    for texts in texts.chunks(40) {
        let answer = gateway.post(&path, json!({"texts": texts}).to_string());
        let answer = answer.expect(200).json();
        let classified = answer["classified_texts"].as_array().expect("a list");
        assert_eq!(classified.len(), texts.len());
        let best = classified.iter().map(|it| &it["labels"][0]["label"]);
        labels.extend(best.map(|it| it.as_str().expect("a label").to_owned()));
    }
    labels
}

/// Returns a dataset of many distinct texts with two labels, in words of the example's tokenizer.
pub(super) fn many(rows: usize) -> String {
    let words = [
        "cat", "dog", "house", "tree", "river", "red", "blue", "green", "day", "night",
    ];
    let mut text = String::from("text,label\n");
    for row in 0..rows {
        let first = row % 10;
        let digits = [
            first,
            first,
            first,
            row / 10 % 10,
            row / 100 % 10,
            row / 1000 % 10,
        ];
        for digit in digits {
            let _ = write!(text, "{} ", words[digit]);
        }
        let _ = writeln!(text, ",{}", if row % 10 < 5 { "first" } else { "second" });
    }
    text
}

fn scenes() -> String {
    fs::read_to_string(fixture("scenes.csv")).expect("the fixture is there")
}
