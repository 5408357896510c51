//! Tests of findings while typing: they use the editor's text and the files on disk that it
//! references.

use std::fs;

use serde_json::{Value, json};

use crate::support::editor::{Editor, able, uri};
use crate::support::run::validate;
use crate::support::tree::{MODEL, Tree, config};

const CONFIG: &str = "xnnpack/config.json";

fn text(config: &Value) -> String {
    format!("{config:#}\n")
}

#[test]
fn findings_come_and_go_as_one_types() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = Editor::of(tree.root());
    let clean = text(&config());
    editor.open(&path, &clean);
    assert_eq!(editor.codes(&path, Some(1)), Vec::<String>::new());
    // One letter of `classification` and one digit of a shape are wrong in the editor; the file on
    // disk is right.
    let line = |needle: &str| {
        clean
            .lines()
            .position(|line| line.contains(needle))
            .expect("a line")
    };
    let at = line("classification");
    editor.tell(
        "textDocument/didChange",
        json!({
            "textDocument": { "uri": uri(&path), "version": 2 },
            "contentChanges": [{
                "range": {
                    "start": { "line": at, "character": 5 },
                    "end": { "line": at, "character": 6 },
                },
                "text": "K",
            }],
        }),
    );
    let findings = editor.findings(&path, Some(2));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0]["code"], "PKG004");
    assert_eq!(findings[0]["source"], "pkgtool");
    assert_eq!(findings[0]["severity"], 1);
    assert_eq!(
        findings[0]["codeDescription"]["href"],
        "https://pkgtool.dev/docs/rules/PKG004/"
    );
    assert_eq!(
        findings[0]["range"]["start"],
        json!({ "line": at, "character": 4 })
    );
    let message = findings[0]["message"].as_str().expect("a text");
    assert!(
        message.contains("Klassification") || message.contains("Klass"),
        "{message}"
    );
    assert!(message.contains("help: "), "{message}");
    editor.replace(&path, 3, &clean.replace('8', "9"));
    assert_eq!(
        editor.codes(&path, Some(3)),
        ["PKG034"],
        "the model disagrees"
    );
    editor.replace(&path, 4, &clean);
    assert!(editor.codes(&path, Some(4)).is_empty());
    editor.replace(&path, 5, "{");
    assert_eq!(editor.codes(&path, Some(5)), ["PKG002"]);
    editor.tell(
        "textDocument/didClose",
        json!({ "textDocument": { "uri": uri(&path) } }),
    );
    assert!(
        editor.findings(&path, None).is_empty(),
        "a closed file shows no findings"
    );
    assert_eq!(editor.quit(), 0);
}

#[test]
fn the_editor_sees_what_the_command_line_says() {
    let fixtures = crate::support::fixture("rules");
    let mut compared = 0;
    for rule in fs::read_dir(&fixtures).expect("fixtures") {
        let bad = rule.expect("an entry").path().join("bad");
        let mut configs = Vec::new();
        find_configs(&bad, &mut configs);
        let mut editor = Editor::of(&bad);
        for path in configs {
            let Ok(content) = fs::read_to_string(&path) else {
                continue;
            };
            let named = path
                .strip_prefix(&bad)
                .expect("below")
                .to_str()
                .expect("UTF-8");
            let mut expected = validate(&bad, named).codes();
            editor.open(&path, &content);
            let mut found = editor.codes(&path, Some(1));
            expected.sort();
            found.sort();
            // The command line treats a named file as a config, even if it looks like a foreign
            // one.
            if !found.contains(&"PKG042".to_owned()) && !found.is_empty() {
                assert_eq!(found, expected, "{}", path.display());
                compared += 1;
            }
        }
    }
    assert!(compared > 30, "{compared}");
}

fn find_configs(directory: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find_configs(&path, found);
        } else if path.file_name().is_some_and(|name| name == "config.json") {
            found.push(path);
        }
    }
}

#[test]
fn other_files_are_left_alone() {
    let tree = Tree::with_package();
    let mut editor = Editor::of(tree.root());
    let foreign = [
        ("app/config.json", r#"{"port": 8080}"#),
        ("xnnpack/tokenizer.json", "{ broken"),
        ("package.json", "{}"),
    ];
    for (name, text) in foreign {
        editor.open(&tree.path(name), text);
        let position = json!({ "line": 0, "character": 2 });
        let params =
            json!({ "textDocument": { "uri": uri(tree.path(name)) }, "position": position });
        for method in ["textDocument/hover", "textDocument/completion"] {
            assert_eq!(editor.ask(method, params.clone()), Value::Null, "{name}");
        }
    }
    editor.tell(
        "textDocument/didOpen",
        json!({ "textDocument": { "uri": "untitled:1", "languageId": "json", "version": 1, "text": "{" } }),
    );
    // A precision list is recognised by its name, a config also by its keys.
    let list = tree.path("precisions.json");
    editor.open(
        &list,
        r#"{"quantized": ["int8"], "non_quantized": ["int8"]}"#,
    );
    assert_eq!(editor.codes(&list, None), ["PKG006"]);
    let elsewhere = tree.path("app/config.json");
    editor.replace(&elsewhere, 2, r#"{"backend": "xnnpack"}"#);
    assert!(
        editor
            .codes(&elsewhere, Some(2))
            .contains(&"PKG004".to_owned())
    );
    for (name, _) in &foreign[1..] {
        let shown = editor.passed("textDocument/publishDiagnostics");
        assert!(shown <= 1, "{name}");
    }
}

#[test]
fn a_model_that_changes_on_disk_changes_the_findings() {
    for watches in [true, false] {
        let tree = Tree::with_package();
        let path = tree.path(CONFIG);
        let mut capabilities = able();
        capabilities["workspace"]["didChangeWatchedFiles"]["dynamicRegistration"] = json!(watches);
        let mut editor = Editor::with(tree.root(), capabilities);
        if watches {
            let registered = editor.wait("a registration", |message| {
                message["method"] == "client/registerCapability"
            });
            let id = &registered["id"];
            editor.send(&json!({ "jsonrpc": "2.0", "id": id, "result": null }));
        }
        editor.open(&path, &text(&config()));
        assert!(editor.codes(&path, Some(1)).is_empty());
        let model = tree.path(&format!("xnnpack/{MODEL}"));
        fs::remove_file(&model).expect("it was there");
        let changed = |kind: i64| json!({ "changes": [{ "uri": uri(&model), "type": kind }] });
        if watches {
            editor.tell("workspace/didChangeWatchedFiles", changed(3));
        }
        assert_eq!(editor.codes(&path, None), ["PKG015"], "watched: {watches}");
        let program = crate::support::fixture("models/add_linear_xnnpack_fp32.pte");
        fs::copy(program, &model).expect("it is there again");
        if watches {
            editor.tell("workspace/didChangeWatchedFiles", changed(1));
        }
        assert!(editor.codes(&path, None).is_empty(), "watched: {watches}");
    }
}

#[test]
fn a_model_is_seen_as_it_is_at_every_keystroke() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = Editor::of(tree.root());
    let clean = text(&config());
    editor.open(&path, &clean);
    assert!(editor.codes(&path, Some(1)).is_empty());
    let model = tree.path(&format!("xnnpack/{MODEL}"));
    fs::write(&model, b"no model any more").expect("written");
    editor.replace(&path, 2, &format!("{clean} "));
    assert_eq!(editor.codes(&path, Some(2)), ["PKG027"]);
}

#[test]
fn a_precision_list_and_several_roots_count() {
    let one = Tree::with_package();
    let other = Tree::new();
    let mut changed = config();
    changed["variants"][0]["precision"] = json!("mine");
    let text = text(&changed).replace(MODEL, "tiny_xnnpack_mine.pte");
    let path = one.path("deep/down/below/xnnpack/config.json");
    let mut editor = Editor::of(other.root());
    editor.open(&path, &text);
    let codes = editor.codes(&path, Some(1));
    assert!(codes.contains(&"PKG008".to_owned()), "{codes:?}");
    // The list is above the package, so it applies only if the editor has opened the folder.
    fs::write(
        one.path("precisions.json"),
        r#"{"quantized": ["int8"], "non_quantized": ["mine"]}"#,
    )
    .expect("written");
    let folder = json!({ "uri": uri(one.root()), "name": "one" });
    editor.tell(
        "workspace/didChangeWorkspaceFolders",
        json!({ "event": { "added": [folder], "removed": [] } }),
    );
    let codes = editor.codes(&path, Some(1));
    assert!(!codes.contains(&"PKG008".to_owned()), "{codes:?}");
}

#[test]
fn positions_are_in_the_units_that_were_agreed_on() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let text = "{\"ö😀\": 1, \"backend\": \"xnnpack\", \"variants\": 7}";
    for (encodings, unit, start) in [
        (json!(["utf-16"]), "utf-16", 46),
        (json!(["utf-8", "utf-16"]), "utf-8", 49),
        (json!(["utf-32"]), "utf-16", 46),
    ] {
        let mut capabilities = able();
        capabilities["general"]["positionEncodings"] = encodings;
        let mut editor = Editor::with(tree.root(), capabilities);
        assert_eq!(editor.capabilities["positionEncoding"], unit);
        editor.open(&path, text);
        let findings = editor.findings(&path, Some(1));
        let ends = findings.iter().map(|one| &one["range"]["end"]["character"]);
        let ends: Vec<i64> = ends.filter_map(Value::as_i64).collect();
        let expected = start;
        assert!(ends.contains(&expected), "{unit}: {findings:?}");
    }
}

#[test]
fn a_large_text_and_many_documents_are_bounded() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = Editor::of(tree.root());
    let large = format!("{{\"backend\": \"{}\"}}", "x".repeat(5 * 1024 * 1024));
    editor.open(&path, &large);
    let findings = editor.findings(&path, Some(1));
    assert_eq!(findings.len(), 1);
    let message = findings[0]["message"].as_str().expect("a text");
    assert!(message.contains("the limit is"), "{message}");
    // The server does not store this text, so it needs the whole new text instead of a change.
    editor.tell(
        "textDocument/didChange",
        json!({
            "textDocument": { "uri": uri(&path), "version": 2 },
            "contentChanges": [{ "range": {
                "start": { "line": 0, "character": 0 }, "end": { "line": 0, "character": 1 },
            }, "text": "" }],
        }),
    );
    assert_eq!(editor.findings(&path, Some(2)).len(), 1);
    editor.replace(&path, 3, &text(&config()));
    assert!(editor.codes(&path, Some(3)).is_empty());
    let broken = text(&config()).replace("\"tiny\"", "7");
    let paths = (0..1000).map(|i| tree.path(&format!("p{i}/xnnpack/config.json")));
    let paths: Vec<_> = paths.collect();
    for path in &paths {
        editor.open(path, &broken);
    }
    for path in &paths {
        assert!(!editor.findings(path, Some(1)).is_empty());
    }
    assert!(memory(editor.process()).is_none_or(|bytes| bytes < 400 << 20));
    assert_eq!(editor.quit(), 0);
}

/// Returns the memory of a process in bytes, on Linux.
fn memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}
