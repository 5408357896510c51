//! Tests of `pkgtool run --text`: vectors of texts, and its errors for models that have none.

use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples");

/// Runs `pkgtool run --engine tract` among the examples.
fn run(arguments: &[&str]) -> Ran {
    let all = ["run", "--engine", "tract"].iter().chain(arguments);
    pkgtool(all).within(EXAMPLES).run()
}

#[test]
fn texts_are_embedded_and_compared() {
    // The token limit comes from the program in one package and from the tokenizer in the other.
    for (package, most) in [("hush-sentence/mlx", 24), ("hush-sentence/xnnpack", 23)] {
        let bound = format!("vectors of 32 dimensions, at most {most} tokens per text");
        let ran = run(&[
            package,
            "--text",
            "the red house",
            "--text",
            "a blue river",
            "--text",
            "The red HOUSE",
        ]);
        let ran = ran.expect_code(0);
        for part in [
            "hush_sentence fp32 for",
            &bound,
            "  0  [",
            "5 tokens  \"the red house\"",
            "cosine similarity",
        ] {
            assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
        }
        let json = run(&[
            package,
            "--text",
            "the red house",
            "--text",
            "The red HOUSE",
            "--json",
        ]);
        let json = json.expect_code(0).json();
        assert_eq!(json["engine"], "tract");
        assert_eq!(json["dimensions"], 32);
        assert_eq!(json["tokens"], 10);
        let texts = json["embedded_texts"].as_array().expect("a list");
        assert_eq!(texts[0]["text"], "the red house");
        assert_eq!(texts[0]["tokens"], 5);
        assert_eq!(texts[0]["vector"].as_array().expect("numbers").len(), 32);
        assert_eq!(
            texts[0]["vector"], texts[1]["vector"],
            "letters are made small"
        );
        let similar = json["similarity"][0][1].as_f64().expect("a number");
        assert!((similar - 1.0).abs() < 1e-6, "{similar}");
        assert!(json["timings_ms"]["load"].is_f64());
    }
}

#[test]
fn lines_of_a_file_are_texts() {
    let tree = Tree::new().file("texts", "one dog\ntwo cats\n");
    let file = format!("@{}", tree.path("texts").display());
    let json = run(&[
        "hush-sentence/mlx",
        "--text",
        &file,
        "--text",
        "a tree",
        "--json",
    ]);
    let json = json.expect_code(0).json();
    let texts = json["embedded_texts"].as_array().expect("a list");
    let texts: Vec<&str> = texts.iter().filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(texts, ["one dog", "two cats", "a tree"]);
}

#[test]
fn the_component_of_texts_is_found() {
    let json = run(&["twin-view/xnnpack", "--text", "a dog", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(json["component"], "text_encoder");
    assert_eq!(json["max_tokens"], 16);
}

#[test]
fn what_cannot_be_embedded_says_why() {
    let long = "dog ".repeat(40);
    for (arguments, told) in [
        (
            &["hush-sentence/mlx", "--text", &long][..],
            "42 tokens, but the model accepts 24",
        ),
        (
            &["hush-sentence/mlx", "--text", "a", "--max-length", "99"],
            "99 exceeds the 24",
        ),
        (&["hush-sentence/mlx", "--text", "@nowhere"], "nowhere"),
        (
            &["hush-sentence/mlx", "--text", "a", "--pooling", "median"],
            "expected one of cls, max, mean",
        ),
        (
            &["hush-sentence/mlx", "--text", "a", "--input", "zeros"],
            "cannot be used with",
        ),
        (
            &["watercolor/mlx", "--text", "a"],
            "capability `text-embedding`",
        ),
        (
            &[
                "hush-sentence/mlx/hush_sentence_mlx_fp32.onnx",
                "--text",
                "a",
            ],
            "--text needs a package",
        ),
    ] {
        let ran = run(arguments).expect_code(2);
        assert!(ran.stderr.contains(told), "{arguments:?}: {}", ran.stderr);
    }
    let cut = run(&["hush-sentence/mlx", "--text", &long, "--truncate"]).expect_code(0);
    assert!(cut.stdout.contains("24 tokens"), "{}", cut.stdout);
}
