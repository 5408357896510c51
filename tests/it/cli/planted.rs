//! Tests that the tool never runs a program that a foreign Git repository names.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::repository::{commit, git};
use crate::support::run::pkgtool;
use crate::support::tree::{Tree, config};

/// Git settings of every kind that name a program; `EVIL` is its placeholder.
const SETTINGS: &str = r#"
[filter "evil"]
    clean = EVIL clean
    smudge = EVIL smudge
    required = true
[filter "a=b.c"]
    process = EVIL process
    required = true
[diff "evil"]
    command = EVIL diff
    textconv = EVIL textconv
[diff]
    external = EVIL external
    orderFile = /dev/null
[core]
    fsmonitor = EVIL fsmonitor
    hooksPath = HOOKS
    sshCommand = EVIL ssh
    gitProxy = EVIL proxy
    pager = EVIL pager
    editor = EVIL editor
    askPass = EVIL
    alternateRefsCommand = EVIL alternates
[pager]
    diff = EVIL pager
    ls-files = EVIL pager
    rev-parse = EVIL pager
[sequence]
    editor = EVIL editor
[gpg]
    program = EVIL
[credential]
    helper = !EVIL credential
[alias]
    diff = !EVIL alias
    ls-files = !EVIL alias
    rev-parse = !EVIL alias
    config = !EVIL alias
    cat-file = !EVIL alias
[include]
    path = included
[extensions]
    worktreeConfig = true
    partialClone = origin
[remote "origin"]
    url = ext::EVIL remote
    uploadpack = EVIL upload
    promisor = true
    partialclonefilter = blob:none
[protocol "ext"]
    allow = always
[safe]
    directory = *
[submodule]
    recurse = true
[status]
    submoduleSummary = true
[trace2]
    eventTarget = /dev/null
"#;

/// Returns a repository whose settings all name a program that writes a marker file, and the
/// marker's directory.
fn planted() -> (Tree, Tree) {
    let outside = Tree::new();
    let mark = outside.path("mark");
    let tree = Tree::new()
        .package("m/xnnpack", &config())
        .file("m/file.a", "one")
        .file("inner/file", "one")
        .file(
            ".gitattributes",
            "* filter=evil diff=evil\n*.a filter=a=b.c\n",
        );
    commit(&tree.path("inner"), "inner");
    commit(tree.root(), "first");
    let tree = tree.file("m/file.a", "two");
    commit(tree.root(), "second");
    let evil = outside.path("evil");
    let text = format!("#!/bin/sh\necho \"$@\" >> {}\ncat\n", mark.display());
    fs::write(&evil, text).expect("a program");
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).expect("may run");
    let evil = evil.to_str().expect("UTF-8");
    let hooks = tree.path(".git/hooks");
    for hook in [
        "post-index-change",
        "fsmonitor-watchman",
        "post-checkout",
        "pre-auto-gc",
        "reference-transaction",
    ] {
        fs::create_dir_all(&hooks).expect("a directory");
        fs::copy(evil, hooks.join(hook)).expect("a hook");
    }
    let settings = SETTINGS
        .replace("EVIL", evil)
        .replace("HOOKS", hooks.to_str().expect("UTF-8"));
    let more = format!(
        "[filter \"worktree\"]\n clean = {evil} worktree\n[core]\n fsmonitor = {evil} worktree\n"
    );
    let included = format!("[filter \"included\"]\n clean = {evil} included\n");
    let append = |path: &Path, text: &str| {
        let before = fs::read_to_string(path).unwrap_or_default();
        fs::write(path, before + text).expect("settings");
    };
    append(&tree.path(".git/config"), &settings);
    append(&tree.path(".git/config.worktree"), &more);
    append(&tree.path(".git/included"), &included);
    append(
        &tree.path(".git/info/attributes"),
        "config.json filter=included\n*.pte filter=worktree\n",
    );
    append(
        &tree.path("inner/.git/config"),
        &settings.replace("included", "none"),
    );
    let modules =
        "[submodule \"inner\"]\n path = inner\n url = ext::evil\n update = !evil\n ignore = none\n";
    // All files are modified, so Git has to read their content.
    let tree = tree
        .file(".gitmodules", modules)
        .package("m/xnnpack", &config());
    let tree = tree.file("inner/file", "two").file("m/file.a", "two");
    // A program named `git`, which a search in the working directory would find.
    fs::copy(evil, tree.path("git")).expect("a program");
    // A directory that looks like a bare repository.
    let bare =
        format!("[core]\n repositoryformatversion = 0\n bare = true\n fsmonitor = {evil} bare\n");
    let tree = tree
        .file("bare/HEAD", "ref: refs/heads/main\n")
        .file("bare/config", bare)
        .file("bare/objects/keep", "")
        .file("bare/refs/keep", "")
        .package("bare/xnnpack", &config());
    (tree, outside)
}

#[test]
fn no_program_that_the_tree_names_is_run() {
    let (tree, outside) = planted();
    let mark = outside.path("mark");
    let path = std::env::var("PATH").expect("a PATH");
    let evil = outside.path("evil");
    let evil = evil.to_str().expect("UTF-8");
    let cases: &[&[&str]] = &[
        &["validate", "--changed", "."],
        &["validate", "--changed=HEAD~", "."],
        &["validate", "--staged", "."],
        &["validate", "."],
        &["validate", "--changed=HEAD", "bare"],
        &["validate", "--staged", "bare"],
        &["diff", "HEAD"],
        &["diff", "HEAD~", "HEAD"],
        &["init", "--dry-run", "m"],
        &["fix", "m"],
    ];
    for arguments in cases {
        // Git must also read files that are both ignored and tracked.
        fs::write(tree.path(".gitignore"), "m/\n").expect("a file");
        let ran = pkgtool(*arguments)
            .within(tree.root())
            .variable("PATH", &format!(".:{path}"))
            .variable("GIT_EXTERNAL_DIFF", evil)
            .variable("GIT_PAGER", evil)
            .variable("GIT_SSH_COMMAND", evil)
            .variable("GIT_EDITOR", evil)
            .variable("GIT_ASKPASS", evil)
            .variable("GIT_CONFIG_COUNT", "1")
            .variable("GIT_CONFIG_KEY_0", "safe.directory")
            .variable("GIT_CONFIG_VALUE_0", "*")
            .run();
        let told = fs::read_to_string(&mark).unwrap_or_default();
        assert_eq!(told, "", "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        let is_git = ran.stderr.contains("git") && ran.code == 2;
        let is_bare = arguments.contains(&"bare");
        assert!(!is_git || is_bare, "{arguments:?}: {}", ran.stderr);
    }
    // The trap works: Git with its default settings runs the program.
    let status = std::process::Command::new("git")
        .args(["status"])
        .current_dir(tree.root())
        .output();
    drop(status);
    let told = fs::read_to_string(&mark).unwrap_or_default();
    assert!(!told.is_empty(), "the trap does not work");
}

/// Git LFS files are compared with their pointers, without running the LFS filter.
#[test]
fn files_of_lfs_are_compared_without_its_filter() {
    let tree = Tree::new().package("m/xnnpack", &config());
    let model = "m/xnnpack/tiny_xnnpack_fp32.pte";
    let bytes = fs::read(tree.path(model)).expect("a model");
    let sum = pkgtool_base::source::same_bytes::sha256(&tree.path(model)).expect("a sum");
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{sum}\nsize {}\n",
        bytes.len()
    );
    let tree = tree
        .file(model, pointer)
        .file(".gitattributes", "*.pte filter=lfs\n");
    commit(tree.root(), "first");
    git(tree.root(), &["config", "filter.lfs.clean", "false"]);
    let tree = tree.file(model, &bytes);
    let changed = |tree: &Tree| {
        let arguments = ["validate", "--format", "json", "--changed=HEAD", "."];
        let ran = pkgtool(arguments).within(tree.root()).run();
        ran.json()["summary"]["packages"].clone()
    };
    assert_eq!(changed(&tree), 0);
    let mut other = bytes;
    *other.last_mut().expect("bytes") ^= 1;
    let tree = tree.file(model, other);
    assert_eq!(changed(&tree), 1);
}
