//! Findings that name the cause of a fault, and findings about the surroundings of a config. Each
//! is reported once.

use std::fs;

use serde_json::{Value, json};

use crate::support::fixture;
use crate::support::run::{Found, pkgtool, validate};
use crate::support::tree::{MODEL, Tree, config, signature};

const OWN: &str = "https://publisher.example/config.schema.json";

fn program() -> Vec<u8> {
    fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture")
}

fn found(tree: &Tree) -> Vec<Found> {
    validate(tree.root(), ".").findings()
}

#[track_caller]
fn only(tree: &Tree, code: &str, words: &str) -> Found {
    let mut found = found(tree);
    assert_eq!(found.len(), 1, "{found:#?}");
    let one = found.remove(0);
    assert_eq!(one.code, code, "{one:#?}");
    let said = format!("{} | {}", one.message, one.help);
    assert!(said.contains(words), "{said}");
    one
}

fn with(change: impl FnOnce(&mut Value)) -> Tree {
    let mut value = config();
    change(&mut value);
    Tree::new().package("xnnpack", &value)
}

fn json_at(tree: &Tree, path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(tree.path(path)).expect("a text")).expect("JSON")
}

#[test]
fn foreign_characters_are_named_and_replaced() {
    let text = format!("{:#}\n", config());
    for (from, to, words) in [
        (
            "\"model\": ",
            "\"model\":\u{a0}",
            "U+00A0, a no-break space",
        ),
        ("\"tiny\"", "\u{201c}tiny\u{201d}", "a curly quotation mark"),
    ] {
        let broken = text.replacen(from, to, 1);
        let tree = Tree::with_package().file("xnnpack/config.json", broken);
        only(&tree, "PKG002", words);
        pkgtool(["fix"]).within(tree.root()).run().expect_code(0);
        assert_eq!(json_at(&tree, "xnnpack/config.json"), config(), "{words}");
    }
    let wide: Vec<u8> = text.bytes().flat_map(|byte| [byte, 0]).collect();
    let tree = Tree::with_package().file("xnnpack/config.json", wide);
    only(&tree, "PKG002", "UTF-16 without a byte order mark");
}

#[test]
fn white_space_in_an_identifier_is_named() {
    let own = |id: &str| with(|value| value["$schema"] = json!(id));
    let tree = own(&format!(" {OWN}\n"));
    only(&tree, "PKG004", "remove the white space around it");
    pkgtool(["fix"]).within(tree.root()).run().expect_code(0);
    assert_eq!(json_at(&tree, "xnnpack/config.json")["$schema"], OWN);
    only(
        &own("https://publisher.example/a b.json"),
        "PKG004",
        "a URI has no white space",
    );
}

#[test]
fn tokenizers_that_are_something_else_are_named() {
    for (text, words) in [
        ("<!DOCTYPE html>\n<html></html>\n", "a page of HTML"),
        (
            "{\n<<<<<<< HEAD\n\"a\": 1\n=======\n\"a\": 2\n>>>>>>> b\n}\n",
            "file has a merge conflict marker (line 2)",
        ),
        ("\u{feff}{\"model\": {}}\n", "without a byte order mark"),
    ] {
        let tree = with(|value| value["tokenizer"] = json!("tokenizer.json"));
        only(&tree.file("xnnpack/tokenizer.json", text), "PKG022", words);
    }
}

#[test]
fn a_normaliser_that_multiplies_texts_is_told() {
    let package = || with(|value| value["tokenizer"] = json!("tokenizer.json"));
    let replace = |from: &str, to: String| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
    let tokenizer = |steps: Vec<Value>| json!({ "model": {}, "normalizer": { "type": "Sequence", "normalizers": steps } });
    let bomb = tokenizer(vec![replace("a", "a".repeat(1500)); 4]);
    let tree = package().json("xnnpack/tokenizer.json", &bomb);
    only(
        &tree,
        "PKG022",
        "can produce 5062500000000 characters from one",
    );
    let sound = tokenizer(vec![
        json!({ "type": "Prepend", "prepend": "\u{2581}" }),
        replace(" ", "\u{2581}".to_owned()),
        json!({ "type": "Replace", "pattern": { "Regex": " {2,}" }, "content": "\u{2581}" }),
        replace(
            "...............",
            "a longer text than what it stands for".to_owned(),
        ),
    ]);
    let tree = package().json("xnnpack/tokenizer.json", &sound);
    let ran = pkgtool(["validate", "."]).within(tree.root()).run();
    assert!(!ran.stdout.contains("PKG022"), "{}", ran.stdout);
}

#[test]
fn typing_errors_that_names_repeat_are_told() {
    let tree = with(|value| {
        value["variants"][0]["precision"] = json!("8w4da");
        value["variants"][0]["file"] = json!("tiny_xnnpack_8w4da.pte");
    });
    let tree = tree.file("xnnpack/tiny_xnnpack_8w4da.pte", program());
    fs::remove_file(tree.path(&format!("xnnpack/{MODEL}"))).expect("the file is removed");
    only(
        &tree,
        "PKG008",
        "did you mean `8da4w`, which is also in the file's name?",
    );
}

#[test]
fn copies_shadows_and_names_that_differ_in_case_are_told() {
    let tree = Tree::with_package().file("xnnpack/config (1).json", "{}");
    let one = only(&tree, "PKG044", "`config (1).json` is beside config.json");
    assert_eq!(one.path, "xnnpack/config (1).json");
    let tree = Tree::with_package().file(&format!("xnnpack/._{MODEL}"), "\0\u{5}\u{16}\u{7}");
    only(&tree, "PKG020", "macOS keeps attributes");
    if cfg!(target_os = "linux") {
        let tree = Tree::with_package().file("xnnpack/Tiny_xnnpack_fp32.pte", program());
        only(&tree, "PKG060", "differ only in case");
    }
}

#[test]
fn data_has_no_methods() {
    let tree = with(|value| {
        value["variants"][0] = json!({
            "precision": "fp32",
            "file": null,
            "components": { "encoder": "tiny_encoder_xnnpack_fp32.pte", "scheduler": "scheduler.json" },
            "methods": { "encoder": { "forward": signature() }, "scheduler": { "forward": signature() } },
        });
    });
    fs::rename(
        tree.path(&format!("xnnpack/{MODEL}")),
        tree.path("xnnpack/tiny_encoder_xnnpack_fp32.pte"),
    )
    .expect("renamed");
    let tree = tree.file("xnnpack/scheduler.json", "{}");
    only(&tree, "PKG012", "is not a model and has no methods");
}

/// A directory that is deleted when the test ends.
struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_identifier_follows_siblings_then_the_setting() {
    let lacking = |value: &mut Value| {
        drop(
            value
                .as_object_mut()
                .expect("an object")
                .shift_remove("$schema"),
        );
    };
    let mut sibling = config();
    sibling["$schema"] = json!(OWN);
    sibling["backend"] = json!("coreml");
    sibling["variants"] = json!([{ "precision": "fp32", "file": "tiny_coreml_fp32.onnx" }]);
    let tree = with(lacking).json("coreml/config.json", &sibling);
    pkgtool(["fix", "xnnpack"]).within(tree.root()).run();
    assert_eq!(json_at(&tree, "xnnpack/config.json")["$schema"], OWN);
    // Directories beside the project belong to other packages.
    let tree = with(lacking).file("pkgtool.toml", format!("schema-id = \"{OWN}\"\n"));
    let beside = tree.root().with_extension("beside");
    let other = beside.join("xnnpack");
    fs::create_dir_all(&other).expect("a directory");
    let foreign = config().to_string();
    fs::write(other.join("config.json"), foreign).expect("a file");
    let _removed = Removed(beside);
    pkgtool(["fix"]).within(tree.root()).run().expect_code(0);
    assert_eq!(json_at(&tree, "xnnpack/config.json")["$schema"], OWN);
    // `init` beside a sibling, and as a replacement of a config.
    let told = [
        "init",
        "xnnpack",
        "--force",
        "--yes",
        "--license",
        "MIT",
        "--capability",
        "classification",
        "--family",
        "tiny",
    ];
    let tree = Tree::new()
        .package("xnnpack", &config())
        .json("coreml/config.json", &sibling);
    fs::remove_file(tree.path("xnnpack/config.json")).expect("the file is removed");
    pkgtool(told).within(tree.root()).run().expect_code(0);
    assert_eq!(json_at(&tree, "xnnpack/config.json")["$schema"], OWN);
    let tree = with(|value| value["$schema"] = json!(OWN));
    pkgtool(told).within(tree.root()).run().expect_code(0);
    assert_eq!(json_at(&tree, "xnnpack/config.json")["$schema"], OWN);
    // Siblings that disagree leave the value unknown, so `fix` writes nothing.
    let mut other = sibling.clone();
    other["backend"] = json!("vulkan");
    other["$schema"] = json!("https://other.example/config.schema.json");
    let tree = with(lacking)
        .json("coreml/config.json", &sibling)
        .json("vulkan/config.json", &other);
    pkgtool(["fix", "xnnpack"]).within(tree.root()).run();
    assert_eq!(json_at(&tree, "xnnpack/config.json").get("$schema"), None);
}

#[test]
fn components_that_were_written_as_variants_become_components() {
    let parts = ["encoder", "decoder", "joiner"];
    let variants: Vec<Value> = parts
        .iter()
        .map(|part| {
            json!({
                "precision": "fp32",
                "file": format!("tiny_{part}_xnnpack_fp32.pte"),
                "size_bytes": program().len(),
                "methods": { "forward": signature() },
            })
        })
        .collect();
    let mut tree = with(|value| value["variants"] = json!(variants));
    fs::remove_file(tree.path(&format!("xnnpack/{MODEL}"))).expect("the file is removed");
    for (at, part) in parts.iter().enumerate() {
        let mut bytes = program();
        // A different file with the same header.
        bytes.extend(vec![0; 0]);
        let last = bytes.len() - 1 - at;
        bytes[last] ^= 1;
        tree = tree.file(&format!("xnnpack/tiny_{part}_xnnpack_fp32.pte"), bytes);
    }
    let told = found(&tree);
    assert_eq!(
        told.iter().filter(|one| one.code == "PKG009").count(),
        1,
        "{told:#?}"
    );
    assert!(
        told.iter()
            .any(|one| one.help.contains("these are components")),
        "{told:#?}"
    );
    pkgtool(["fix", "--unsafe", "--rule", "PKG009"])
        .within(tree.root())
        .run();
    let variants = &json_at(&tree, "xnnpack/config.json")["variants"];
    let variants = variants.as_array().expect("variants");
    assert_eq!(variants.len(), 1);
    let names: Vec<&String> = variants[0]["components"]
        .as_object()
        .expect("components")
        .keys()
        .collect();
    assert_eq!(names, ["encoder", "decoder", "joiner"]);
    assert_eq!(variants[0]["size_bytes"], 3 * program().len());
    assert_eq!(variants[0]["methods"]["joiner"]["forward"], signature());
}

#[test]
fn a_size_in_one_model_is_told() {
    let mut sibling = config();
    sibling["model"] = json!("tiny_1b");
    sibling["backend"] = json!("coreml");
    sibling["variants"] = json!([{ "precision": "fp32", "file": "tiny_1b_coreml_fp32.onnx" }]);
    let onnx =
        fs::read(fixture("rules/PKG047/good/coreml/tiny_coreml_fp32.onnx")).expect("a fixture");
    let tree = Tree::with_package()
        .json("coreml/config.json", &sibling)
        .file("coreml/tiny_1b_coreml_fp32.onnx", onnx);
    let told = found(&tree);
    let sizes = told
        .iter()
        .filter(|one| one.code == "PKG047" && one.message.contains("only by a size"));
    assert_eq!(sizes.count(), 1, "{told:#?}");
}

#[test]
fn the_hook_runs_whatever_a_commit_has() {
    let hooks = include_str!("../../../.pre-commit-hooks.yaml");
    assert!(hooks.contains("\n  always_run: true\n"), "{hooks}");
    assert!(
        !hooks.contains("files:") && !hooks.contains("types"),
        "a filter would skip commits"
    );
}
