//! Tests of `validate --changed`, `--staged` and `-`: the selected files, and the version of their
//! content that is checked.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use crate::support::repository::{commit, git};
use crate::support::run::{Ran, pkgtool};
use crate::support::tree::{MODEL, Tree, config};

pub(super) fn run(directory: &Path, arguments: &[&str]) -> Ran {
    let arguments = ["validate", "--format", "json"].iter().chain(arguments);
    pkgtool(arguments).within(directory).run()
}

/// Returns the paths that have findings.
pub(super) fn paths(ran: &Ran) -> Vec<String> {
    let mut paths: Vec<String> = ran.findings().into_iter().map(|one| one.path).collect();
    paths.dedup();
    paths
}

/// Returns three packages with one error each.
pub(super) fn three() -> Tree {
    let mut broken = config();
    broken["license"] = json!("");
    Tree::new()
        .package("a/xnnpack", &broken)
        .package("b/xnnpack", &broken)
        .package("c/xnnpack", &broken)
}

#[test]
fn only_what_changed_is_reported() {
    let tree = three();
    commit(tree.root(), "first");
    let ran = run(tree.root(), &["--changed"]).expect_code(0);
    assert_eq!(ran.findings(), []);
    assert!(
        ran.stderr
            .contains("neither configs nor files that they name have changed"),
        "{}",
        ran.stderr
    );
    run(tree.root(), &[]).expect_code(1);

    // A changed config, a changed model of another package, and a package that Git does not track
    // yet.
    let mut changed = config();
    changed["license"] = json!("");
    changed["family"] = json!("other");
    let tree = tree
        .json("a/xnnpack/config.json", &changed)
        .file(&format!("b/xnnpack/{MODEL}"), "no model");
    let ran = run(tree.root(), &["--changed"]).expect_code(1);
    assert_eq!(
        paths(&ran),
        ["a/xnnpack/config.json", "b/xnnpack/config.json"]
    );
    assert_eq!(ran.json()["summary"]["packages"], 2);
    let tree = tree.package("d/xnnpack", &changed);
    let ran = run(tree.root(), &["--changed=HEAD", "a", "d"]).expect_code(1);
    assert_eq!(
        paths(&ran),
        ["a/xnnpack/config.json", "d/xnnpack/config.json"]
    );
    let below = run(&tree.path("b"), &["--changed"]).expect_code(1);
    assert_eq!(paths(&below), ["xnnpack/config.json"]);

    // Changes since an earlier commit, and an error caused by a deletion.
    git(tree.root(), &["tag", "v1"]);
    commit(tree.root(), "second");
    run(tree.root(), &["--changed"]).expect_code(0);
    let ran = run(tree.root(), &["--changed=v1"]).expect_code(1);
    assert_eq!(paths(&ran).len(), 3);
    fs::remove_file(tree.path(&format!("c/xnnpack/{MODEL}"))).expect("a file");
    let ran = run(tree.root(), &["--changed"]).expect_code(1);
    assert_eq!(paths(&ran), ["c/xnnpack/config.json"]);
}

#[test]
fn a_deleted_config_is_a_change_where_its_models_stay() {
    let tree = three();
    commit(tree.root(), "first");
    git(tree.root(), &["tag", "v1"]);
    // A config that was missing before the compared range is not a change.
    fs::remove_file(tree.path("c/xnnpack/config.json")).expect("a file");
    commit(tree.root(), "second");
    git(tree.root(), &["rm", "--quiet", "b/xnnpack/config.json"]);
    let whole = run(tree.root(), &[]).expect_code(1);
    assert!(whole.codes().contains(&"PKG043".to_owned()));
    for option in ["--changed", "--staged"] {
        let ran = run(tree.root(), &[option]).expect_code(0);
        assert_eq!(paths(&ran), ["b/xnnpack/config.json"], "{option}");
        assert_eq!(ran.codes(), ["PKG043"], "{option}");
    }
    let below = run(&tree.path("b/xnnpack"), &["--changed"]).expect_code(0);
    assert_eq!(below.codes(), ["PKG043"]);
    let ran = run(tree.root(), &["--changed=v1"]).expect_code(0);
    assert_eq!(ran.codes(), ["PKG043", "PKG043"]);
    // Without its models, the whole package is gone.
    fs::remove_file(tree.path(&format!("b/xnnpack/{MODEL}"))).expect("a file");
    run(tree.root(), &["--changed"]).expect_code(0);
}

#[test]
fn without_a_revision_the_branch_is_looked_at() {
    let origin = three();
    commit(origin.root(), "first");
    let clone = Tree::new();
    let from = origin.root().to_str().expect("UTF-8");
    git(clone.root(), &["clone", "--quiet", from, "repo"]);
    let repo = clone.path("repo");
    let mut changed = config();
    changed["license"] = json!("");
    changed["family"] = json!("other");
    fs::write(repo.join("b/xnnpack/config.json"), changed.to_string()).expect("a file");
    commit(&repo, "on the branch");
    let ran = run(&repo, &["--changed"]).expect_code(1);
    assert_eq!(paths(&ran), ["b/xnnpack/config.json"]);
}

#[test]
fn a_precision_list_concerns_what_is_below_it() {
    let tree = three().json(
        "b/precisions.json",
        &json!({ "quantized": ["int8"], "non_quantized": ["fp32"] }),
    );
    commit(tree.root(), "first");
    let list = json!({ "quantized": ["int8"], "non_quantized": ["fp16"] });
    let tree = tree.json("b/precisions.json", &list);
    let ran = run(tree.root(), &["--changed"]).expect_code(1);
    assert_eq!(paths(&ran), ["b/xnnpack/config.json"]);
    let summary = &ran.json()["summary"];
    assert_eq!(summary["packages"], 1, "{summary}");
}

#[test]
fn what_is_staged_is_what_is_checked() {
    let tree = Tree::with_package().package("b/xnnpack", &config());
    commit(tree.root(), "first");
    run(tree.root(), &["--staged"]).expect_code(0);
    let mut broken = config();
    broken["license"] = json!("");

    // The error is staged and fixed only on disk, so the commit would be broken.
    let tree = tree.json("xnnpack/config.json", &broken);
    git(tree.root(), &["add", "."]);
    let tree = tree.json("xnnpack/config.json", &config());
    let ran = run(tree.root(), &["--staged"]).expect_code(1);
    assert_eq!(paths(&ran), ["xnnpack/config.json"]);
    run(tree.root(), &[]).expect_code(0);

    // The fix is staged, and only the file on disk is broken.
    git(tree.root(), &["add", "."]);
    let tree = tree.json("xnnpack/config.json", &broken);
    run(tree.root(), &["--staged"]).expect_code(0);
    let tree = tree.json("xnnpack/config.json", &config());

    // The package is new in the index and deleted from the disk.
    let tree = tree.package("c/coreml", &broken);
    git(tree.root(), &["add", "."]);
    fs::remove_dir_all(tree.path("c")).expect("a directory");
    let ran = run(tree.root(), &["--staged"]).expect_code(1);
    assert!(
        paths(&ran).contains(&"c/coreml/config.json".to_owned()),
        "{ran:?}"
    );
    git(tree.root(), &["rm", "--quiet", "-r", "--cached", "c"]);

    // The config names a file that is not staged.
    let mut named = config();
    named["tokenizer"] = json!("tokenizer.json");
    let tree = tree.json("b/xnnpack/config.json", &named);
    git(tree.root(), &["add", "."]);
    let tree = tree.json("b/xnnpack/tokenizer.json", &json!({ "model": {} }));
    let ran = run(tree.root(), &["--staged"]);
    assert!(
        ran.stderr
            .contains("names b/xnnpack/tokenizer.json, which is missing from the index"),
        "{ran:?}"
    );
}

#[test]
fn wrong_uses_are_told() {
    let tree = Tree::with_package();
    for (arguments, words) in [
        (&["--changed"][..], "not in a Git repository"),
        (&["--staged"], "not in a Git repository"),
        (&["--staged", "--changed"], "cannot be used with"),
        (&["-", "xnnpack"], "cannot be combined with other paths"),
        (&["--stdin-path", "x", "xnnpack"], "give `-` as the path"),
        (&["-", "--watch"], "standard input cannot be combined"),
        (&["-", "--staged"], "standard input cannot be combined"),
        (
            &["--statistics", "--format", "sarif"],
            "does not support --format sarif",
        ),
        (&["--max-findings", "many"], "invalid value"),
    ] {
        let arguments = ["validate"].iter().chain(arguments);
        let ran = pkgtool(arguments).within(tree.root()).run().expect_code(2);
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    commit(tree.root(), "first");
    for (revision, words) in [
        ("--changed=nope", "`nope` is not a commit"),
        ("--changed=--all", "is not a commit"),
        ("--changed=HEAD:xnnpack", "is not a commit"),
    ] {
        let ran = run(tree.root(), &[revision]).expect_code(2);
        assert!(ran.stderr.contains(words), "{revision}: {}", ran.stderr);
    }
    run(tree.root(), &["--changed", "missing"]).expect_code(2);
}

/// Validates a config passed on standard input.
fn piped(tree: &Tree, text: &[u8], arguments: &[&str]) -> (i32, String, String) {
    let arguments = ["validate", "--format", "concise", "-"]
        .iter()
        .chain(arguments);
    let mut command = pkgtool(arguments).within(tree.root()).into_command();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // The tool may close its input early.
    let _ = child.stdin.take().expect("a pipe").write_all(text);
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("no signal");
    (code, text(output.stdout), text(output.stderr))
}

#[test]
fn a_config_may_come_from_standard_input() {
    let tree = Tree::with_package();
    let place = ["--stdin-path", "xnnpack/config.json"];
    let good = config().to_string();
    assert_eq!(
        piped(&tree, good.as_bytes(), &place),
        (0, String::new(), String::new())
    );
    let mut broken = config();
    broken["license"] = json!("");
    let (code, out, _) = piped(&tree, broken.to_string().as_bytes(), &place);
    assert_eq!(code, 1);
    assert!(out.starts_with("xnnpack/config.json:1:"), "{out}");
    // The config is compared with the model at that path.
    let mut wrong = config();
    wrong["variants"][0]["methods"]["forward"]["inputs"][0]["dtype"] = json!("int8");
    let (code, out, _) = piped(&tree, wrong.to_string().as_bytes(), &place);
    assert!(code == 1 && out.contains("float32"), "{out}");
    let (code, out, _) = piped(&tree, b"{", &[]);
    assert!(code == 1 && out.starts_with("config.json:1:"), "{out}");
    let (code, _, told) = piped(&tree, &vec![b' '; 5 * 1024 * 1024], &place);
    assert!(
        code == 2 && told.contains("standard input too large"),
        "{told}"
    );
}

#[test]
fn changed_settings_and_lists_choose_what_they_rule() {
    let all = ["a", "b", "c"].map(|name| format!("{name}/xnnpack/config.json"));
    let tree = three();
    commit(tree.root(), "first");
    let tree = tree.file("a/pkgtool.toml", "ignore = []\n");
    assert_eq!(paths(&run(tree.root(), &["--changed"])), all[..1]);
    // Invalid settings are reported at their place in the file.
    let tree = tree.file("pkgtool.toml", "ignore = 1\n");
    let told = paths(&run(tree.root(), &["--changed"]).expect_code(1));
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told.contains(&"pkgtool.toml".to_owned()), "{told:?}");
    commit(tree.root(), "second");
    run(tree.root(), &["--changed"]).expect_code(0);
    fs::remove_file(tree.path("pkgtool.toml")).expect("a file");
    assert_eq!(paths(&run(tree.root(), &["--changed"])), all);
    commit(tree.root(), "third");
    // This list is named only on the command line.
    let list = "{\"quantized\": [\"int8\"], \"non_quantized\": [\"fp32\"]}";
    let tree = tree.file("lists/own.json", list);
    let told = run(
        tree.root(),
        &["--changed", "--precisions", "lists/own.json"],
    );
    assert_eq!(paths(&told), all);
}
