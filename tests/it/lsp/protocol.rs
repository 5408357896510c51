//! Tests of the protocol: start and end of a session, invalid messages, unknown requests.

use serde_json::{Value, json};

use crate::support::editor::{Editor, able, uri};
use crate::support::tree::{Tree, config};

fn error(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().expect("an error")
}

#[test]
fn a_session_begins_and_ends_in_order() {
    let tree = Tree::new();
    let mut editor = Editor::start();
    let id = editor.begin("textDocument/hover", json!({}));
    assert_eq!(error(&editor.answer(id)), -32002, "not before `initialize`");
    let params = json!({ "processId": null, "rootUri": uri(tree.root()), "capabilities": able() });
    let answer = editor.ask("initialize", params.clone());
    assert_eq!(answer["serverInfo"]["name"], "pkgtool");
    assert_eq!(answer["capabilities"]["textDocumentSync"]["change"], 2);
    let id = editor.begin("initialize", params);
    assert_eq!(error(&editor.answer(id)), -32600, "only once");
    editor.ask("shutdown", Value::Null);
    let id = editor.begin("textDocument/hover", json!({}));
    assert_eq!(error(&editor.answer(id)), -32600, "not after `shutdown`");
    editor.tell("exit", Value::Null);
    assert_eq!(editor.code(), 0);
}

#[test]
fn who_leaves_without_a_word_leaves_no_server_behind() {
    let tree = Tree::new();
    let mut editor = Editor::of(tree.root());
    editor.tell("exit", Value::Null);
    assert_eq!(editor.code(), 1);
    let mut editor = Editor::of(tree.root());
    editor.hang_up();
    assert_eq!(editor.code(), 1);
    let mut editor = Editor::start();
    editor.hang_up();
    assert_eq!(editor.code(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_ends_with_the_process_it_works_for() {
    let mut other = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .expect("sleep");
    let mut editor = Editor::start();
    let params = json!({ "processId": other.id(), "rootUri": null, "capabilities": {} });
    editor.ask("initialize", params);
    other.kill().expect("it runs");
    other.wait().expect("it ends");
    assert_eq!(editor.code(), 1);
}

#[test]
fn what_is_no_message_is_answered_and_passed_over() {
    let tree = Tree::new();
    let mut editor = Editor::of(tree.root());
    for (body, code) in [
        ("{", -32700),
        ("", -32700),
        ("\u{1}\u{2}", -32700),
        ("[]", -32600),
        ("17", -32600),
        ("{}", -32600),
        (
            r#"{"jsonrpc": "2.0", "id": [], "method": "shutdown"}"#,
            -32600,
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 1.5, "method": "shutdown"}"#,
            -32600,
        ),
    ] {
        editor.raw(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        let answer = editor.wait(body, |message| {
            message["id"].is_null() && message.get("error").is_some()
        });
        assert_eq!(error(&answer), code, "{body}");
    }
    for (method, params, code) in [
        ("textDocument/nothing", json!({}), -32601),
        ("$/nothing", json!({}), -32601),
        ("textDocument/hover", Value::Null, -32602),
        ("textDocument/hover", json!({ "textDocument": 7 }), -32602),
        (
            "textDocument/hover",
            json!({ "textDocument": { "uri": "file:///x" } }),
            -32602,
        ),
        (
            "textDocument/completion",
            json!({ "textDocument": { "uri": "file:///x" }, "position": { "line": -1, "character": 0 } }),
            -32602,
        ),
    ] {
        let id = editor.begin(method, params);
        assert_eq!(error(&editor.answer(id)), code, "{method}");
    }
    for (method, params) in [
        ("textDocument/didOpen", json!({})),
        (
            "textDocument/didChange",
            json!({ "textDocument": { "uri": "file:///nowhere", "version": 2 } }),
        ),
        (
            "textDocument/didClose",
            json!({ "textDocument": { "uri": "file:///nowhere" } }),
        ),
        ("workspace/didChangeWatchedFiles", json!({ "changes": [7] })),
        ("workspace/didChangeWorkspaceFolders", json!(null)),
        ("$/setTrace", json!({ "value": "off" })),
        ("whatever", json!([1])),
    ] {
        editor.tell(method, params);
    }
    editor.send(&json!({ "jsonrpc": "2.0", "id": "unasked", "result": {} }));
    assert_eq!(editor.quit(), 0, "it still serves");
}

#[test]
fn where_frames_begin_is_lost_the_server_says_so_and_ends() {
    for bytes in [
        &b"hello\r\n\r\n"[..],
        b"Content-Length: x\r\n\r\n",
        &[b'a'; 9000],
    ] {
        let tree = Tree::new();
        let mut editor = Editor::of(tree.root());
        editor.raw(bytes);
        let answer = editor.wait("an error", |message| message.get("error").is_some());
        assert_eq!(error(&answer), -32700);
        assert_eq!(editor.code(), 1);
    }
}

#[test]
fn a_message_that_is_too_large_is_passed_over() {
    let tree = Tree::new();
    let mut editor = Editor::of(tree.root());
    let length = 30 * 1024 * 1024;
    editor.raw(format!("Content-Length: {length}\r\n\r\n").as_bytes());
    editor.raw(&vec![b' '; length]);
    let told = editor.wait("a log message", |message| {
        message["method"] == "window/logMessage"
    });
    assert!(
        told["params"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("too large"))
    );
    assert_eq!(editor.quit(), 0);
}

#[test]
fn a_request_that_is_cancelled_while_it_waits_is_not_worked_on() {
    let tree = Tree::with_package();
    let path = tree.path("xnnpack/config.json");
    let mut editor = Editor::of(tree.root());
    editor.open(&path, &format!("{:#}", config()));
    editor.findings(&path, None);
    // All messages are sent at once, so the server is busy before it reads the last.
    let mut bytes = Vec::new();
    let mut add = |message: Value| {
        let body = message.to_string();
        bytes.extend(format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes());
    };
    let place = json!({ "textDocument": { "uri": uri(&path) }, "position": { "line": 7, "character": 14 } });
    for id in 1000..1300 {
        add(
            json!({ "jsonrpc": "2.0", "id": id, "method": "textDocument/completion", "params": place }),
        );
    }
    add(json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": 1299 } }));
    editor.raw(&bytes);
    let answer = editor.answer(1299);
    // If the server is faster than the cancellation, it sends an answer.
    let cancelled = answer.get("error").is_some();
    assert!(!cancelled || error(&answer) == -32800, "{answer}");
    assert_eq!(editor.quit(), 0);
}

#[test]
fn edits_of_every_shape_leave_the_text_that_both_sides_have() {
    let tree = Tree::with_package();
    let path = tree.path("xnnpack/config.json");
    let mut editor = Editor::of(tree.root());
    editor.open(&path, "{}");
    let text = format!("{:#}", config());
    // First a range beyond the end deletes the old text; then the whole text is typed letter by
    // letter.
    let all =
        json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 99, "character": 99 } });
    let mut changes = vec![json!({ "range": all, "text": "" })];
    let (mut line, mut character) = (0, 0);
    for letter in text.chars() {
        let at = json!({ "line": line, "character": character });
        changes.push(json!({ "range": { "start": at, "end": at }, "text": letter.to_string() }));
        (line, character) = match letter {
            '\n' => (line + 1, 0),
            _ => (line, character + letter.len_utf16()),
        };
    }
    for (version, change) in changes.into_iter().enumerate() {
        editor.tell(
            "textDocument/didChange",
            json!({
                "textDocument": { "uri": uri(&path), "version": version + 2 },
                "contentChanges": [change],
            }),
        );
    }
    let last = i64::try_from(text.chars().count() + 2).expect("small");
    assert!(editor.codes(&path, Some(last)).is_empty());
    assert_eq!(editor.quit(), 0);
}

/// Edits based on a text that the client no longer has would damage its file.
#[test]
fn a_text_that_may_have_changed_unread_is_not_worked_on() {
    let tree = Tree::with_package().package("mlx", &config());
    let path = tree.path("xnnpack/config.json");
    let other = tree.path("mlx/config.json");
    let text = format!("{:#}", config()).replacen(
        "\"license\": \"",
        "\"license\": \"Apache 2\", \"x\": \"",
        1,
    );
    let mut editor = Editor::of(tree.root());
    let actions = |editor: &mut Editor, path: &std::path::Path| {
        let all = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 99, "character": 0 } });
        let params = json!({
            "textDocument": { "uri": uri(path) }, "range": all, "context": { "diagnostics": [] },
        });
        let actions = editor.ask("textDocument/codeAction", params);
        actions.as_array().expect("an array").len()
    };
    let change = |path: &std::path::Path, text: &str| {
        let document = json!({ "uri": uri(path), "version": 2 });
        let body = json!({
            "jsonrpc": "2.0",
            "method": "textDocument/didChange",
            "params": { "textDocument": document, "contentChanges": [
                { "range": { "start": { "line": 0, "character": 0 }, "end": { "line": 0, "character": 0 } }, "text": "@" },
            ] },
        });
        let body = body.to_string().replacen('@', text, 1);
        format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let large = " ".repeat(29 * 1024 * 1024);
    let mut unnamed = b"Content-Length: 9\r\n\r\n".to_vec();
    unnamed.extend(b"{\"jsonrpc");
    for (number, (message, both)) in [
        (change(&path, "\\ud83d"), false),
        (change(&path, &large), false),
        (unnamed, true),
    ]
    .into_iter()
    .enumerate()
    {
        for path in [&path, &other] {
            editor.open(path, &text);
            assert!(!editor.findings(path, Some(1)).is_empty());
            assert!(actions(&mut editor, path) > 0, "{number}");
        }
        editor.raw(&message);
        if number != 1 {
            let told = editor.wait("an error", |message| message.get("error").is_some());
            assert_eq!((error(&told), &told["id"]), (-32700, &Value::Null));
        }
        assert!(editor.findings(&path, None).is_empty(), "{number}");
        assert_eq!(actions(&mut editor, &path), 0, "{number}");
        assert_eq!(actions(&mut editor, &other) == 0, both, "{number}");
        // A change to an unknown text is ignored.
        editor.raw(&change(&path, " "));
        assert!(editor.findings(&path, Some(2)).is_empty(), "{number}");
        editor.replace(&path, 3, &text);
        assert!(!editor.findings(&path, Some(3)).is_empty(), "{number}");
        assert!(actions(&mut editor, &path) > 0, "{number}");
    }
    assert_eq!(editor.quit(), 0);
}
