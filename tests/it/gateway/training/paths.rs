//! Tests that error messages to clients contain no path of the server.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::super::{examples, of_model, package};
use super::{BASE, derived, ended, fit, uploaded};
use crate::support::gateway::Setup;
use crate::support::onnx;
use crate::support::tree::Tree;

fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.expect("it can be read");
        let place = to.join(entry.path().strip_prefix(from).expect("it is below"));
        if entry.file_type().is_dir() {
            fs::create_dir_all(place).expect("it is made");
        } else {
            fs::copy(entry.path(), place).expect("it is copied");
        }
    }
}

/// Writes packages with all kinds of faults into a directory with a unique name.
fn packages(directory: &Path) {
    let methods = json!({"forward": {
        "inputs": [{"shape": [-1, 2], "dtype": "float32"}],
        "outputs": [{"shape": [7], "dtype": "float32"}]
    }});
    let tree = of_model(Tree::new(), "failing", onnx::failing(), &methods);
    let tree = package(package(tree, "negate", "Neg"), "unknown", "Det");
    copy(tree.root(), directory);
    let embeds = directory.join("hush-sentence");
    copy(&examples().join("hush-sentence"), &embeds);
    let settings = "{\"max_seq_length\": 4, \"do_lower_case\": false}";
    fs::write(embeds.join("sentence_bert_config.json"), settings).expect("it is written");
    let chats = directory.join("jackdaw");
    copy(&examples().join("jackdaw"), &chats);
    fs::write(
        chats.join("generation_config.json"),
        "{\"temperature\": \"hot\"}",
    )
    .expect("it is written");
}

#[test]
fn no_error_holds_a_path_of_the_server() {
    let place = tempfile::tempdir().expect("a directory");
    let root = place.path().join("where models live");
    packages(&root);
    let gateway = Setup::new().packages(&root).start();
    let long = "one two three four five six seven";
    let chat = json!({"model": "local/jackdaw", "messages": [{"role": "user", "content": "hi"}]});
    let mut told = Vec::new();
    let mut ask = |path: &str, body: String| {
        let reply = gateway.post(path, body);
        told.push((path.to_owned(), reply.status, reply.text()));
    };
    let compat = "/api/adapters/compat";
    let embeddings = json!({"model": "local/hush_sentence", "input": long});
    ask(&format!("{compat}/embeddings"), embeddings.to_string());
    ask(&format!("{compat}/chat/completions"), chat.to_string());
    let mut stream = chat.clone();
    stream["stream"] = json!(true);
    ask(&format!("{compat}/chat/completions"), stream.to_string());
    let texts = json!({"texts": [long]}).to_string();
    ask("/p/local/hush_sentence", texts.clone());
    ask(
        &format!("{BASE}/model/hush_sentence/predict"),
        texts.clone(),
    );
    for service in ["failing", "unknown", "negate", "jackdaw", "nobody"] {
        for body in [
            r#"{"inputs": [{"shape": [1, 2], "data": [1, 2]}]}"#,
            r#"{"inputs": [{"shape": [3], "data": [1, 2, 3]}]}"#,
            r#"{"inputs": [{"data": "x"}]}"#,
            r#"{"image_base64": "AAAA"}"#,
            "{",
        ] {
            ask(&format!("/p/local/{service}"), body.to_owned());
        }
        let wrong = json!({"data": "{}", "config": "{\"backend\": \"vulkan\"}"});
        let path = format!("{BASE}/model/{service}/predict-with-config-v2");
        ask(&path, wrong.to_string());
    }
    let task = gateway.post(
        &format!("{BASE}/model/failing/async/predict"),
        r#"{"inputs": [{"shape": [1, 2], "data": [1, 2]}]}"#,
    );
    if let Some(id) = task.json().as_str() {
        let path = format!("{BASE}/async/task/{id}");
        gateway.until(|| gateway.get(&path).json()["status"] == "CANCELED");
        let reply = gateway.get(&format!("{path}/response"));
        told.push((path, reply.status, reply.text()));
    }
    // This training fails on a text that is too long for the model.
    let rows = format!("text,label\n{long},a\n{long} more,b\n{long},a\n{long} x,b\n");
    let dataset = uploaded(&gateway, "long.csv", rows);
    derived(&gateway, "hush_sentence", "long-ones");
    let job = ended(&gateway, fit(&gateway, "long-ones", dataset, &json!({})));
    assert_eq!(job["status"], "FAILED", "{job}");
    told.push(("job".to_owned(), 200, job.to_string()));
    for path in [
        format!("{BASE}/model"),
        format!("{BASE}/model/unknown"),
        format!("{BASE}/dataset/9"),
        format!("{BASE}/job"),
        "/api/mlpcore/providers/xnnpack/models".to_owned(),
        "/readyz".to_owned(),
    ] {
        let reply = gateway.get(&path);
        told.push((path, reply.status, reply.text()));
    }
    let refused = told.iter().filter(|(_, status, _)| *status >= 400).count();
    assert!(refused > 25, "{refused}");
    let long = told[0].2.as_str();
    assert!(
        long.contains("`max_seq_length` of sentence_bert_config.json"),
        "{long}"
    );
    let directory = gateway.data();
    let program = Path::new(env!("CARGO_BIN_EXE_pkgtool"))
        .parent()
        .expect("it has one");
    for private in [place.path(), directory.as_path(), program] {
        let private = private.to_str().expect("a plain path");
        for (path, status, text) in &told {
            assert!(!text.contains(private), "{path} {status}: {text}");
            assert!(
                !text.contains("where models live"),
                "{path} {status}: {text}"
            );
        }
    }
}
