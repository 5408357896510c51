//! Test of Git revisions as versions, as one sequence of commits.

use std::fs;

use serde_json::json;

use crate::support::repository::{commit, git};
use crate::support::run::{Ran, pkgtool};
use crate::support::tree::{MODEL, Tree, config};

fn diff(tree: &Tree, arguments: &[&str]) -> Ran {
    let arguments = ["diff", "--format", "json"].iter().chain(arguments);
    pkgtool(arguments).within(tree.root()).run()
}

fn kinds(ran: &Ran) -> Vec<String> {
    let json = ran.json();
    let changes = json["changes"].as_array().expect("an array");
    let kinds = changes
        .iter()
        .map(|one| one["kind"].as_str().expect("a kind").to_owned());
    kinds.collect()
}

#[test]
fn a_repository_from_release_to_release() {
    let mut first = config();
    first["tokenizer"] = json!("../tokenizer.json");
    let tree = Tree::new()
        .package("m/xnnpack", &first)
        .json(
            "m/tokenizer.json",
            &json!({ "model": { "vocab": { "a": 0 } } }),
        )
        .file("m/big.bin", vec![7; 100_000]);
    commit(tree.root(), "first");
    git(tree.root(), &["tag", "v1"]);

    // At first nothing differs, from any working directory.
    assert_eq!(
        kinds(&diff(&tree, &["--git", "v1"]).expect_code(0)),
        Vec::<String>::new()
    );
    assert_eq!(
        kinds(&diff(&tree, &["v1:m", "m"]).expect_code(0)),
        Vec::<String>::new()
    );
    let from_below = pkgtool(["diff", "--git", "HEAD", "xnnpack"])
        .within(tree.path("m"))
        .run();
    from_below.expect_code(0);

    // A dtype, a tokenizer outside the config's directory, and an uncommitted file.
    let mut second = first.clone();
    second["variants"][0]["methods"]["forward"]["inputs"][0]["dtype"] = json!("int32");
    let tree = tree.json("m/xnnpack/config.json", &second).json(
        "m/tokenizer.json",
        &json!({ "model": { "vocab": { "b": 0 } } }),
    );
    let ran = diff(&tree, &["--git", "v1"]).expect_code(1);
    assert_eq!(kinds(&ran), ["tokenizer-changed", "dtype"]);
    let ran = diff(&tree, &["--git", "v1", "m/xnnpack/config.json"]).expect_code(1);
    assert_eq!(kinds(&ran), ["tokenizer-changed", "dtype"]);
    commit(tree.root(), "second");
    let ran = diff(&tree, &["v1:m", "HEAD:m"]).expect_code(1);
    assert_eq!(kinds(&ran), ["tokenizer-changed", "dtype"]);
    assert_eq!(ran.json()["old"], "v1:m");
    let ran = diff(&tree, &["v1:./m/xnnpack", "HEAD:m/xnnpack"]).expect_code(1);
    assert_eq!(kinds(&ran), ["tokenizer-changed", "dtype"]);

    // An LFS pointer to the same content replaces the model, then a pointer to other content.
    let model = format!("m/xnnpack/{MODEL}");
    let size = fs::metadata(tree.path(&model)).expect("a file").len();
    let pointer = |size| {
        let oid = "0".repeat(64);
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n")
    };
    let tree = tree.file(&model, pointer(size));
    commit(tree.root(), "third");
    let ran = diff(&tree, &["HEAD~1:m", "HEAD:m"]).expect_code(0);
    assert_eq!(kinds(&ran), ["content-changed"]);
    let ran = diff(&tree, &["--no-model", "HEAD~1:m", "HEAD:m"]).expect_code(0);
    assert_eq!(kinds(&ran), Vec::<String>::new());

    // The package is deleted from the working tree.
    fs::remove_dir_all(tree.path("m")).expect("a directory");
    let ran = diff(&tree, &["--git", "v1", "m"]).expect_code(1);
    assert_eq!(kinds(&ran), ["package-removed"]);
}

#[cfg(unix)]
#[test]
fn links_are_followed_inside_the_repository_only() {
    let tree = Tree::with_package();
    let model = tree.path(&format!("xnnpack/{MODEL}"));
    fs::rename(&model, tree.path("shared.pte")).expect("a file");
    std::os::unix::fs::symlink("../shared.pte", &model).expect("a link");
    commit(tree.root(), "a link");
    let ran = diff(&tree, &["HEAD:.", "."]).expect_code(0);
    assert_eq!(kinds(&ran), Vec::<String>::new());
    fs::remove_file(&model).expect("a link");
    std::os::unix::fs::symlink("/etc/passwd", &model).expect("a link");
    commit(tree.root(), "a link out");
    let ran = diff(&tree, &["HEAD~1:", "HEAD:"]).expect_code(1);
    assert_eq!(kinds(&ran), ["file-missing"]);
}

#[test]
fn what_is_no_revision_is_told() {
    let tree = Tree::with_package();
    let ran = diff(&tree, &["--git", "HEAD"]).expect_code(2);
    assert!(
        ran.stderr.contains("not in a Git repository"),
        "{}",
        ran.stderr
    );
    git(tree.root(), &["init", "--quiet"]);
    let ran = diff(&tree, &["--git", "HEAD"]).expect_code(2);
    assert!(ran.stderr.contains("is not a commit"), "{}", ran.stderr);
    commit(tree.root(), "first");
    for (arguments, words) in [
        (&["--git", "nope"][..], "`nope` is not a commit"),
        (&["--git=--all"], "is not a commit"),
        (&["nope:xnnpack", "."], "`nope` is not a commit"),
        (&["HEAD:nope", "."], "neither a file nor a directory `nope`"),
        (
            &["HEAD:xnnpack/../..", "."],
            "relative to the root of the repository",
        ),
        (&["nope", "."], "no such file or directory"),
        (&["ftp://example.com/x", "."], "no such file or directory"),
        (&["--git", "HEAD", ".", "."], "cannot be used with"),
        (&["."], "required"),
    ] {
        let ran = diff(&tree, arguments).expect_code(2);
        assert!(ran.stderr.contains(words), "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{arguments:?}");
    }
}
