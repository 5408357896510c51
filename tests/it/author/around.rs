//! Tests of `init` with other files around a model: existing configs, licences, tokenizers, other
//! backends.

use std::fs;

use serde_json::{Value, json};

use super::{init, read};
use crate::support::fixture;
use crate::support::tree::{MODEL, Tree};

const SAID: [&str; 4] = ["--family", "tiny", "--capability", "classification"];
const CONFIG: &str = "tiny/xnnpack/config.json";

/// Returns `tiny/xnnpack/` with a model file and no config.
fn bare() -> Tree {
    let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    Tree::new().file(&format!("tiny/xnnpack/{MODEL}"), program)
}

fn evidence(told: &Value, pointer: &str) -> String {
    let fields = told["configs"][0]["fields"].as_array().expect("fields");
    let field = fields.iter().find(|field| field["pointer"] == pointer);
    let field = field.unwrap_or_else(|| panic!("no {pointer}: {told:#}"));
    field["evidence"].as_str().expect("a text").to_owned()
}

#[test]
fn a_licence_is_found_in_the_package_and_nowhere_above_it() {
    let apache = include_str!("../../../LICENSE-APACHE");
    for (path, text, license, source) in [
        ("tiny/LICENSE", apache, "apache-2.0", "LICENSE"),
        (
            "tiny/xnnpack/copying.md",
            "SPDX-License-Identifier: MIT\n",
            "MIT",
            "copying.md",
        ),
        (
            "tiny/README.md",
            "---\nlicense: gemma\n---\n# Tiny\n",
            "gemma",
            "README.md",
        ),
        (
            "tiny/README.md",
            "---\nlicense: [mit]\n---\n",
            "mit",
            "README.md",
        ),
        (
            "tiny/readme.md",
            "---\r\nlicense: other\r\nlicense_name: lfm-1.0\r\n---\r\n",
            "lfm-1.0",
            "readme.md",
        ),
    ] {
        let tree = bare().file(path, text);
        let told = init(&tree.path("tiny"), &SAID).expect_code(0).json();
        assert_eq!(read(&tree.path(CONFIG))["license"], license);
        assert!(evidence(&told, "/license").contains(source), "{told:#}");
    }
    for (path, text) in [
        ("LICENSE", apache),
        ("tiny/LICENSE", "All rights reserved."),
        ("tiny/LICENSE", ""),
        ("tiny/README.md", "---\nlicense: [mit, isc]\n---\n"),
    ] {
        let tree = bare().file(path, text);
        let ran = init(&tree.path("tiny"), &SAID).expect_code(2);
        assert!(
            ran.stderr.contains("--license NAME"),
            "{path}: {}",
            ran.stderr
        );
        assert!(!tree.path(CONFIG).exists());
    }
}

#[test]
fn a_config_that_is_there_is_kept() {
    let text = "{ \"backend\": \"xnnpack\", \"variants\": [] }";
    let tree = bare().file(CONFIG, text);
    let ran = init(&tree.path("tiny"), &SAID).expect_code(3);
    let reason = ran.json()["passed_over"][0]["reason"].to_string();
    assert!(
        reason.contains("pkgtool fix") && reason.contains("--force"),
        "{reason}"
    );
    assert_eq!(fs::read_to_string(tree.path(CONFIG)).expect("a text"), text);

    let foreign = bare().file(CONFIG, r#"{ "model_type": "llama", "architectures": [] }"#);
    let ran = init(&foreign.path("tiny"), &SAID).expect_code(3);
    assert!(ran.stdout.contains("transformers"), "{}", ran.stdout);

    let misnamed = bare().file("tiny/xnnpack/Config.json", text);
    let ran = init(&misnamed.path("tiny"), &SAID).expect_code(3);
    assert!(ran.stdout.contains("rename it"), "{}", ran.stdout);

    let empty = bare().file(CONFIG, "");
    init(
        &empty.path("tiny"),
        &[&SAID[..], &["--license", "MIT"]].concat(),
    )
    .expect_code(0);
    assert_eq!(read(&empty.path(CONFIG))["license"], "MIT");
}

#[test]
fn what_an_author_decided_survives_a_new_config() {
    let old = json!({
        "model": "tiny", "family": "old", "capabilities": ["vision"], "license": "ISC",
        "backend": "xnnpack", "variants": [{ "precision": "fp32", "file": MODEL, "size_bytes": 1 }],
    });
    let tree = bare().json(CONFIG, &old);
    init(&tree.path("tiny"), &["--force", "--license", "MIT"]).expect_code(0);
    let new = read(&tree.path(CONFIG));
    assert_eq!(new["family"], "old");
    assert_eq!(new["capabilities"], json!(["vision"]));
    assert_eq!(new["license"], "MIT", "arguments come first");
    assert_eq!(new["variants"][0]["size_bytes"], 2576);
}

#[test]
fn backends_of_one_model_say_the_same() {
    let vulkan = fs::read(fixture("payloads/mlp_vulkan_fp32.pte")).expect("a fixture");
    let tree = bare().file("tiny/vulkan/tiny_vulkan_fp32.pte", vulkan);
    let first = [&SAID[..], &["--license", "MIT", "--backend", "vulkan"]].concat();
    let told = init(&tree.path("tiny"), &first).expect_code(0).json();
    assert_eq!(told["configs"].as_array().map(Vec::len), Some(1));
    assert!(
        !tree.path(CONFIG).exists(),
        "only the backend that was asked for"
    );
    let told = init(&tree.path("tiny"), &[]).expect_code(0).json();
    assert!(
        evidence(&told, "/family").contains("vulkan/config.json"),
        "{told:#}"
    );
    let new = read(&tree.path(CONFIG));
    assert_eq!(new["license"], "MIT");
    assert_eq!(new["capabilities"], json!(["classification"]));
    let ran = crate::support::run::validate(tree.root(), ".").expect_code(0);
    // The two files hold different networks, which only their content shows.
    assert_eq!(ran.codes(), ["PKG051"]);
}

#[test]
fn tokenizers_are_found_beside_and_above() {
    let more = [&SAID[..], &["--license", "MIT"]].concat();
    for (file, config, references) in [
        (
            "tiny/tokenizer.json",
            "tiny/tokenizer_config.json",
            ["../tokenizer.json", "../tokenizer_config.json"],
        ),
        (
            "tiny/xnnpack/tokenizer.json",
            "tiny/xnnpack/tokenizer_config.json",
            ["tokenizer.json", "tokenizer_config.json"],
        ),
        (
            "tiny/tokenizer/tokenizer.json",
            "tiny/tokenizer/tokenizer_config.json",
            [
                "../tokenizer/tokenizer.json",
                "../tokenizer/tokenizer_config.json",
            ],
        ),
    ] {
        let tree = bare()
            .file(file, "{ \"model\": {} }")
            .file(config, "{ \"tokenizer_class\": \"T\" }");
        init(&tree.path("tiny"), &more).expect_code(0);
        let new = read(&tree.path(CONFIG));
        assert_eq!([&new["tokenizer"], &new["tokenizer_config"]], references);
    }
    let above = bare().file("tokenizer.json", "{}");
    init(&above.path("tiny"), &more).expect_code(0);
    assert_eq!(
        read(&above.path(CONFIG)).get("tokenizer"),
        None,
        "it is another package's"
    );
}

#[test]
fn a_licence_with_further_terms_is_no_fact() {
    let mit = include_str!("../../../LICENSE-MIT");
    let tree = bare().file(
        "tiny/LICENSE",
        format!("{mit}\nAdditional terms: not for sale.\n"),
    );
    let ran = init(&tree.path("tiny"), &SAID).expect_code(2);
    assert!(
        ran.stderr.contains("accept the proposal `mit`"),
        "{}",
        ran.stderr
    );
    assert!(!tree.path(CONFIG).exists());
    let told = init(&tree.path("tiny"), &[&SAID[..], &["--yes"]].concat()).expect_code(0);
    let told = told.json();
    let fields = told["configs"][0]["fields"].as_array().expect("fields");
    let mut fields = fields.iter();
    let field = fields.find(|field| field["pointer"] == "/license");
    assert_eq!(field.expect("a licence")["guess"], true);
    assert!(
        evidence(&told, "/license").contains("further terms"),
        "{told:#}"
    );
}

#[test]
fn size_tokenizers_and_dimensions_survive_a_new_config() {
    let program = fs::read(fixture("models/dyn_batch_xnnpack_fp32.pte")).expect("a fixture");
    let tree = Tree::new().file("tiny/xnnpack/tiny_xnnpack_fp32.pte", program);
    let said = [&SAID[..], &["--license", "MIT"]].concat();
    init(&tree.path("tiny"), &said).expect_code(0);
    let mut old = read(&tree.path(CONFIG));
    old["size"] = json!("2b");
    old["tokenizer"] = json!("../words.json");
    old["tokenizer_config"] = json!("../words_config.json");
    // The file states that some dimensions vary, but not which ones.
    let shape = &mut old["variants"][0]["methods"]["forward"]["inputs"][0]["shape"];
    assert_eq!(*shape, json!([-1, 3, 32, 32]));
    *shape = json!([-1, 3, -1, 32]);
    let tree = tree
        .json(CONFIG, &old)
        .file("tiny/words.json", "{}")
        .file("tiny/words_config.json", "{}")
        .file("tiny/tokenizer.json", "{}");
    let told = init(&tree.path("tiny"), &["--force"]).json();
    let new = read(&tree.path(CONFIG));
    for key in ["size", "tokenizer", "tokenizer_config", "variants"] {
        assert_eq!(new[key], old[key], "{key}: {told:#}");
    }
    for pointer in ["/size", "/tokenizer", "/tokenizer_config"] {
        let kept = "kept from the replaced config";
        assert_eq!(evidence(&told, pointer), kept, "{pointer}");
    }
    // Arguments override the old config, and deleted files are dropped.
    fs::remove_file(tree.path("tiny/words.json")).expect("removed");
    fs::remove_file(tree.path("tiny/words_config.json")).expect("removed");
    init(&tree.path("tiny"), &["--force", "--size", "3b"]);
    let new = read(&tree.path(CONFIG));
    assert_eq!(new["size"], "3b");
    assert_eq!(new["tokenizer"], "../tokenizer.json");
    assert_eq!(new["tokenizer_config"], json!(null));
}

#[test]
fn what_is_looked_for_is_told_in_full() {
    let tree = Tree::new().file("readme.txt", "");
    let ran = init(tree.root(), &[]).expect_code(3);
    for extension in [".pte", ".tflite", ".gguf", ".safetensors"] {
        assert!(ran.stderr.contains(extension), "{}", ran.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_that_no_config_can_name_is_told() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let tree = bare();
    let name = OsStr::from_bytes(b"caf\xe9.pte");
    fs::write(tree.path("tiny/xnnpack").join(name), "").expect("a file");
    let said = [&SAID[..], &["--license", "MIT"]].concat();
    let told = init(&tree.path("tiny"), &said).expect_code(0).json();
    let reason = told["passed_over"][0]["reason"].to_string();
    assert!(reason.contains("not UTF-8"), "{told:#}");
}
