//! Model files that get another name: everywhere at once, and also after an interruption.

use std::fs;

use serde_json::{Value, json};

use super::{contents, fix, read};
use crate::support::fixture;
use crate::support::tree::{MODEL, Tree, config};

const OLD: &str = "model.pte";

fn named(file: &str) -> Value {
    let mut value = config();
    value["variants"][0]["file"] = json!(file);
    value
}

/// A package whose model has no name by the convention, and another config that names the model too.
fn tree() -> Tree {
    let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    Tree::new()
        .json("xnnpack/config.json", &named(OLD))
        .file("xnnpack/model.pte", program)
        .json(
            "other/xnnpack/config.json",
            &named("../../xnnpack/model.pte"),
        )
        .file(".git/HEAD", "")
}

fn is_done(tree: &Tree) {
    let files: Vec<String> = contents(tree.root()).into_keys().collect();
    assert_eq!(
        files,
        [
            ".git/HEAD",
            "other/xnnpack/config.json",
            "xnnpack/config.json",
            "xnnpack/tiny_xnnpack_fp32.pte"
        ]
    );
    assert_eq!(
        read(tree, "xnnpack/config.json"),
        format!("{:#}\n", named(MODEL))
    );
    let other = format!("../../xnnpack/{MODEL}");
    assert_eq!(
        read(tree, "other/xnnpack/config.json"),
        format!("{:#}\n", named(&other))
    );
    let again = fix(tree, &["--unsafe"]).expect_code(0);
    assert!(
        again.stdout.starts_with("nothing was changed"),
        "{}",
        again.stdout
    );
}

#[test]
fn a_file_is_renamed_wherever_it_is_named() {
    let tree = tree();
    let before = contents(tree.root());
    let safe = fix(&tree, &[]).expect_code(0);
    assert!(
        safe.stdout.contains("--unsafe would rename `model.pte`"),
        "{}",
        safe.stdout
    );
    let shown = fix(&tree, &["--unsafe", "--diff"]).expect_code(1);
    assert!(
        shown
            .stdout
            .contains("rename to xnnpack/tiny_xnnpack_fp32.pte"),
        "{}",
        shown.stdout
    );
    assert!(
        shown.stdout.contains("+++ b/other/xnnpack/config.json"),
        "{}",
        shown.stdout
    );
    assert_eq!(contents(tree.root()), before);
    let told = fix(&tree, &["--unsafe", "--format", "json"])
        .expect_code(0)
        .json();
    let renamed: Vec<&Value> = told["files"]
        .as_array()
        .expect("files")
        .iter()
        .flat_map(|file| file["renamed"].as_array().expect("a list"))
        .collect();
    assert_eq!(
        renamed,
        [&json!({ "from": "xnnpack/model.pte", "to": "xnnpack/tiny_xnnpack_fp32.pte" })]
    );
    is_done(&tree);
}

#[cfg(unix)]
#[test]
fn what_was_interrupted_is_completed() {
    let link = |tree: &Tree| {
        fs::hard_link(
            tree.path("xnnpack/model.pte"),
            tree.path(&format!("xnnpack/{MODEL}")),
        )
        .expect("a link");
    };
    // The file has both names, no config was written.
    let first = tree();
    link(&first);
    fix(&first, &["--unsafe"]).expect_code(0);
    is_done(&first);
    // The other config was written.
    let second = tree();
    link(&second);
    let second = second.json(
        "other/xnnpack/config.json",
        &named(&format!("../../xnnpack/{MODEL}")),
    );
    fix(&second, &["--unsafe"]).expect_code(0);
    is_done(&second);
    // Both were written, the first name is still there.
    let third = tree();
    link(&third);
    let third = third
        .json(
            "other/xnnpack/config.json",
            &named(&format!("../../xnnpack/{MODEL}")),
        )
        .json("xnnpack/config.json", &named(MODEL));
    fix(&third, &["--unsafe"]).expect_code(0);
    is_done(&third);
    // Where a file cannot have two names it is renamed first: then a safe fix completes it.
    let fourth = tree();
    fs::rename(
        fourth.path("xnnpack/model.pte"),
        fourth.path(&format!("xnnpack/{MODEL}")),
    )
    .expect("renamed");
    fix(&fourth, &["xnnpack"]).expect_code(0);
    assert_eq!(
        read(&fourth, "xnnpack/config.json"),
        format!("{:#}\n", named(MODEL))
    );
}

#[test]
fn nothing_is_written_over() {
    let tree = tree().file(&format!("xnnpack/{MODEL}"), "another file");
    let before = contents(tree.root());
    fix(&tree, &["--unsafe"]).expect_code(0);
    assert_eq!(contents(tree.root()), before);
}
