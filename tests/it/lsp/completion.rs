//! Tests of completion, mostly in texts that do not parse.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::editor::{Editor, able};
use crate::support::run::validate;
use crate::support::tree::{MODEL, Tree, config, signature};

const CONFIG: &str = "xnnpack/config.json";

fn items(editor: &mut Editor, path: &Path, marked: &str) -> Vec<Value> {
    let answer = editor.ask_at("textDocument/completion", path, marked);
    answer["items"].as_array().cloned().unwrap_or_default()
}

fn labels(editor: &mut Editor, path: &Path, marked: &str) -> Vec<String> {
    let mut items = items(editor, path, marked);
    items.sort_by_key(|item| item["sortText"].to_string());
    let labels = items
        .iter()
        .map(|item| item["label"].as_str().expect("a label").to_owned());
    labels.collect()
}

/// Returns the text after an item is accepted, as in an editor without snippets; for one line only.
fn taken(item: &Value, marked: &str) -> String {
    let mut text = marked.replacen('|', "", 1);
    let mut edits = vec![&item["textEdit"]];
    edits.extend(item["additionalTextEdits"].as_array().into_iter().flatten());
    edits.sort_by_key(|edit| std::cmp::Reverse(edit["range"]["start"]["character"].as_u64()));
    for edit in edits {
        let character = |side: &str| {
            let at = edit["range"][side]["character"].as_u64().expect("a number");
            usize::try_from(at).expect("small")
        };
        assert_eq!(edit["range"]["end"]["line"], 0, "one line");
        let new = edit["newText"].as_str().expect("a text");
        text.replace_range(character("start")..character("end"), new);
    }
    text
}

fn plain(folder: &Path) -> Editor {
    let mut capabilities = able();
    capabilities["textDocument"]["completion"] = json!({});
    Editor::with(folder, capabilities)
}

#[test]
fn keys_are_proposed_where_they_are_missing() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = plain(tree.root());
    let all = labels(&mut editor, &path, "{ \"fi|");
    assert_eq!(all.len(), 10, "the client filters: {all:?}");
    assert!(
        all[..7].contains(&"license".to_owned()),
        "required items come first: {all:?}"
    );
    let rest = labels(
        &mut editor,
        &path,
        "{ \"model\": \"m\", \"variants\": [], |",
    );
    assert!(!rest.contains(&"model".to_owned()) && rest.contains(&"family".to_owned()));
    let variant = labels(
        &mut editor,
        &path,
        "{\"variants\": [{\"components\": {}, \"|",
    );
    assert_eq!(variant.len(), 3, "no `file` beside components: {variant:?}");
    let tensor = "{\"variants\": [{\"file\": \"x\", \"methods\": {\"m\": {\"inputs\": [{|";
    assert_eq!(
        labels(&mut editor, &path, tensor),
        ["shape", "dtype", "name"]
    );
    assert!(labels(&mut editor, &path, "{\"variants\": [{\"nothing\": {\"|").is_empty());
    let list = tree.path("precisions.json");
    let groups = labels(&mut editor, &list, "{ \"quantized\": [], \"|");
    assert_eq!(groups[0], "non_quantized");
}

#[test]
fn what_is_taken_makes_json_of_the_text() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = plain(tree.root());
    for (marked, label, expected) in [
        ("{ \"li|", "license", "{ \"license\": \"\""),
        ("{ li| }", "license", "{ \"license\": \"\" }"),
        ("{ \"|\" }", "backend", "{ \"backend\": \"xnnpack\" }"),
        (
            "{ | \"model\": 1 }",
            "license",
            "{ \"license\": \"\", \"model\": 1 }",
        ),
        (
            "{ \"model\": 1 | }",
            "license",
            "{ \"model\": 1, \"license\": \"\" }",
        ),
        ("{ \"mod|\": 1 }", "model", "{ \"model\": 1 }"),
        ("{ \"backend\": | }", "qnn", "{ \"backend\": \"qnn\" }"),
        (
            "{ \"backend\": \"x|\" }",
            "xnnpack",
            "{ \"backend\": \"xnnpack\" }",
        ),
        (
            "{ \"capabilities\": [\"vision\", | ] }",
            "classification",
            "{ \"capabilities\": [\"vision\", \"classification\" ] }",
        ),
        (
            "{ \"backend\": | \"model\": 1 }",
            "qnn",
            "{ \"backend\": \"qnn\", \"model\": 1 }",
        ),
    ] {
        let items = items(&mut editor, &path, marked);
        let item = items.iter().find(|item| item["label"] == label);
        let item = item.unwrap_or_else(|| panic!("{marked}: {items:?}"));
        let taken = taken(item, marked);
        // White space is left to the author.
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&taken), expected, "{marked}");
    }
}

#[test]
fn words_come_from_the_schema_the_lists_and_the_directory() {
    let tree = Tree::with_package()
        .file("xnnpack/tokenizer.json", "{}")
        .file("shared/other.onnx", "x")
        .file(".git/HEAD", "");
    let path = tree.path(CONFIG);
    let mut editor = Editor::of(tree.root());
    let words = labels(
        &mut editor,
        &path,
        "{\"capabilities\": [\"vision\", \"|\"]}",
    );
    assert_eq!(words.len(), 14, "each once: {words:?}");
    let licences = labels(&mut editor, &path, "{\"license\": \"|");
    assert_eq!(licences[..2], ["Apache-2.0", "MIT"]);
    assert!(licences.len() > 400 && licences.contains(&"gemma".to_owned()));
    let variant = |rest: &str| format!("{{\"variants\": [{{\"file\": \"{MODEL}\", {rest}");
    let tokens = labels(&mut editor, &path, &variant("\"precision\": |"));
    assert_eq!(tokens[0], "fp32", "the file's name says so");
    assert!(tokens.contains(&"8da4w".to_owned()));
    let dtypes = labels(
        &mut editor,
        &path,
        &variant("\"methods\": {\"f\": {\"inputs\": [{\"dtype\": \"|"),
    );
    assert_eq!(dtypes.len(), 10);
    assert_eq!(
        labels(&mut editor, &path, &variant("\"size_bytes\": |")),
        ["2576"]
    );
    let files = labels(&mut editor, &path, "{\"variants\": [{\"file\": \"|\"}]}");
    assert_eq!(files, [MODEL, "../"]);
    let above = labels(
        &mut editor,
        &path,
        "{\"variants\": [{\"components\": {\"a\": \"../|\"}}]}",
    );
    assert_eq!(above, ["../shared/", "../xnnpack/"]);
    let other = labels(
        &mut editor,
        &path,
        "{\"variants\": [{\"components\": {\"a\": \"../shared/o|\"}}]}",
    );
    assert_eq!(other, ["../shared/other.onnx"]);
    let tokenizers = labels(&mut editor, &path, "{\"tokenizer\": \"|\"}");
    assert_eq!(tokenizers[0], "tokenizer.json");
    for outside in ["/|", "../../|", "../../../etc/|"] {
        let text = format!("{{\"tokenizer\": \"{}", outside.replacen('|', "|\"}", 1));
        assert!(labels(&mut editor, &path, &text).is_empty(), "{outside}");
    }
}

#[test]
fn methods_come_from_the_model() {
    let tree = Tree::with_package();
    let path = tree.path(CONFIG);
    let mut editor = plain(tree.root());
    let mut parts = config();
    parts["variants"][0]
        .as_object_mut()
        .expect("a variant")
        .remove("methods");
    let whole = parts.to_string();
    let start = whole.strip_suffix("}]}").expect("the variant's end");
    let marked = format!("{start}, \"meth|\"}}]}}");
    let items = items(&mut editor, &path, &marked);
    let item = items
        .iter()
        .find(|item| item["label"] == "methods")
        .expect("an item");
    let text = taken(item, &marked);
    let read: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(
        read["variants"][0]["methods"],
        json!({ "forward": signature() })
    );
    let tree = tree.file(CONFIG, &text);
    assert!(validate(tree.root(), CONFIG).codes().is_empty());
    // One level each: a method, a side, a tensor.
    let start = format!("{start}, \"methods\": {{");
    assert_eq!(
        labels(&mut editor, &path, &format!("{start}\"|")),
        ["forward"]
    );
    for (rest, expected) in [
        ("\"forward\": |", signature()),
        (
            "\"forward\": {\"outputs\": |",
            signature()["outputs"].clone(),
        ),
        (
            "\"forward\": {\"inputs\": [{}, |",
            signature()["inputs"][1].clone(),
        ),
    ] {
        let items = self::items(&mut editor, &path, &format!("{start}{rest}"));
        let text = items[0]["textEdit"]["newText"].as_str().expect("a text");
        let read: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(read, expected, "{rest}");
    }
}

#[test]
fn an_empty_file_becomes_a_config() {
    let tree = Tree::new();
    let path = tree.path("Swift-Owl/coreml/config.json");
    let mut editor = Editor::of(tree.root());
    let items = items(&mut editor, &path, "|");
    let text = items[0]["textEdit"]["newText"].as_str().expect("a text");
    assert!(
        text.contains("\"model\": \"swift_owl\"") && text.contains("\"backend\": \"coreml\""),
        "{text}"
    );
    assert!(text.contains("\\$schema"), "a snippet: {text}");
    let mut editor = plain(tree.root());
    let items = self::items(&mut editor, &path, "|");
    let text = items[0]["textEdit"]["newText"].as_str().expect("a text");
    let read: Value = serde_json::from_str(text).expect("JSON without places to fill in");
    assert_eq!(
        read["$schema"],
        "https://pkgtool.dev/schemas/config.schema.json"
    );
}
