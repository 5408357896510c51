//! Tests of `pkgtool inspect`: its output, and its messages for unreadable files.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::fixture;
#[cfg(feature = "run")]
use crate::support::onnx;
use crate::support::run::pkgtool;
use crate::support::tree::Tree;

#[test]
fn models_are_shown_as_a_table_and_as_json() {
    let models = fixture("models");
    for model in ["onnx/mlp.onnx", "multi_method_xnnpack_fp32.pte"] {
        let table = pkgtool(["inspect", model])
            .within(&models)
            .run()
            .expect_code(0);
        insta::assert_snapshot!(
            format!("{}_table", model.replace(['/', '.'], "_")),
            table.stdout
        );
        let json = pkgtool(["inspect", "--json", model])
            .within(&models)
            .run()
            .expect_code(0);
        assert_eq!(json.json()["version"], 1);
        insta::assert_snapshot!(
            format!("{}_json", model.replace(['/', '.'], "_")),
            json.stdout
        );
    }
}

#[test]
fn what_payloads_hold_is_shown() {
    let payloads = fixture("payloads");
    for model in [
        "decoder_coreml_fp16",
        "methods_coreml_fp32",
        "wide_8da4w_vulkan_8da4w",
        "wide_int4_mlx_fp32",
    ] {
        let file = format!("{model}.pte");
        let table = pkgtool(["inspect", &file]).within(&payloads).run();
        let table = table.expect_code(0);
        insta::assert_snapshot!(format!("{model}_table"), table.stdout);
        let json = pkgtool(["inspect", "--json", &file])
            .within(&payloads)
            .run();
        let json = json.expect_code(0).json();
        let told: Vec<&Value> = json["methods"]
            .as_object()
            .expect("methods")
            .values()
            .flat_map(|method| method["payloads"].as_array().expect("payloads"))
            .collect();
        insta::assert_snapshot!(format!("{model}_payloads"), format!("{:#}", json!(told)));
    }
}

/// What keeps an ONNX model from running on any machine is shown with the reason.
#[cfg(feature = "run")]
#[test]
fn operators_that_do_not_run_everywhere_are_shown() {
    let tree = Tree::new();
    for (operator, line, missing) in [
        ("Relu", "  portable  yes, run by tract", json!([])),
        (
            "Det",
            "  portable  no, `Det`: no implementation; ONNX Runtime may run them, or the provider of \
             a device",
            json!(["Det"]),
        ),
    ] {
        let model = onnx::unary(operator, "float32", Some(&[2, 2]));
        std::fs::write(tree.root().join("model.onnx"), model).expect("written");
        let table = pkgtool(["inspect", "model.onnx"]).within(tree.root()).run();
        let table = table.expect_code(0).stdout;
        assert!(table.lines().any(|found| found == line), "{table}");
        let json = pkgtool(["inspect", "--json", "model.onnx"])
            .within(tree.root())
            .run();
        let method = &json.expect_code(0).json()["methods"]["forward"];
        assert_eq!(method["portable"], json!(missing == json!([])), "{method}");
        assert_eq!(method["missing"], missing);
    }
}

#[test]
fn a_payload_that_cannot_be_read_is_told_and_the_program_is_shown() {
    let payloads = fixture("payloads");
    for (model, from, to, place) in [
        (
            "mlp_coreml_fp32",
            "\"sedon\"{",
            "\"sedoN\"{",
            "Core ML payload listing",
        ),
        ("mlp_mlx_fp32", "MLX0", "MLX9", "MLX payload header.magic"),
        (
            "mlp_vulkan_fp32",
            "VH00",
            "VH09",
            "Vulkan payload header.magic",
        ),
    ] {
        let mut bytes = std::fs::read(payloads.join(format!("{model}.pte"))).expect("a fixture");
        let at = bytes
            .windows(from.len())
            .position(|part| part == from.as_bytes());
        let at = at.expect("it is there");
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        let tree = Tree::new();
        std::fs::write(tree.root().join("broken.pte"), bytes).expect("written");
        let table = pkgtool(["inspect", "broken.pte"]).within(tree.root()).run();
        let table = table.expect_code(0).stdout;
        let line = table.lines().find(|line| line.contains("unreadable"));
        let line = line.unwrap_or_else(|| panic!("{table}"));
        assert!(line.contains(place) && line.contains("at offset"), "{line}");
        let json = pkgtool(["inspect", "--json", "broken.pte"])
            .within(tree.root())
            .run();
        let told = &json.expect_code(0).json()["methods"]["forward"]["payloads"][0];
        assert!(
            told["error"]
                .as_str()
                .is_some_and(|error| error.contains(place)),
            "{told}"
        );
        assert!(told["offset"].is_u64(), "{told}");
    }
}

/// Compares a value of `expect.json` with the tool's JSON, in the fields that both have.
fn agrees(ours: &Value, expected: &Value) -> bool {
    match expected["non_tensor"].as_str() {
        Some(kind) => *ours == json!({ "kind": kind.to_lowercase(), "value": expected["value"] }),
        None => ours["dtype"] == expected["dtype"] && ours["shape"] == expected["config_shape"],
    }
}

#[test]
fn the_json_agrees_with_an_independent_reading() {
    let models = fixture("models");
    let text = std::fs::read_to_string(models.join("expect.json")).expect("expect.json");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    let mut compared = 0;
    for (model, methods) in expected.as_object().expect("an object") {
        let file = format!("{model}.pte");
        // Only the headers of large models are stored; the reader's own tests extend them.
        if !models.join(&file).exists() {
            continue;
        }
        let ran = pkgtool(["inspect", "--json", &file]).within(&models).run();
        let ours = ran.expect_code(0).json();
        let names = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect());
        assert_eq!(
            names(&ours["methods"]),
            names(methods) as Option<BTreeSet<String>>
        );
        for (name, expected) in methods.as_object().expect("methods") {
            let ours = &ours["methods"][name];
            assert_eq!(
                ours["constant"], expected["constant_method"],
                "{model} {name}"
            );
            assert_eq!(ours["delegates"], expected["delegates"], "{model} {name}");
            for side in ["inputs", "outputs"] {
                let lists = (ours[side].as_array(), expected[side].as_array());
                let (Some(ours), Some(expected)) = lists else {
                    panic!("{model} {name}: no {side}");
                };
                assert_eq!(ours.len(), expected.len(), "{model} {name} {side}");
                for (ours, expected) in ours.iter().zip(expected) {
                    assert!(agrees(ours, expected), "{model} {name}: {ours} {expected}");
                }
            }
        }
        compared += 1;
    }
    assert!(compared >= 11, "only {compared} programs compared");
}

#[test]
fn what_is_no_model_is_named() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    let tree = Tree::new()
        .file("empty.pte", "")
        .file("pointer.pte", pointer)
        .file("rubbish.pte", "rubbish")
        .file("rubbish.onnx", "rubbish")
        .file("text.txt", "text")
        .file("directory/file", "");
    for (file, reason) in [
        ("missing.pte", "missing.pte: "),
        ("empty.pte", "empty.pte: is empty (0 bytes)"),
        (
            "pointer.pte",
            "pointer.pte: is a Git LFS pointer to 12345 bytes",
        ),
        ("rubbish.pte", "rubbish.pte: is broken: "),
        ("rubbish.onnx", "rubbish.onnx: is broken: "),
        (
            "text.txt",
            "text.txt: has an unsupported file format; supported: executorch, flat_tensor, tflite, gguf",
        ),
        ("directory", "directory: "),
    ] {
        for arguments in [&["inspect", file][..], &["inspect", "--json", file]] {
            let ran = pkgtool(arguments).within(tree.root()).run().expect_code(2);
            assert!(
                ran.stderr.starts_with(&format!("error: {reason}")),
                "{}",
                ran.stderr
            );
            assert_eq!(ran.stdout, "");
            assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        }
    }
}
