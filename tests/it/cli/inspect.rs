//! `pkgtool inspect`: what it prints, and what it says where there is nothing to read.

use crate::support::fixture;
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
            "text.txt: has a format that is not read here; formats that are: executorch, onnx",
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
