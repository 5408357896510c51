//! Creates Git repositories in temporary directories.

use std::path::Path;
use std::process::Command;

/// Runs Git in a directory, without user or system settings, and returns its output.
#[track_caller]
pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=Tester",
            "-c",
            "user.email=tester@example.com",
        ])
        .args([
            "-c",
            "init.defaultBranch=main",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git runs");
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Commits everything in a directory; initializes a repository there if needed.
#[track_caller]
pub(crate) fn commit(directory: &Path, message: &str) {
    git(directory, &["init", "--quiet"]);
    git(directory, &["add", "--all"]);
    git(directory, &["commit", "--quiet", "--message", message]);
}
