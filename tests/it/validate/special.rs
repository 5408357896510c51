//! Special files: pipes, devices, symlink loops, broken links, unreadable files. Unix only.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::run::{pkgtool, validate};
use crate::support::tree::{MODEL, Tree, config};

fn make_pipe(path: &Path) {
    let _ = fs::remove_file(path);
    let status = Command::new("mkfifo").arg(path).status();
    assert!(status.expect("mkfifo is there").success());
}

#[track_caller]
fn only_unreadable(tree: &Tree, pointer: &str) {
    let ran = validate(tree.root(), ".").expect_code(1);
    let found = ran.findings();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (found[0].code.as_str(), found[0].pointer.as_str()),
        ("PKG039", pointer)
    );
}

#[test]
fn pipes_are_not_waited_for() {
    let tree = Tree::with_package();
    make_pipe(&tree.path("xnnpack/config.json"));
    only_unreadable(&tree, "");
    let tree = Tree::with_package();
    make_pipe(&tree.path(&format!("xnnpack/{MODEL}")));
    only_unreadable(&tree, "/variants/0/file");
    let mut config = config();
    config["tokenizer"] = json!("tokenizer.json");
    let tree = Tree::new().package("xnnpack", &config);
    make_pipe(&tree.path("xnnpack/tokenizer.json"));
    only_unreadable(&tree, "/tokenizer");
    let tree = Tree::with_package();
    make_pipe(&tree.path("precisions.json"));
    only_unreadable(&tree, "");
    let given = pkgtool(["validate", "--precisions", "precisions.json"]);
    given.within(tree.root()).run().expect_code(2);
    let inspect = pkgtool(["inspect", "precisions.json"]);
    inspect.within(tree.root()).run().expect_code(2);
}

#[test]
fn devices_are_not_read() {
    for device in ["/dev/zero", "/dev/null"] {
        let ran = pkgtool(["validate", "--format", "json", device])
            .run()
            .expect_code(1);
        assert_eq!(ran.codes(), ["PKG039"]);
        pkgtool(["inspect", device]).run().expect_code(2);
        let tree = Tree::with_package();
        let model = tree.path(&format!("xnnpack/{MODEL}"));
        fs::remove_file(&model).expect("the model");
        symlink(device, &model).expect("a link");
        only_unreadable(&tree, "/variants/0/file");
    }
}

#[test]
fn links_that_lead_nowhere_are_findings() {
    for target in ["config.json", "../nothing.json"] {
        let tree = Tree::with_package();
        fs::remove_file(tree.path("xnnpack/config.json")).expect("the config");
        symlink(target, tree.path("xnnpack/config.json")).expect("a link");
        only_unreadable(&tree, "");
    }
    let tree = Tree::with_package();
    let model = tree.path(&format!("xnnpack/{MODEL}"));
    fs::remove_file(&model).expect("the model");
    symlink(MODEL, &model).expect("a link");
    only_unreadable(&tree, "/variants/0/file");
    pkgtool(["inspect".as_ref(), model.as_os_str()])
        .run()
        .expect_code(2);
}

#[test]
fn a_dangling_link_says_so() {
    let tree = Tree::with_package();
    fs::remove_file(tree.path("xnnpack/config.json")).expect("the config");
    symlink("../nothing.json", tree.path("xnnpack/config.json")).expect("a link");
    let found = validate(tree.root(), ".").expect_code(1).findings();
    let said = "it is a symbolic link to ../nothing.json, which does not exist";
    assert!(found[0].message.contains(said), "{found:?}");
    let tree = Tree::with_package();
    let model = tree.path(&format!("xnnpack/{MODEL}"));
    fs::remove_file(&model).expect("the model");
    symlink("../blobs/4d7a", &model).expect("a link");
    let found = validate(tree.root(), ".").expect_code(1).findings();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].code, "PKG015");
    assert!(
        found[0]
            .message
            .contains("is a symbolic link to `../blobs/4d7a`"),
        "{found:?}"
    );
}

#[test]
fn loops_of_directories_are_not_walked() {
    let tree = Tree::with_package();
    symlink("..", tree.path("xnnpack/up")).expect("a link");
    symlink(".", tree.path("here")).expect("a link");
    let ran = validate(tree.root(), ".").expect_code(0);
    assert_eq!(ran.json()["summary"]["packages"], 1);
    let ran = validate(tree.root(), "here/here/xnnpack/up").expect_code(0);
    assert_eq!(ran.json()["summary"]["packages"], 1);
}

#[test]
fn a_linked_config_is_checked_where_the_link_stands() {
    let tree = Tree::with_package();
    fs::rename(tree.path("xnnpack/config.json"), tree.path("shared.json")).expect("a move");
    symlink("../shared.json", tree.path("xnnpack/config.json")).expect("a link");
    let ran = validate(tree.root(), ".").expect_code(0);
    assert_eq!(ran.json()["summary"]["packages"], 1);
}

#[test]
#[expect(
    clippy::print_stderr,
    reason = "a skipped test must not look like a passed one"
)]
fn what_may_not_be_read_is_a_finding() {
    let tree = Tree::with_package();
    let set = |path: &str, mode| {
        fs::set_permissions(tree.path(path), Permissions::from_mode(mode)).expect("permissions");
    };
    set("xnnpack/config.json", 0);
    if fs::read(tree.path("xnnpack/config.json")).is_ok() {
        eprintln!(
            "SKIPPED what_may_not_be_read_is_a_finding: this user may read everything (root)"
        );
        return;
    }
    only_unreadable(&tree, "");
    set("xnnpack/config.json", 0o644);
    set(&format!("xnnpack/{MODEL}"), 0);
    only_unreadable(&tree, "/variants/0/file");
    set(&format!("xnnpack/{MODEL}"), 0o644);
    set("xnnpack", 0);
    only_unreadable(&tree, "");
    set("xnnpack", 0o755);
}
