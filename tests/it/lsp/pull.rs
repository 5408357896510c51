//! Tests of pull diagnostics, for editors that request findings: equal to pushed ones, sent once,
//! and not repeated while unchanged.

use std::fs;

use serde_json::{Value, json};

use crate::support::editor::{Editor, able, asking, uri};
use crate::support::tree::{MODEL, Tree, config};

const CONFIG: &str = "xnnpack/config.json";

fn clean() -> String {
    format!("{:#}\n", config())
}

fn codes(report: &Value) -> Vec<&str> {
    assert_eq!(report["kind"], "full", "{report}");
    let items = report["items"].as_array().expect("items");
    items
        .iter()
        .map(|one| one["code"].as_str().expect("a code"))
        .collect()
}

#[test]
fn who_asks_gets_the_findings_of_the_text_as_it_is() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = Editor::with(tree.root(), asking());
    let offered = json!({
        "identifier": "pkgtool", "interFileDependencies": true, "workspaceDiagnostics": false,
    });
    assert_eq!(editor.capabilities["diagnosticProvider"], offered);
    editor.open(&path, &clean());
    let first = editor.report(&path, None);
    assert!(codes(&first).is_empty(), "{first}");
    let known = &first["resultId"];
    let again = editor.report(&path, Some(known));
    assert_eq!(again, json!({ "kind": "unchanged", "resultId": known }));
    // A request right after an edit waits for the check of the new text.
    editor.replace(&path, 2, "{");
    let broken = editor.report(&path, Some(known));
    assert_eq!(codes(&broken), ["PKG002"]);
    assert_ne!(broken["resultId"], *known);
    editor.replace(&path, 3, &clean());
    let mended = editor.report(&path, Some(&broken["resultId"]));
    assert!(codes(&mended).is_empty());
    assert_eq!(mended["resultId"], *known, "the result is unchanged");
    assert_eq!(
        editor.passed("textDocument/publishDiagnostics"),
        0,
        "unchanged findings are not sent again"
    );
    assert_eq!(editor.quit(), 0);
}

#[test]
fn what_is_asked_for_is_what_others_are_told() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let wrong = clean()
        .replace("classification", "Classification")
        .replace('8', "9");
    let mut told = Editor::of(tree.root());
    assert!(told.capabilities.get("diagnosticProvider").is_none());
    told.open(&path, &wrong);
    let mut asking = Editor::with(tree.root(), asking());
    asking.open(&path, &wrong);
    let report = asking.report(&path, None);
    assert!(!codes(&report).is_empty());
    assert_eq!(report["items"], json!(told.findings(&path, Some(1))));
}

#[test]
fn a_model_that_changes_has_the_client_ask_again() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = Editor::with(tree.root(), asking());
    editor.open(&path, &clean());
    let before = editor.report(&path, None);
    let model = tree.path(&format!("xnnpack/{MODEL}"));
    let changed = |kind: i64| json!({ "changes": [{ "uri": uri(&model), "type": kind }] });
    fs::remove_file(&model).expect("it was there");
    editor.tell("workspace/didChangeWatchedFiles", changed(3));
    let refresh = editor.wait("a refresh", |one| {
        one["method"] == "workspace/diagnostic/refresh"
    });
    assert!(
        refresh["id"].is_string() && refresh.get("params").is_none(),
        "{refresh}"
    );
    editor.send(&json!({ "jsonrpc": "2.0", "id": refresh["id"], "result": null }));
    let after = editor.report(&path, Some(&before["resultId"]));
    assert_eq!(codes(&after), ["PKG015"]);
    // A client without support for refreshes gets none.
    let mut able = asking();
    able["workspace"]["diagnostics"] = json!({});
    let mut editor = Editor::with(tree.root(), able);
    editor.open(&path, &clean());
    let before = editor.report(&path, None);
    assert_eq!(codes(&before), ["PKG015"]);
    let program = crate::support::fixture("models/add_linear_xnnpack_fp32.pte");
    fs::copy(program, &model).expect("it is there again");
    editor.tell("workspace/didChangeWatchedFiles", changed(1));
    assert!(codes(&editor.report(&path, Some(&before["resultId"]))).is_empty());
    assert_eq!(editor.passed("workspace/diagnostic/refresh"), 0);
}

#[test]
fn every_request_is_answered_once() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = Editor::with(tree.root(), asking());
    let params = |path: &std::path::Path| json!({ "textDocument": { "uri": uri(path) } });
    for unknown in [path.clone(), tree.path("app/config.json")] {
        let report = editor.report(&unknown, None);
        assert!(codes(&report).is_empty(), "nothing is open");
    }
    editor.open(&tree.path("app/config.json"), r#"{"port": 8080}"#);
    assert!(codes(&editor.report(&tree.path("app/config.json"), None)).is_empty());
    let id = editor.begin("textDocument/diagnostic", json!({}));
    assert_eq!(editor.answer(id)["error"]["code"], -32602);
    // The request gets exactly one answer, whether the check or the cancellation comes first.
    editor.open(&path, &clean());
    let waiting = editor.begin("textDocument/diagnostic", params(&path));
    editor.tell("$/cancelRequest", json!({ "id": waiting }));
    let answer = editor.answer(waiting);
    assert!(
        answer["result"]["kind"] == "full" || answer["error"]["code"] == -32800,
        "{answer}"
    );
    editor.replace(&path, 2, "{");
    let waiting = editor.begin("textDocument/diagnostic", params(&path));
    editor.tell("textDocument/didClose", params(&path));
    assert_eq!(editor.answer(waiting)["result"]["kind"], "full");
    editor.open(&path, &clean());
    let waiting = editor.begin("textDocument/diagnostic", params(&path));
    let id = editor.begin("shutdown", Value::Null);
    let answer = editor.answer(waiting);
    assert!(
        answer["result"]["kind"] == "full" || answer["error"]["code"] == -32802,
        "{answer}"
    );
    assert_eq!(editor.answer(id)["result"], Value::Null);
    editor.tell("exit", Value::Null);
    assert_eq!(editor.code(), 0);
}

#[test]
fn who_does_not_say_that_it_asks_is_answered_and_told() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = Editor::with(tree.root(), able());
    editor.open(&path, "{");
    assert_eq!(codes(&editor.report(&path, None)), ["PKG002"]);
    assert_eq!(editor.codes(&path, Some(1)), ["PKG002"]);
}
