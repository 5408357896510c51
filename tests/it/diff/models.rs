//! Tests of differences in model files and tokenizers of packages whose configs are equal.

use std::fs;

use serde_json::{Value, json};

use super::{difference, kinds};
use crate::support::fixture;
use crate::support::tree::{MODEL, Tree, config};

/// Returns a package with this fixture as its model and without declared methods.
fn package(model: &str) -> Tree {
    let mut config = config();
    config["variants"][0]
        .as_object_mut()
        .expect("an object")
        .remove("methods");
    let bytes = fs::read(fixture(&format!("models/{model}"))).expect("a fixture");
    Tree::new()
        .package("xnnpack", &config)
        .file(&format!("xnnpack/{MODEL}"), bytes)
}

fn compared(old: &Tree, new: &Tree) -> Vec<&'static str> {
    kinds(&difference(old.root(), new.root(), true))
}

#[test]
fn model_files_are_read() {
    let (delegated, portable) = (
        package("add_linear_xnnpack_fp32.pte"),
        package("add_linear_portable.pte"),
    );
    let found = compared(&delegated, &portable);
    assert!(found.contains(&"delegate-removed"), "{found:?}");
    assert!(found.contains(&"operator-added"), "{found:?}");
    assert!(!found.contains(&"dtype"), "{found:?}");
    let found = compared(&portable, &delegated);
    assert!(found.contains(&"delegate-added"), "{found:?}");
    let fewer = compared(&package("multi_method_xnnpack_fp32.pte"), &delegated);
    assert!(fewer.contains(&"method-removed"), "{fewer:?}");
    let unseen = difference(delegated.root(), portable.root(), false);
    assert_eq!(kinds(&unseen), ["size-changed"]);
}

#[test]
fn a_change_of_both_is_told_once() {
    let old = Tree::with_package();
    let mut changed = config();
    changed["variants"][0]["methods"]["forward"]["inputs"] = json!([
        { "shape": [2, 8], "dtype": "float32" }
    ]);
    let bytes = fs::read(fixture("models/multi_method_xnnpack_fp32.pte")).expect("a fixture");
    let new = Tree::new().package("xnnpack", &changed);
    let new = new.file(&format!("xnnpack/{MODEL}"), bytes);
    let found = difference(old.root(), new.root(), true);
    let mut seen: Vec<_> = found
        .changes
        .iter()
        .map(|one| (one.kind.name, one.place.clone(), one.subject.clone()))
        .collect();
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all, "{:?}", found.changes);
}

#[test]
fn broken_and_cut_models_are_told_and_mended() {
    let whole = package("add_linear_xnnpack_fp32.pte");
    let bytes = fs::read(whole.path(&format!("xnnpack/{MODEL}"))).expect("a file");
    let cut =
        package("add_linear_xnnpack_fp32.pte").file(&format!("xnnpack/{MODEL}"), &bytes[..200]);
    let found = compared(&whole, &cut);
    assert!(found.contains(&"model-unreadable"), "{found:?}");
    assert!(compared(&cut, &whole).contains(&"model-readable"));
    let mut other = bytes.clone();
    *other.last_mut().expect("bytes") ^= 1;
    let other = package("add_linear_xnnpack_fp32.pte").file(&format!("xnnpack/{MODEL}"), other);
    assert_eq!(compared(&whole, &other), ["content-changed"]);
}

#[test]
fn pointers_are_held_against_the_files_they_stand_for() {
    let whole = Tree::with_package();
    let pointer = |oid: &str, size: u64| {
        let text =
            format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n");
        Tree::with_package().file(&format!("xnnpack/{MODEL}"), text)
    };
    let bytes = fs::read(whole.path(&format!("xnnpack/{MODEL}"))).expect("a file");
    let size = bytes.len() as u64;
    let output = std::process::Command::new("sha256sum")
        .arg(whole.path(&format!("xnnpack/{MODEL}")))
        .output()
        .expect("sha256sum runs");
    let oid = String::from_utf8(output.stdout).expect("text")[..64].to_owned();
    assert_eq!(compared(&pointer(&oid, size), &whole), Vec::<&str>::new());
    let other = pointer(&"0".repeat(64), size);
    assert_eq!(compared(&other, &whole), ["content-changed"]);
    assert_eq!(compared(&pointer(&oid, size), &other), ["content-changed"]);
    assert_eq!(compared(&pointer(&oid, size + 1), &whole), ["size-changed"]);
}

#[test]
fn tokenizers_are_looked_into() {
    let mut named = config();
    named["tokenizer"] = json!("tokenizer.json");
    let with = |tokenizer: &Value| {
        Tree::new()
            .package("xnnpack", &named)
            .json("xnnpack/tokenizer.json", tokenizer)
    };
    let plain =
        json!({ "version": "1.0", "model": { "vocab": { "a": 0, "b": 1 } }, "decoder": null });
    let old = with(&plain);
    let mut ids = plain.clone();
    ids["model"]["vocab"]["b"] = json!(2);
    assert_eq!(compared(&old, &with(&ids)), ["tokenizer-changed"]);
    let mut decoder = plain.clone();
    decoder["decoder"] = json!({ "type": "ByteLevel" });
    assert_eq!(compared(&old, &with(&decoder)), ["tokenizer-settings"]);
    let packed = with(&plain).file("xnnpack/tokenizer.json", plain.to_string());
    assert_eq!(compared(&old, &packed), ["formatting"]);
    let other = with(&plain).file("xnnpack/tokenizer.json", "no JSON");
    assert_eq!(compared(&old, &other), ["tokenizer-changed"]);
}

#[test]
fn precision_lists_are_compared() {
    let list = |quantized: Value, others: Value| {
        let list = json!({ "quantized": quantized, "non_quantized": others });
        Tree::with_package().json("precisions.json", &list)
    };
    let old = list(json!(["int8"]), json!(["fp32", "fp16"]));
    let new = list(json!(["int8", "fp16"]), json!(["fp32", "bf16"]));
    assert_eq!(compared(&old, &new), ["precision-list", "precision-list"]);
}
