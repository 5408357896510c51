//! Tests of the evidence in file names and contents, and of files without any evidence.

use std::fs;

use serde_json::json;

use super::{SAID, init, read};
use crate::support::fixture;
use crate::support::tree::Tree;

fn program(name: &str) -> Vec<u8> {
    fs::read(fixture(name)).expect("a fixture")
}

fn said<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SAID.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn contents_say_the_precision_that_a_name_does_not() {
    for (file, model, precision) in [
        ("m_xnnpack.pte", "executorch/conv_xnnpack_int8.pte", "int8"),
        ("m_mlx.pte", "payloads/mlp_mlx_bf16.pte", "bf16"),
        ("m_coreml.pte", "models/convnet_coreml_fp16.pte", "fp16"),
        ("m_vulkan.pte", "payloads/mlp_vulkan_fp32.pte", "fp32"),
        ("m_qnn.onnx", "models/onnx/mlp.onnx", "fp32"),
        // More of the file is in 8 bits than in float16, its largest unquantised part.
        ("m_xnnpack.gguf", "formats/small.gguf", "int8"),
    ] {
        let backend = file[2..].split('.').next().expect("a backend");
        let tree = Tree::new().file(&format!("m/{backend}/{file}"), program(model));
        let told = init(&tree.path("m"), &said(&[])).expect_code(0).json();
        let config = read(&tree.path(&format!("m/{backend}/config.json")));
        assert_eq!(config["variants"][0]["precision"], precision, "{told:#}");
        let has_methods = config["variants"][0]["methods"].is_object();
        assert_eq!(has_methods, !model.starts_with("formats/"), "{model}");
        let findings = told["configs"][0]["findings"].as_array().expect("a list");
        let codes: Vec<&str> = findings
            .iter()
            .filter_map(|it| it["code"].as_str())
            .collect();
        assert!(codes.contains(&"PKG025"), "the name should say it");
        assert!(!codes.contains(&"PKG050"), "{told:#}");
    }
}

#[test]
fn nothing_is_guessed_unless_it_may_be() {
    let tree = Tree::new().file(
        "m/xnnpack/m_xnnpack.pte",
        program("models/add_linear_portable.pte"),
    );
    let ran = init(&tree.path("m"), &said(&[])).expect_code(2);
    assert!(
        ran.stderr.contains("--precision m_xnnpack.pte=TOKEN"),
        "{}",
        ran.stderr
    );
    let missing = &ran.json()["configs"][0]["missing"][0];
    assert_eq!(
        [&missing["field"], &missing["proposal"]],
        ["precision", "fp32"]
    );
    assert!(!tree.path("m/xnnpack/config.json").exists());
    init(&tree.path("m"), &said(&["--yes", "--dry-run"])).expect_code(0);
    assert!(!tree.path("m/xnnpack/config.json").exists());
    init(
        &tree.path("m"),
        &said(&["--precision", "m_xnnpack.pte=fp16"]),
    )
    .expect_code(0);
    let config = read(&tree.path("m/xnnpack/config.json"));
    assert_eq!(config["variants"][0]["precision"], "fp16");
    for (wrong, word) in [
        ("8w4da", "precision list"),
        ("other.pte=fp32", "no model file has that name"),
        ("FP32", "lower-case"),
        ("=fp32", "before `=`"),
    ] {
        let ran = init(&tree.path("m"), &said(&["--force", "--precision", wrong])).expect_code(2);
        assert!(ran.stderr.contains(word), "{wrong}: {}", ran.stderr);
    }
}

#[test]
fn files_that_cannot_be_read_are_variants_without_methods() {
    let tree = Tree::new().file(
        "m/coreml/m_sm8650_coreml_fp16.mlmodelc/coremldata.bin",
        [0; 40],
    );
    init(&tree.path("m"), &said(&[])).expect_code(0);
    let config = read(&tree.path("m/coreml/config.json"));
    let file = "m_sm8650_coreml_fp16.mlmodelc";
    let variant = json!({ "precision": "fp16", "file": file, "size_bytes": 40 });
    assert_eq!(config["variants"], json!([variant]));
    assert_eq!(
        config["model"], "m_sm8650",
        "only the author knows how chips differ"
    );
}

#[test]
fn no_config_is_written_for_broken_files() {
    let whole = program("models/add_linear_xnnpack_fp32.pte");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
    for (content, code) in [
        (Vec::new(), "PKG017"),
        (whole[..900].to_vec(), "PKG027"),
        (pointer.as_bytes().to_vec(), "PKG018"),
    ] {
        let tree = Tree::new()
            .file("m/xnnpack/m_xnnpack_int8.pte", content)
            .file("m/xnnpack/m_xnnpack_fp32.pte", &whole);
        let told = init(&tree.path("m"), &said(&[])).expect_code(1).json();
        let config = &told["configs"][0];
        assert_eq!(config["findings"][0]["code"], code, "{config:#}");
        assert_eq!(config["written"], false);
        assert!(!tree.path("m/xnnpack/config.json").exists());
    }
}

#[test]
fn words_in_names_are_components_and_numbers_are_not() {
    let model = program("models/add_linear_xnnpack_fp32.pte");
    let tree = Tree::new()
        .file("m/xnnpack/m_joiner_xnnpack_fp32.pte", &model)
        .file("m/xnnpack/m_encoder_xnnpack_fp32.pte", &model)
        .file(
            "m/xnnpack/m_encoder_xnnpack_int8.pte",
            program("executorch/conv_xnnpack_int8.pte"),
        );
    let told = init(&tree.path("m"), &said(&[])).expect_code(0).json();
    let config = read(&tree.path("m/xnnpack/config.json"));
    let keys: Vec<&String> = config["variants"][0]["components"]
        .as_object()
        .expect("components")
        .keys()
        .collect();
    assert_eq!(keys, ["encoder", "joiner"]);
    assert_eq!(config["variants"][0]["file"], json!(null));
    assert_eq!(config["variants"][0]["size_bytes"], 2 * 2576);
    assert_eq!(config["variants"][1]["precision"], "int8");
    assert!(
        told["configs"][0]["remarks"]
            .to_string()
            .contains("`joiner`"),
        "{told:#}"
    );

    let tree = Tree::new()
        .file("m/xnnpack/m_256_xnnpack_fp32.pte", &model)
        .file(
            "m/xnnpack/m_512_xnnpack_fp32.pte",
            program("executorch/unplanned_xnnpack_fp32.pte"),
        );
    init(&tree.path("m"), &said(&[])).expect_code(0);
    let config = read(&tree.path("m/xnnpack/config.json"));
    assert_eq!(config["model"], "m");
    assert_eq!(config["variants"][1]["file"], "m_512_xnnpack_fp32.pte");
}

#[test]
fn directories_that_are_no_backends_are_named() {
    let model = program("models/add_linear_xnnpack_fp32.pte");
    let tree = Tree::new()
        .file("m/xnnpack/m_xnnpack_fp32.pte", &model)
        .file("m/old/m_xnnpack_fp32.pte", &model)
        .file("m/.hidden/xnnpack/m_xnnpack_fp32.pte", &model);
    let told = init(&tree.path("m"), &said(&[])).expect_code(0).json();
    assert_eq!(told["configs"].as_array().map(Vec::len), Some(1));
    assert!(
        told["passed_over"][0]["path"].to_string().contains("m/old"),
        "{told:#}"
    );

    // If the file is named explicitly, it gets a config, and the report says where it belongs.
    let told = init(&tree.path("m/old"), &said(&[])).expect_code(0).json();
    assert_eq!(told["configs"][0]["findings"][0]["code"], "PKG024");
    let config = read(&tree.path("m/old/config.json"));
    assert_eq!([&config["model"], &config["backend"]], ["m", "xnnpack"]);
}
