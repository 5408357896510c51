//! Tests of `pkgtool fix`: the errors that it fixes, how it writes files, and the changes that it
//! never makes.

mod elsewhere;
mod fixtures;
mod properties;
mod renames;
mod writes;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::run::{Ran, pkgtool};
use crate::support::tree::{MODEL, Tree, config, signature};

/// Runs `pkgtool fix` in a tree.
fn fix(tree: &Tree, arguments: &[&str]) -> Ran {
    let all = ["fix"].iter().chain(arguments);
    pkgtool(all).within(tree.root()).run()
}

/// Returns every file below a directory with its bytes.
fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let below = path.strip_prefix(root).expect("below the root");
                let bytes = fs::read(&path).expect("a file");
                contents.insert(below.to_string_lossy().into_owned(), bytes);
            }
        }
    }
    contents
}

fn read(tree: &Tree, path: &str) -> String {
    fs::read_to_string(tree.path(path)).expect("a text")
}

/// A config with errors of several rules, in its author's own layout.
const BROKEN: &str = "{\r\n\t\"model\": \"tiny\",\r\n\t\"family\": \"tiny\",   \r\n\t\"capabilities\": [\"classification\"],\r\n\t\"backend\": \"xnnpack\", // ours\r\n\t\"license\": \"MIT\",\r\n\t\"variants\": [\r\n\t\t{ \"precision\": \"fp32\", \"quantized\": false, \"file\": \"tiny_xnnpack_fp32.pte\", \"size_bytes\": 12 },\r\n\t],\r\n}\r\n";

const MENDED: &str = "{\r\n\t\"$schema\": \"https://pkgtool.dev/schemas/config.schema.json\",\r\n\t\"model\": \"tiny\",\r\n\t\"family\": \"tiny\",   \r\n\t\"capabilities\": [\"classification\"],\r\n\t\"backend\": \"xnnpack\",\r\n\t\"license\": \"MIT\",\r\n\t\"variants\": [\r\n\t\t{ \"precision\": \"fp32\", \"file\": \"tiny_xnnpack_fp32.pte\", \"size_bytes\": 2576, \"methods\": {\r\n\t\t\t\"forward\": {\r\n\t\t\t\t\"inputs\": [\r\n\t\t\t\t\t{ \"shape\": [2, 8], \"dtype\": \"float32\" },\r\n\t\t\t\t\t{ \"shape\": [2, 4], \"dtype\": \"float32\" }\r\n\t\t\t\t],\r\n\t\t\t\t\"outputs\": [\r\n\t\t\t\t\t{ \"shape\": [2, 4], \"dtype\": \"float32\" }\r\n\t\t\t\t]\r\n\t\t\t}\r\n\t\t} }\r\n\t]\r\n}\r\n";

#[test]
fn an_authors_layout_is_kept() {
    let tree = Tree::with_package().file("xnnpack/config.json", BROKEN);
    let ran = fix(&tree, &[]).expect_code(0);
    assert_eq!(read(&tree, "xnnpack/config.json"), MENDED, "{}", ran.stdout);
    let again = fix(&tree, &["--unsafe"]).expect_code(0);
    assert_eq!(again.stdout, "nothing was changed; nothing is left\n");
}

#[test]
fn a_config_without_methods_gets_those_of_its_models() {
    let mut value = config();
    let variant = value["variants"][0].as_object_mut().expect("a variant");
    let methods = variant.shift_remove("methods").expect("methods");
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    fix(&tree, &[]).expect_code(0);
    let mended: Value = serde_json::from_str(&read(&tree, "xnnpack/config.json")).expect("JSON");
    assert_eq!(mended["variants"][0]["methods"], methods);
    // `--no-model` reads no model, so values that only a model provides are not written.
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    fix(&tree, &["--no-model"]).expect_code(0);
    assert_eq!(read(&tree, "xnnpack/config.json"), format!("{value:#}\n"));
}

#[test]
fn names_of_tensors_stay_where_they_fit() {
    let mut value = config();
    let tensor =
        |name: &str, shape: [i64; 2]| json!({ "name": name, "shape": shape, "dtype": "float32" });
    value["variants"][0]["methods"]["forward"]["inputs"] = json!([
        tensor("gone", [9, 9]),
        tensor("image", [2, 8]),
        tensor("mask", [2, 4])
    ]);
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    fix(&tree, &[]).expect_code(0);
    let mended: Value = serde_json::from_str(&read(&tree, "xnnpack/config.json")).expect("JSON");
    let inputs = &mended["variants"][0]["methods"]["forward"]["inputs"];
    assert_eq!(
        *inputs,
        json!([tensor("image", [2, 8]), tensor("mask", [2, 4])])
    );
}

#[test]
fn what_is_not_wanted_is_left() {
    let mut value = config();
    value["variants"][0]["quantized"] = json!(false);
    value["variants"][0]["size_bytes"] = json!(7);
    value["license"] = json!("Apache 2.0");
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    let only = fix(&tree, &["--rule", "legacy-field"]).expect_code(1);
    assert!(
        only.stdout.contains("it has a fix, but --rule excludes it"),
        "{}",
        only.stdout
    );
    value["variants"][0]
        .as_object_mut()
        .expect("a variant")
        .shift_remove("quantized");
    assert_eq!(read(&tree, "xnnpack/config.json"), format!("{value:#}\n"));
    let safe = fix(&tree, &[]).expect_code(0);
    assert!(
        safe.stdout
            .contains("--unsafe would write \"license\": \"Apache-2.0\""),
        "{}",
        safe.stdout
    );
    value["variants"][0]["size_bytes"] = json!(2576);
    assert_eq!(read(&tree, "xnnpack/config.json"), format!("{value:#}\n"));
    fix(&tree, &["--unsafe", "--rule", "PKG026"]).expect_code(0);
    value["license"] = json!("Apache-2.0");
    assert_eq!(read(&tree, "xnnpack/config.json"), format!("{value:#}\n"));
    for (rule, words) in [
        ("no-such", "unknown rule"),
        ("empty-file", "PKG001 empty-file has no fixes"),
    ] {
        let ran = fix(&tree, &["--rule", rule]).expect_code(2);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}

#[test]
fn no_file_gets_worse() {
    // The right name uncovers two wrong dtypes, which this run may not fix.
    let mut value = config();
    let mut wrong = signature();
    wrong["inputs"][0]["dtype"] = json!("int8");
    wrong["inputs"][1]["dtype"] = json!("int8");
    value["variants"][0]["methods"] = json!({ "forwrd": wrong });
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    let before = contents(tree.root());
    let ran = fix(&tree, &["--rule", "method-not-in-model"]).expect_code(2);
    assert!(
        ran.stdout.contains("would cause more errors than it fixes"),
        "{}",
        ran.stdout
    );
    assert_eq!(contents(tree.root()), before);
    // With all rules, no error remains.
    fix(&tree, &[]).expect_code(0);
    let mended: Value = serde_json::from_str(&read(&tree, "xnnpack/config.json")).expect("JSON");
    assert_eq!(
        mended["variants"][0]["methods"],
        json!({ "forward": signature() })
    );
}

#[test]
fn a_shape_in_quotes_is_no_list_of_one_text() {
    let mut value = config();
    value["variants"][0]["methods"]["forward"]["inputs"][0]["shape"] = json!("2x8");
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    let before = contents(tree.root());
    let safe = fix(&tree, &[]).expect_code(1);
    assert!(
        safe.stdout
            .contains("--unsafe would write \"shape\": [2,8]"),
        "{}",
        safe.stdout
    );
    assert_eq!(contents(tree.root()), before);
    fix(&tree, &["--unsafe"]).expect_code(0);
    let fixed: Value = serde_json::from_str(&read(&tree, "xnnpack/config.json")).expect("JSON");
    assert_eq!(fixed, config());
}

#[test]
fn nothing_follows_from_a_variant_that_is_read_in_half() {
    let program = fs::read(crate::support::fixture(
        "models/add_linear_xnnpack_fp32.pte",
    ));
    let program = program.expect("a fixture");
    let mut value = config();
    value["variants"][0] = json!({
        "precision": "fp32",
        "file": null,
        "components": { "encoder": "tiny_encoder_xnnpack_fp32.pte", "decoder": null },
        "size_bytes": 2 * program.len(),
    });
    let tree = Tree::new()
        .json("xnnpack/config.json", &value)
        .file("xnnpack/tiny_encoder_xnnpack_fp32.pte", &program)
        .file("xnnpack/tiny_decoder_xnnpack_fp32.pte", &program);
    let before = contents(tree.root());
    let ran = fix(&tree, &[]).expect_code(1);
    assert_eq!(contents(tree.root()), before, "{}", ran.stdout);
    assert!(!ran.stdout.contains("PKG019"), "{}", ran.stdout);
}

#[test]
fn of_three_values_of_one_key_none_is_chosen() {
    let text = read(&Tree::with_package(), "xnnpack/config.json");
    let licenses = "\"license\": \"MIT\",\n  \"license\": \"Apache-2.0\",\n  \"license\": \"MIT\",";
    let text = text.replacen("\"license\": \"MIT\",", licenses, 1);
    let tree = Tree::with_package().file("xnnpack/config.json", &text);
    fix(&tree, &[]).expect_code(1);
    assert_eq!(read(&tree, "xnnpack/config.json"), text);
}

#[test]
fn a_safe_fix_that_uncovers_something_asks_for_consent() {
    let mut value = config();
    let variant = value["variants"][0].as_object_mut().expect("a variant");
    variant.shift_remove("precision");
    variant.insert("precison".to_owned(), json!("8w4da"));
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    let ran = fix(&tree, &[]).expect_code(1);
    assert!(
        ran.stdout
            .contains("--unsafe would rename `precison` to `precision`"),
        "{}",
        ran.stdout
    );
    assert_eq!(read(&tree, "xnnpack/config.json"), format!("{value:#}\n"));
}

#[test]
fn check_ends_with_1_where_an_error_is_left() {
    let mut value = config();
    value["license"] = json!("");
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    let ran = fix(&tree, &["--check"]).expect_code(1);
    assert!(
        ran.stdout
            .contains("nothing would change; 1 finding is left, including 1 error"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_diff_is_shown_and_nothing_written() {
    let mut value = config();
    value["variants"][0]["quantized"] = json!(false);
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    let before = contents(tree.root());
    let ran = fix(&tree, &["--diff"]).expect_code(1);
    insta::assert_snapshot!(ran.stdout);
    let checked = fix(&tree, &["--check"]).expect_code(1);
    assert!(
        checked
            .stdout
            .contains("1 fix in 1 file would be made; nothing is left"),
        "{}",
        checked.stdout
    );
    assert_eq!(contents(tree.root()), before);
    fix(&tree, &[]).expect_code(0);
    assert_eq!(fix(&tree, &["--diff"]).expect_code(0).stdout, "");
    fix(&tree, &["--check"]).expect_code(0);
}

#[test]
fn machines_are_told_what_was_done_and_what_is_left() {
    let mut value = config();
    value["variants"][0]["quantized"] = json!(false);
    value["license"] = json!("Apache 2.0");
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    let told = fix(&tree, &["--format", "json"]).expect_code(0).json();
    assert_eq!(told["version"], 1);
    let counts = ["checked", "fixed", "files", "refused", "left", "errors"]
        .map(|key| told["summary"][key].as_u64());
    assert_eq!(counts, [1, 1, 1, 0, 1, 0].map(Some));
    let file = &told["files"][0];
    assert_eq!(file["path"], "xnnpack/config.json");
    assert_eq!(file["written"], true);
    assert_eq!(file["fixed"][0]["code"], "PKG005");
    let left = &told["left"][0];
    assert_eq!(left["code"], "PKG026");
    assert_eq!(left["fix"]["applicability"], "unsafe");
    assert!(
        left["why"]
            .as_str()
            .expect("a reason")
            .starts_with("--unsafe would")
    );
}

#[test]
fn reports_carry_what_fix_would_do() {
    let tree = Tree::with_package().file(
        "xnnpack/config.json",
        BROKEN
            .replace("// ours", "")
            .replace("},\r\n\t],", "}\r\n\t]")
            .replace("],\r\n}", "]\r\n}"),
    );
    let text = read(&tree, "xnnpack/config.json");
    let report = pkgtool(["validate", "--format", "json"])
        .within(tree.root())
        .run()
        .json();
    let mut fixable = 0;
    for diagnostic in report["diagnostics"].as_array().expect("an array") {
        let Some(edits) = diagnostic["fix"]["edits"].as_array() else {
            continue;
        };
        fixable += 1;
        let mut after = text.clone();
        for edit in edits.iter().rev() {
            let at = |end: &str| {
                usize::try_from(edit["span"][end]["offset"].as_u64().expect("an offset"))
            };
            let (start, end) = (at("start").expect("small"), at("end").expect("small"));
            after.replace_range(start..end, edit["replacement"].as_str().expect("a text"));
        }
        serde_json::from_str::<Value>(&after).expect("each fix alone leaves JSON");
    }
    assert_eq!(fixable, 4, "{report:#}");
    let sarif = pkgtool(["validate", "--format", "sarif"])
        .within(tree.root())
        .run()
        .json();
    let results = sarif["runs"][0]["results"]
        .as_array()
        .expect("results")
        .clone();
    assert_eq!(
        results
            .iter()
            .filter(|result| result["fixes"].is_array())
            .count(),
        4
    );
}

#[test]
fn validate_mends_first_and_reports_the_rest() {
    let mut value = config();
    value["variants"][0]["quantized"] = json!(false);
    value["license"] = json!("");
    let tree = Tree::with_package().json("xnnpack/config.json", &value);
    let ran = pkgtool(["validate", "--fix", "--format", "json"])
        .within(tree.root())
        .run()
        .expect_code(1);
    assert_eq!(
        ran.stderr,
        "fixed: xnnpack/config.json: PKG005 legacy-field: remove `quantized`\n"
    );
    assert_eq!(ran.codes(), ["PKG004"]);
    pkgtool(["validate", "--unsafe"])
        .within(tree.root())
        .run()
        .expect_code(2);
}

#[test]
fn there_must_be_something_to_mend() {
    let tree = Tree::new().file("readme.txt", "");
    fix(&tree, &[]).expect_code(3);
    fix(&tree, &["nowhere"]).expect_code(2);
    let tree = Tree::with_package();
    let ran = fix(&tree, &[&format!("xnnpack/{MODEL}")]).expect_code(2);
    assert!(
        ran.stderr.contains("a model file, not a config"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_a_project_does_not_ask_for_is_left() {
    let settings = "ignore = [\"legacy-field\"]\nexclude = [\"old/\"]\n\n[[exception]]\n\
                    file = \"xnnpack/config.json\"\npointer = \"/variants/0/size_bytes\"\n\
                    rule = \"size-mismatch\"\nreason = \"the store counts otherwise\"\n";
    let mut faulty = config();
    faulty["variants"][0]["size_bytes"] = json!(12);
    faulty["variants"][0]["default"] = json!(true);
    let tree = Tree::with_package()
        .json("xnnpack/config.json", &faulty)
        .json("old/xnnpack/config.json", &faulty)
        .file("pkgtool.toml", settings);
    let before = contents(tree.root());
    for arguments in [&[][..], &["--unsafe"]] {
        fix(&tree, arguments).expect_code(0);
        assert_eq!(contents(tree.root()), before);
    }
    // Without the settings, every error is fixed.
    fs::remove_file(tree.path("pkgtool.toml")).expect("removed");
    let ran = fix(&tree, &["--format", "json"]).json();
    let mended = read(&tree, "xnnpack/config.json");
    assert!(
        mended.contains("2576") && !mended.contains("default"),
        "{ran:#}"
    );
}

#[test]
fn a_config_under_another_name_is_an_error_that_is_left() {
    for package in ["comments", "upper-case"] {
        let path = crate::support::fixture(&format!("rules/PKG044/bad/{package}"));
        let path = path.to_str().expect("a path in UTF-8");
        let ran = pkgtool(["fix", path]).run().expect_code(1);
        assert!(
            ran.stdout.contains("PKG044") && ran.stdout.contains("including 1 error"),
            "{}",
            ran.stdout
        );
        let told = pkgtool(["fix", path, "--check", "--format", "json"]).run();
        assert_eq!(told.json()["left"][0]["code"], "PKG044");
    }
}
