//! Tests of a nested `pkgtool.toml`, below another one or in a foreign package: it may tighten the
//! checks but not loosen them.

use std::fs;

use super::{faulty, run, told};
use crate::support::run::Found;
use crate::support::tree::Tree;

const NOTE: &str = "a/xnnpack/config.json license-unknown note";
const WARNING: &str = "a/xnnpack/config.json file-name warning";

/// Returns a package in `a` with a file of settings beside it.
fn with(nested: &str) -> Tree {
    Tree::new()
        .package("a/xnnpack", &faulty())
        .file("a/pkgtool.toml", nested)
}

/// Returns the keys reported for loosening a check, and the other findings.
fn split(tree: &Tree, arguments: &[&str]) -> (Vec<String>, Vec<String>) {
    let found = run(tree, arguments).findings();
    let key = |one: &Found| {
        let (_, rest) = one.message.split_once('`')?;
        let (key, rest) = rest.split_once('`')?;
        rest.contains("loosens").then(|| key.to_owned())
    };
    let keys = found.iter().filter_map(key).collect();
    let others = told(tree, arguments).into_iter();
    (
        keys,
        others
            .filter(|one| !one.contains("settings-invalid"))
            .collect(),
    )
}

#[test]
fn each_key_that_loosens_is_named_and_has_no_effect() {
    for (key, text) in [
        ("ignore", "ignore = [\"all\"]"),
        ("select", "select = [\"file-missing\"]"),
        ("severity", "[severity]\nall = \"off\""),
        ("severity", "[severity]\nfile-name = \"note\""),
        ("per-path-ignores", "[per-path-ignores]\n\"**\" = [\"all\"]"),
        ("exclude", "exclude = [\"*\"]"),
        ("exclude", "exclude = [\"xnnpack\"]"),
        ("root", "root = \"xnnpack\""),
        ("baseline", "baseline = \"known.json\""),
        (
            "extra-precisions",
            "extra-precisions = { quantized = [\"odd\"] }",
        ),
        (
            "exception",
            "[[exception]]\nfile = \"xnnpack/config.json\"\nrule = \"file-name\"\nreason = \"none\"",
        ),
    ] {
        let tree = with(text);
        let expected = (
            vec![key.to_owned()],
            vec![NOTE.to_owned(), WARNING.to_owned()],
        );
        assert_eq!(split(&tree, &["."]), expected, "{text}");
        // The same below settings of the project.
        let tree = tree.file("pkgtool.toml", "");
        assert_eq!(split(&tree, &["."]), expected, "{text}");
        assert_eq!(split(&tree, &["a"]), expected, "{text}");
    }
}

#[test]
fn what_the_settings_above_say_is_loosened_by_nothing() {
    let tree = with(
        "deny-warnings = false\nrespect-gitignore = true\nallow-licenses = [\"MIT\", \"see README\"]",
    );
    let tree = tree.file(
        "pkgtool.toml",
        "deny-warnings = true\nrespect-gitignore = false\nallow-licenses = [\"MIT\"]",
    );
    let (mut keys, others) = split(&tree, &["."]);
    keys.sort();
    assert_eq!(
        keys,
        ["allow-licenses", "deny-warnings", "respect-gitignore"]
    );
    assert!(
        others.iter().any(|one| one.contains("license-not-allowed")),
        "{others:?}"
    );
}

#[test]
fn nested_settings_tighten() {
    let tree = with(
        "allow-licenses = [\"MIT\"]\nrequire-backends = [\"mlx\"]\ndeny-warnings = true\n[severity]\nfile-name = \"error\"",
    );
    let (keys, others) = split(&tree, &["."]);
    assert_eq!(keys, [""; 0]);
    for rule in [
        "license-not-allowed error",
        "backend-required error",
        "file-name error",
    ] {
        assert!(
            others.iter().any(|one| one.ends_with(rule)),
            "{rule}: {others:?}"
        );
    }
    // A loosening that the settings above also contain is allowed.
    let tree = with("ignore = [\"license\"]").file("pkgtool.toml", "ignore = [\"license\"]");
    assert_eq!(split(&tree, &["."]), (vec![], vec![WARNING.to_owned()]));
}

#[test]
fn settings_of_the_user_are_free() {
    // The settings are in the named directory or above it, without a file further up.
    let tree = with("ignore = [\"all\"]");
    assert_eq!(told(&tree, &["a"]), [""; 0]);
    assert_eq!(told(&tree, &["a/xnnpack/config.json"]), [""; 0]);
    // A repository inside the tree is foreign.
    fs::create_dir(tree.path("a/.git")).expect("a directory");
    assert_eq!(split(&tree, &["."]).0, ["ignore"]);
    assert_eq!(told(&tree, &["a"]), [""; 0]);
}

#[test]
fn what_was_pulled_rules_nothing() {
    let entry = "{\"size\": 1, \"modified\": 1, \"sha256\": \"0\"}";
    let record = format!("{{\"pkgtool.toml\": {entry}}}");
    let tree = with("ignore = [\"all\"]\n[severity]\nfile-name = \"error\"")
        .file("a/.pkgtool/pulled.json", record);
    for path in ["a", ".", "a/xnnpack/config.json"] {
        assert_eq!(told(&tree, &[path]), [NOTE, WARNING], "{path}");
    }
    // The user's own settings above a pulled package apply.
    let tree = tree.file("pkgtool.toml", "ignore = [\"file-name\"]");
    assert_eq!(told(&tree, &["."]), [NOTE]);
}
