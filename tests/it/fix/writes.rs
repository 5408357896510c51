//! Tests of file writes by `fix`: atomic, in place, and with unchanged attributes.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};

use super::{contents, fix, read};
use crate::support::run::pkgtool;
use crate::support::tree::{Tree, config};

fn with_legacy_field() -> Value {
    let mut value = config();
    value["variants"][0]["quantized"] = json!(false);
    value
}

#[cfg(unix)]
#[test]
fn links_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let tree = Tree::with_package().json("real.json", &with_legacy_field());
    fs::remove_file(tree.path("xnnpack/config.json")).expect("removed");
    symlink("../real.json", tree.path("xnnpack/config.json")).expect("a link");
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(tree.path("real.json"), mode).expect("permissions");
    fix(&tree, &[]).expect_code(0);
    let link = fs::read_link(tree.path("xnnpack/config.json")).expect("still a link");
    assert_eq!(link.to_str(), Some("../real.json"));
    assert_eq!(read(&tree, "real.json"), format!("{:#}\n", config()));
    let metadata = fs::metadata(tree.path("real.json")).expect("a file");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    let names: Vec<String> = contents(tree.root()).into_keys().collect();
    assert_eq!(
        names,
        [
            "real.json",
            "xnnpack/config.json",
            "xnnpack/tiny_xnnpack_fp32.pte"
        ]
    );
}

#[test]
fn what_is_read_only_is_left_and_told() {
    let tree = Tree::with_package().json("xnnpack/config.json", &with_legacy_field());
    let path = tree.path("xnnpack/config.json");
    let mut permissions = fs::metadata(&path).expect("a file").permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).expect("permissions");
    let before = contents(tree.root());
    let ran = fix(&tree, &[]).expect_code(2);
    assert!(
        ran.stdout.contains("not fixed: the file is read-only"),
        "{}",
        ran.stdout
    );
    let ran = pkgtool(["validate", "--fix"])
        .within(tree.root())
        .run()
        .expect_code(2);
    assert!(
        ran.stderr.contains("the file is read-only"),
        "{}",
        ran.stderr
    );
    assert_eq!(contents(tree.root()), before);
}

#[test]
fn whoever_is_interrupted_leaves_whole_files() {
    let old = format!("{:#}\n", with_legacy_field());
    let new = format!("{:#}\n", config());
    let mut tree = Tree::new();
    for number in 0..60 {
        tree = tree.package(&format!("p{number}/xnnpack"), &config());
    }
    let paths: Vec<_> = (0..60)
        .map(|number| tree.path(&format!("p{number}/xnnpack/config.json")))
        .collect();
    let mut states = [0, 0];
    let broken = || {
        for path in &paths {
            fs::write(path, &old).expect("a file");
        }
    };
    broken();
    let started = Instant::now();
    fix(&tree, &["--quiet"]).expect_code(0);
    let whole = started.elapsed();
    for part in 1..=25 {
        broken();
        let mut command = pkgtool(["fix", "--quiet"])
            .within(tree.root())
            .into_command();
        let mut child = command.spawn().expect("it starts");
        std::thread::sleep(whole * part / 22);
        // The process may have ended by itself.
        let _ = child.kill();
        child.wait().expect("it ended");
        for path in &paths {
            let text = fs::read_to_string(path).expect("a file");
            let is_new = text == new;
            assert!(is_new || text == old, "{text}");
            states[usize::from(is_new)] += 1;
        }
    }
    assert!(
        states[0] > 0 && states[1] > 0,
        "no run was interrupted in the middle: {states:?}"
    );
    // The next run removes the temporary files of an interrupted one.
    fix(&tree, &["--quiet"]).expect_code(0);
    let left = contents(tree.root()).into_keys();
    let left: Vec<String> = left.filter(|name| name.contains(".tmp")).collect();
    assert_eq!(left, Vec::<String>::new());
    fix(&tree, &["--check"]).expect_code(0);
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_killed_run_left_is_removed_and_nothing_else() {
    // One process that has ended, and the current one.
    let mut child = std::process::Command::new("true").spawn().expect("it runs");
    let gone = format!("xnnpack/.config.json.{}-0.tmp", child.id());
    child.wait().expect("it ended");
    let alive = format!("xnnpack/.config.json.{}-0.tmp", std::process::id());
    let another = format!("xnnpack/.other.json.{}-0.tmp", child.id());
    let tree = Tree::with_package()
        .file(&gone, "{")
        .file(&alive, "{")
        .file(&another, "{");
    let before = contents(tree.root());
    fix(&tree, &["--check"]).expect_code(0);
    assert_eq!(contents(tree.root()), before, "nothing is written");
    fix(&tree, &[]).expect_code(0);
    let mut after = before;
    after.remove(&gone);
    assert_eq!(contents(tree.root()), after);
}
