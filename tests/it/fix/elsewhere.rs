//! Tests of fixes that need more files around a config than their rule's fixtures have.

use serde_json::{Value, json};

use super::{fix, read};
use crate::support::tree::{MODEL, Tree, config};

/// Returns the config in `directory` after only this rule's fixes, unsafe ones included.
fn mended(tree: &Tree, directory: &str, rule: &str) -> Value {
    fix(tree, &["--no-model", "--unsafe", "--rule", rule]);
    let text = read(tree, &format!("{directory}/config.json"));
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_variant_gets_the_precision_that_its_file_is_named_after() {
    let mut value = config();
    let mut second = value["variants"][0].clone();
    second["file"] = json!("tiny_xnnpack_int8.pte");
    let variants = value["variants"].as_array_mut().expect("a list");
    variants.push(second);
    let tree = Tree::new()
        .package("xnnpack", &value)
        .file("xnnpack/tiny_xnnpack_int8.pte", [1; 2576]);
    let mended_value = mended(&tree, "xnnpack", "PKG009");
    value["variants"][1]["precision"] = json!("int8");
    assert_eq!(mended_value, value);

    // The file names agree with the duplicated value, so the fix is unambiguous.
    value["variants"][1]["precision"] = json!("fp32");
    value["variants"][1]["file"] = json!(MODEL);
    let tree = Tree::new().package("xnnpack", &value);
    assert_eq!(mended(&tree, "xnnpack", "PKG009"), value);
}

#[test]
fn separators_of_windows_are_mended_where_they_lead_to_a_file() {
    let mut value = config();
    value["tokenizer"] = json!("words\\tokenizer.json");
    let tree = Tree::new().package("xnnpack", &value);
    assert_eq!(
        mended(&tree, "xnnpack", "PKG016"),
        value,
        "nothing is there"
    );
    let tree = tree.file("xnnpack/words/tokenizer.json", "{}");
    value["tokenizer"] = json!("words/tokenizer.json");
    assert_eq!(mended(&tree, "xnnpack", "PKG016"), value);
}

#[test]
fn the_backend_becomes_that_of_the_directory_if_the_models_are_for_it() {
    let mut value = config();
    let tree = Tree::new().package("coreml", &value);
    assert_eq!(mended(&tree, "coreml", "PKG024"), value, "made for XNNPACK");
    value["variants"][0]["file"] = json!("tiny_coreml_fp32.pte");
    let tree = Tree::new()
        .package("coreml", &value)
        .file("coreml/tiny_coreml_fp32.pte", [1; 2576]);
    value["backend"] = json!("coreml");
    assert_eq!(mended(&tree, "coreml", "PKG024"), value);
}
