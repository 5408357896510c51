//! Tests of renaming a model from one config: offered only if no other config references it.

use std::fs;

use serde_json::{Value, json};

use crate::support::editor::{Editor, uri};
use crate::support::fixture;
use crate::support::tree::{Tree, config};

const CONFIG: &str = "xnnpack/config.json";
const OTHER: &str = "other/xnnpack/config.json";

/// Returns the titles of the renames that are offered for the open config.
fn offered(editor: &mut Editor, tree: &Tree) -> Vec<String> {
    let actions = editor.ask(
        "textDocument/codeAction",
        json!({
            "textDocument": { "uri": uri(tree.path(CONFIG)) },
            "range": {
                "start": { "line": 0, "character": 0 },
                "end": { "line": 99, "character": 0 },
            },
            "context": { "diagnostics": [] },
        }),
    );
    let actions = actions.as_array().expect("actions").iter();
    let titles = actions.filter_map(|action| action["title"].as_str());
    let renamings = titles.filter(|title| title.starts_with("rename"));
    renamings.map(str::to_owned).collect()
}

fn named(file: &str) -> Value {
    let mut value = config();
    value["variants"][0]["file"] = json!(file);
    value
}

#[test]
fn a_model_that_another_config_names_is_not_renamed() {
    let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    let tree = Tree::new()
        .file(".git/HEAD", "")
        .file("xnnpack/model.pte", program)
        .json(CONFIG, &named("model.pte"));
    let text = format!("{:#}\n", named("model.pte"));
    let mut editor = Editor::of(tree.root());
    editor.open(&tree.path(CONFIG), &text);
    assert_eq!(editor.codes(&tree.path(CONFIG), Some(1)), ["PKG025"]);
    assert_eq!(
        offered(&mut editor, &tree),
        ["rename `model.pte` to `tiny_xnnpack_fp32.pte`"]
    );
    let tree = tree.json(OTHER, &named("../../xnnpack/model.pte"));
    assert!(offered(&mut editor, &tree).is_empty());
    // Unsaved text of an open config counts.
    let unsaved = format!("{:#}\n", named("another.pte"));
    editor.open(&tree.path(OTHER), &unsaved);
    assert_eq!(offered(&mut editor, &tree).len(), 1);
}
