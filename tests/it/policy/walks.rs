//! Tests of directory walks: `exclude` and files that Git ignores.

use std::fs;

use super::{faulty, run, told};
use crate::support::tree::Tree;

fn tree() -> Tree {
    Tree::new()
        .package("a/xnnpack", &faulty())
        .package("legacy/b/xnnpack", &faulty())
        .package("deep/legacy/xnnpack", &faulty())
}

/// Returns the directories of the checked packages.
fn checked(tree: &Tree, arguments: &[&str]) -> Vec<String> {
    let all = [&["--select", "file-name"], arguments].concat();
    let end = "/xnnpack/config.json file-name warning";
    let told = told(tree, &all).into_iter();
    told.map(|one| one.strip_suffix(end).expect("a package").to_owned())
        .collect()
}

#[test]
fn globs_leave_out_what_they_match() {
    let all = ["a", "deep/legacy", "legacy/b"];
    assert_eq!(checked(&tree(), &[]), all);
    for (glob, expected) in [
        ("legacy", &["a"][..]),
        ("legacy/", &["a"]),
        ("/legacy", &["a", "deep/legacy"]),
        ("legacy/**", &["a", "deep/legacy"]),
        ("legacy/*", &["a", "deep/legacy"]),
        ("**/legacy/**", &["a"]),
        ("legacy/b/xnnpack/config.json", &["a", "deep/legacy"]),
        ("?", &["deep/legacy"]),
        ("{a,deep}", &["legacy/b"]),
        ("[a-d]", &["deep/legacy"]),
        ("legac", &all),
        ("xnnpack/legacy", &all),
        ("LEGACY", &all),
    ] {
        assert_eq!(checked(&tree(), &["--exclude", glob]), expected, "{glob}");
        let settled = tree().file("pkgtool.toml", format!("exclude = [\"{glob}\"]"));
        assert_eq!(checked(&settled, &[]), expected, "{glob}");
    }
    let why = run(&tree(), &["-v", "--exclude", "legacy"]).stderr;
    assert!(
        why.contains("legacy skipped: excluded by --exclude legacy"),
        "{why}"
    );
}

#[test]
fn what_is_named_is_checked() {
    let tree = tree()
        .file(".git/HEAD", "")
        .file(".gitignore", "legacy/\n")
        .file("pkgtool.toml", "exclude = [\"a\", \"legacy/**\"]");
    assert!(checked(&tree, &[]).is_empty());
    assert_eq!(checked(&tree, &["a"]), ["a"]);
    assert_eq!(
        checked(&tree, &["legacy", "deep/legacy"]),
        ["deep/legacy", "legacy/b"]
    );
    assert_eq!(checked(&tree, &["legacy/b"]), ["legacy/b"]);
    assert_eq!(checked(&tree, &["a/xnnpack/config.json"]), ["a"]);
}

#[test]
fn nested_settings_exclude_only_where_they_are_named() {
    let tree = tree().file("deep/pkgtool.toml", "exclude = [\"/legacy\", \"/a\"]");
    let found = run(&tree, &["--select", "file-name"]).findings();
    let files: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
    assert!(
        files.contains(&"deep/legacy/xnnpack/config.json"),
        "{found:?}"
    );
    assert!(checked(&tree, &["deep"]).is_empty());
}

#[test]
fn what_git_ignores_is_left_out_of_checkouts() {
    let ignoring = || {
        tree()
            .file(".gitignore", "legacy/\n!deep/legacy/\n")
            .file("a/.gitignore", "xnnpack/*.json\n")
    };
    assert_eq!(checked(&ignoring(), &[]).len(), 3, "no checkout");
    let checkout = ignoring().file(".git/HEAD", "");
    assert_eq!(checked(&checkout, &[]), ["deep/legacy"]);
    assert_eq!(checked(&checkout, &["deep"]), ["deep/legacy"]);
    assert_eq!(checked(&checkout, &["--no-gitignore"]).len(), 3);
    let told = run(&checkout, &[]).findings();
    assert!(
        told.iter().all(|one| one.code != "PKG043"),
        "an excluded config still exists: {told:?}"
    );
    let checkout = checkout.file("pkgtool.toml", "respect-gitignore = false");
    assert_eq!(checked(&checkout, &[]).len(), 3);
    // Ignore files above a checkout do not apply to it.
    let inner = tree()
        .file("legacy/.git/HEAD", "")
        .file(".gitignore", "b/\n")
        .file("legacy/.gitignore", "");
    assert_eq!(checked(&inner, &["legacy"]), ["legacy/b"]);
}

#[cfg(unix)]
#[test]
fn loops_of_links_end() {
    let tree = tree().file("pkgtool.toml", "exclude = [\"legacy\"]");
    std::os::unix::fs::symlink("..", tree.path("a/up")).expect("a link");
    assert_eq!(checked(&tree, &[]), ["a"]);
    assert_eq!(checked(&tree, &["a/up/a/up/a"]), ["a/up/a/up/a"]);
}

#[test]
fn many_globs_are_bounded() {
    let globs: Vec<String> = (0..2000)
        .map(|i| format!("\"**/x{i}*/[a-z]?{{a,b}}\""))
        .collect();
    let tree = tree().file("pkgtool.toml", format!("exclude = [{}]", globs.join(",")));
    let found = run(&tree, &[]).expect_code(1).findings();
    let settings = found.iter().filter(|one| one.code == "PKG053").count();
    assert_eq!(settings, 1, "{found:?}");
    fs::write(
        tree.path("pkgtool.toml"),
        format!("exclude = [\"{}\"]", "a".repeat(5000)),
    )
    .expect("a file");
    assert!(
        run(&tree, &[])
            .findings()
            .iter()
            .any(|one| one.message.contains("at most 1024 bytes"))
    );
}
