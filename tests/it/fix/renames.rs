//! Tests of fixes that rename model files: every reference changes with the name, and an
//! interrupted rename is completed.

use std::fs;

use serde_json::{Value, json};

use super::{contents, fix, read};
use crate::support::fixture;
use crate::support::run::pkgtool;
use crate::support::tree::{MODEL, Tree, config};

const OLD: &str = "model.pte";

fn named(file: &str) -> Value {
    let mut value = config();
    value["variants"][0]["file"] = json!(file);
    value
}

/// Returns a package whose model's name breaks the convention, and another config that references
/// the model.
fn tree() -> Tree {
    let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    Tree::new()
        .json("xnnpack/config.json", &named(OLD))
        .file("xnnpack/model.pte", program)
        .json(
            "other/xnnpack/config.json",
            &named("../../xnnpack/model.pte"),
        )
        .file(".git/HEAD", "")
}

fn is_done(tree: &Tree) {
    let files: Vec<String> = contents(tree.root()).into_keys().collect();
    assert_eq!(
        files,
        [
            ".git/HEAD",
            "other/xnnpack/config.json",
            "xnnpack/config.json",
            "xnnpack/tiny_xnnpack_fp32.pte"
        ]
    );
    assert_eq!(
        read(tree, "xnnpack/config.json"),
        format!("{:#}\n", named(MODEL))
    );
    let other = format!("../../xnnpack/{MODEL}");
    assert_eq!(
        read(tree, "other/xnnpack/config.json"),
        format!("{:#}\n", named(&other))
    );
    let again = fix(tree, &["--unsafe"]).expect_code(0);
    assert!(
        again.stdout.starts_with("nothing was changed"),
        "{}",
        again.stdout
    );
}

#[test]
fn a_file_is_renamed_wherever_it_is_named() {
    let tree = tree();
    let before = contents(tree.root());
    let safe = fix(&tree, &[]).expect_code(0);
    assert!(
        safe.stdout.contains("--unsafe would rename `model.pte`"),
        "{}",
        safe.stdout
    );
    let shown = fix(&tree, &["--unsafe", "--diff"]).expect_code(1);
    assert!(
        shown
            .stdout
            .contains("rename to xnnpack/tiny_xnnpack_fp32.pte"),
        "{}",
        shown.stdout
    );
    assert!(
        shown.stdout.contains("+++ b/other/xnnpack/config.json"),
        "{}",
        shown.stdout
    );
    assert_eq!(contents(tree.root()), before);
    let told = fix(&tree, &["--unsafe", "--format", "json"])
        .expect_code(0)
        .json();
    let renamed: Vec<&Value> = told["files"]
        .as_array()
        .expect("files")
        .iter()
        .flat_map(|file| file["renamed"].as_array().expect("a list"))
        .collect();
    assert_eq!(
        renamed,
        [&json!({ "from": "xnnpack/model.pte", "to": "xnnpack/tiny_xnnpack_fp32.pte" })]
    );
    is_done(&tree);
}

#[cfg(unix)]
#[test]
fn what_was_interrupted_is_completed() {
    let link = |tree: &Tree| {
        fs::hard_link(
            tree.path("xnnpack/model.pte"),
            tree.path(&format!("xnnpack/{MODEL}")),
        )
        .expect("a link");
    };
    // Interrupted when the file has both names and no config is written.
    let first = tree();
    link(&first);
    fix(&first, &["--unsafe"]).expect_code(0);
    is_done(&first);
    // Interrupted when only the other config is written.
    let second = tree();
    link(&second);
    let second = second.json(
        "other/xnnpack/config.json",
        &named(&format!("../../xnnpack/{MODEL}")),
    );
    fix(&second, &["--unsafe"]).expect_code(0);
    is_done(&second);
    // Interrupted when both configs are written and the old name still exists.
    let third = tree();
    link(&third);
    let third = third
        .json(
            "other/xnnpack/config.json",
            &named(&format!("../../xnnpack/{MODEL}")),
        )
        .json("xnnpack/config.json", &named(MODEL));
    fix(&third, &["--unsafe"]).expect_code(0);
    is_done(&third);
    // Without support for hard links the file is renamed first; a safe fix then completes the
    // rename.
    let fourth = tree();
    fs::rename(
        fourth.path("xnnpack/model.pte"),
        fourth.path(&format!("xnnpack/{MODEL}")),
    )
    .expect("renamed");
    fix(&fourth, &["xnnpack"]).expect_code(0);
    assert_eq!(
        read(&fourth, "xnnpack/config.json"),
        format!("{:#}\n", named(MODEL))
    );
}

#[test]
fn nothing_is_written_over() {
    let tree = tree().file(&format!("xnnpack/{MODEL}"), "another file");
    let before = contents(tree.root());
    fix(&tree, &["--unsafe"]).expect_code(0);
    assert_eq!(contents(tree.root()), before);
}

/// Returns the message of a `fix` that keeps the model's name, and checks that no file changes.
fn refused(tree: &Tree, arguments: &[&str]) -> String {
    let before = contents(tree.root());
    let ran = fix(tree, arguments).expect_code(2);
    assert_eq!(contents(tree.root()), before, "{arguments:?}");
    assert!(
        ran.stdout
            .contains("not fixed: xnnpack/model.pte keeps its name: "),
        "{arguments:?}: {}",
        ran.stdout
    );
    // A dry run gives the same message and exits with 1 if an error remains.
    let code = i32::from(!ran.stdout.contains(" left, including 0 errors"));
    let checked = fix(tree, &[arguments, &["--check"]].concat()).expect_code(code);
    assert!(
        checked.stdout.contains("keeps its name"),
        "{}",
        checked.stdout
    );
    ran.stdout
}

#[test]
fn a_config_that_was_not_named_is_not_broken() {
    let tree = tree();
    for arguments in [
        &["--unsafe", "xnnpack"][..],
        &["--unsafe", "xnnpack/config.json"],
    ] {
        let told = refused(&tree, arguments);
        assert!(
            told.contains(
                "other/xnnpack/config.json references it too, but was not given; \
                 `pkgtool fix --unsafe .` changes both"
            ),
            "{told}"
        );
    }
    let ran = pkgtool(["validate", "--fix", "--unsafe", "xnnpack"])
        .within(tree.root())
        .run()
        .expect_code(2);
    assert!(ran.stderr.contains("keeps its name"), "{}", ran.stderr);
    let inside = pkgtool(["fix", "--unsafe", "."])
        .within(tree.path("xnnpack"))
        .run()
        .expect_code(2);
    assert!(
        inside.stdout.contains("references it too"),
        "{}",
        inside.stdout
    );
    fix(&tree, &["--unsafe", "."]).expect_code(0);
    is_done(&tree);
}

#[test]
fn without_a_checkout_what_references_reach_is_looked_through() {
    let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    let tree = Tree::new()
        .json("p/xnnpack/config.json", &named(OLD))
        .file("p/xnnpack/model.pte", program)
        .json("p/coreml/config.json", &named("../xnnpack/model.pte"));
    let ran = fix(&tree, &["--unsafe", "p/xnnpack"]).expect_code(2);
    assert!(
        ran.stdout.contains("`pkgtool fix --unsafe p` changes both"),
        "{}",
        ran.stdout
    );
    assert!(tree.path("p/xnnpack/model.pte").exists());
    fix(&tree, &["--unsafe", "p"]);
    assert!(tree.path(&format!("p/xnnpack/{MODEL}")).exists());
    assert!(read(&tree, "p/coreml/config.json").contains(MODEL));
}

#[test]
fn a_config_around_a_checkout_is_not_broken() {
    let program = fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    let tree = Tree::new()
        .json("models/tiny/xnnpack/config.json", &named(OLD))
        .file("models/tiny/xnnpack/model.pte", program)
        .file("models/.git", "gitdir: ../.git/modules/models\n")
        .json(
            "app/xnnpack/config.json",
            &named("../../models/tiny/xnnpack/model.pte"),
        )
        .file(".git/HEAD", "");
    let ran = fix(&tree, &["--unsafe", "models"]).expect_code(2);
    let told = "app/xnnpack/config.json references it too, but was not given";
    assert!(ran.stdout.contains(told), "{}", ran.stdout);
    assert!(tree.path("models/tiny/xnnpack/model.pte").exists());
    fix(&tree, &["--unsafe", "."]);
    assert!(read(&tree, "app/xnnpack/config.json").contains(MODEL));
    assert!(tree.path(&format!("models/tiny/xnnpack/{MODEL}")).exists());
}

#[test]
fn a_config_that_settings_leave_out_is_not_broken() {
    let tree = tree().file("pkgtool.toml", "exclude = [\"other/\"]\n");
    let told = refused(&tree, &["--unsafe"]);
    let both = "`pkgtool fix --unsafe other/xnnpack/config.json xnnpack/config.json` changes both";
    assert!(told.contains(both), "{told}");
    fix(
        &tree,
        &[
            "--unsafe",
            "other/xnnpack/config.json",
            "xnnpack/config.json",
        ],
    )
    .expect_code(0);
    fs::remove_file(tree.path("pkgtool.toml")).expect("removed");
    is_done(&tree);
}

#[test]
fn a_text_that_does_not_parse_names_a_file_all_the_same() {
    let tree = tree().file(
        "other/xnnpack/config.json",
        "{ \"variants\": [{ \"file\": \"../../xnnpack/model.pte\" } { } }",
    );
    let told = refused(&tree, &["--unsafe"]);
    assert!(told.contains("is invalid JSON; correct it"), "{told}");
}

#[cfg(unix)]
#[test]
fn a_link_to_a_file_is_not_broken() {
    let tree = tree();
    std::os::unix::fs::symlink("model.pte", tree.path("xnnpack/alias.pte")).expect("a link");
    let told = refused(&tree, &["--unsafe"]);
    assert!(
        told.contains("the symbolic link xnnpack/alias.pte leads to it"),
        "{told}"
    );
    fs::remove_file(tree.path("xnnpack/alias.pte")).expect("removed");
    // A path through a linked directory also references the file.
    std::os::unix::fs::symlink("../xnnpack", tree.path("other/shared")).expect("a link");
    let tree = tree.json("other/xnnpack/config.json", &named("../shared/model.pte"));
    let told = refused(&tree, &["--unsafe"]);
    assert!(
        told.contains("other/xnnpack/config.json references it"),
        "{told}"
    );
}
