//! Tests of `pkgtool --version` and of the build script's search for the commit.

use std::path::Path;
use std::process::Command;

use crate::support::environment::say;
use crate::support::run::pkgtool;

#[path = "../../../src/cli/build_commit.rs"]
#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "the build script calls all of it, and speaks to cargo"
)]
mod build_commit;

#[test]
fn the_short_form_is_the_number_alone() {
    let number = env!("CARGO_PKG_VERSION");
    let short = pkgtool(["-V"]).run().expect_code(0).stdout;
    assert_eq!(short, format!("pkgtool {number}\n"));
    let long = pkgtool(["--version"]).run().expect_code(0).stdout;
    assert_eq!(long, format!("pkgtool {}\n", env!("VERSION_AND_COMMIT")));
    let commit = long
        .strip_prefix(short.trim_end())
        .expect("the number first");
    let digits = commit.trim().trim_matches(['(', ')']);
    assert!(
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        "{long}"
    );
}

fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.org"])
        .args(["-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(directory)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .output()
        .ok()?;
    assert!(ran.status.success(), "{arguments:?}: {ran:?}");
    Some(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

#[test]
fn the_commit_is_what_git_says() {
    let place = tempfile::tempdir().expect("a directory");
    let checkout = place.path().join("checkout");
    std::fs::create_dir(&checkout).expect("a directory");
    if git(&checkout, &["init", "--quiet"]).is_none() {
        say("SKIPPED the_commit_is_what_git_says: git is missing");
        return;
    }
    let told = |directory: &Path| build_commit::checked_out_commit(&directory.join(".git"));
    let commit = |directory: &Path| {
        let arguments = ["commit", "--quiet", "--allow-empty", "--message", "one"];
        git(directory, &arguments);
    };
    let head = |directory: &Path| git(directory, &["rev-parse", "HEAD"]);
    assert_eq!(told(&checkout), None, "before the first commit");
    assert_eq!(told(place.path()), None, "outside of a checkout");
    commit(&checkout);
    assert_eq!(told(&checkout), head(&checkout), "a branch");
    let first = head(&checkout);
    // All branches are packed into one file; then one gets its own file again.
    git(&checkout, &["pack-refs", "--all"]);
    assert_eq!(told(&checkout), first, "packed");
    commit(&checkout);
    assert_eq!(told(&checkout), head(&checkout), "loose and packed");
    assert_ne!(told(&checkout), first);
    let other = place.path().join("other");
    let path = other.to_str().expect("a path in UTF-8");
    let add = ["worktree", "add", "--quiet", "-b", "a/branch", path];
    git(&checkout, &add);
    commit(&other);
    assert_eq!(told(&other), head(&other), "a worktree");
    assert_ne!(told(&other), told(&checkout));
    git(&other, &["checkout", "--quiet", "--detach"]);
    assert_eq!(told(&other), head(&other), "no branch");
}
