//! Tests of ignored files: files that Git tracks are checked even if `.gitignore` matches them;
//! other matches are skipped.

use super::chosen::{paths, run, three};
use crate::support::repository::{commit, git};
use crate::support::run::pkgtool;
use crate::support::tree::{Tree, config};

#[test]
fn what_git_tracks_is_checked_whatever_matches_it() {
    let tree = three().file(".gitignore", "a/\nb/xnnpack/config.json\n");
    commit(tree.root(), "first");
    let told = |arguments: &[&str]| paths(&run(tree.root(), arguments).expect_code(1));
    assert_eq!(told(&[]), ["c/xnnpack/config.json"]);
    git(
        tree.root(),
        &[
            "add",
            "--force",
            "a/xnnpack/config.json",
            "b/xnnpack/config.json",
        ],
    );
    let all = ["a", "b", "c"].map(|name| format!("{name}/xnnpack/config.json"));
    assert_eq!(told(&[]), all);
    assert_eq!(told(&["--changed"]), all[..2]);
    // A file next to a tracked one is still ignored.
    let tree = tree.package("a/mlx", &config());
    let ran = run(tree.root(), &["-v"]).expect_code(1);
    assert_eq!(paths(&ran), all);
    let why = "a/mlx skipped: ignored by Git";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

#[test]
fn lines_of_the_repository_itself_are_held_to() {
    let tree = three();
    commit(tree.root(), "first");
    git(tree.root(), &["rm", "-r", "--cached", "--quiet", "a", "b"]);
    let tree = tree.file(".git/info/exclude", "# a comment\n/a/\n/c/\n");
    let ran = run(tree.root(), &["-v"]).expect_code(1);
    // The exclude file does not apply to `c`, which is tracked.
    let expected = ["b/xnnpack/config.json", "c/xnnpack/config.json"];
    assert_eq!(paths(&ran), expected);
    assert!(
        ran.stderr.contains("a skipped: ignored by Git"),
        "{}",
        ran.stderr
    );
    assert_eq!(paths(&run(tree.root(), &["--no-gitignore"])).len(), 3);
    assert_eq!(paths(&run(&tree.path("a"), &[])), ["xnnpack/config.json"]);
    // A linked working tree uses the same exclude file.
    let beside = Tree::new();
    let place = beside.path("beside");
    let place = place.to_str().expect("UTF-8");
    git(tree.root(), &["worktree", "add", "--quiet", place, "HEAD"]);
    let beside = beside.package("beside/a/mlx", &config());
    git(
        &beside.path("beside"),
        &["rm", "-r", "--cached", "--quiet", "a"],
    );
    let ran = run(&beside.path("beside"), &["-v"]).expect_code(1);
    assert_eq!(paths(&ran), expected);
}

/// Without Git the tracked files are unknown, so everything that matches is skipped and reported.
#[test]
fn without_git_it_is_told_what_matches() {
    let tree = three().file(".gitignore", "a/\n");
    commit(tree.root(), "first");
    git(tree.root(), &["add", "--force", "a"]);
    let ran = pkgtool(["validate", "--format", "json", "-v"])
        .within(tree.root())
        .variable("PATH", "/nowhere")
        .run()
        .expect_code(1);
    assert_eq!(paths(&ran).len(), 2);
    let why = "a skipped: matched by .gitignore; include it with --no-gitignore";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

/// Many repositories ignore this file name; if it is tracked, the model is reported for its missing
/// config.
#[test]
fn a_model_that_is_tracked_wants_a_config() {
    let tree = three().file(".gitignore", "*.pte\n");
    let tree = tree.file("b/mlx/b_mlx_fp32.pte", "a model");
    commit(tree.root(), "first");
    let bare = || {
        let ran = run(tree.root(), &["-v"]).expect_code(1);
        let bare = ran.findings().into_iter().filter(|it| it.code == "PKG043");
        (bare.count(), ran.stderr)
    };
    let (found, told) = bare();
    assert_eq!(found, 0, "{told}");
    let why = "b/mlx/b_mlx_fp32.pte skipped: ignored by Git";
    assert!(told.contains(why), "{told}");
    git(tree.root(), &["add", "--force", "b/mlx"]);
    assert_eq!(bare().0, 1);
}
