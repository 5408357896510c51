//! The findings of a package are the same however the directory walk reached it.
//!
//! The walk caches what it has seen of directories, and the rules use that instead of reading the
//! disk again.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::support::run::pkgtool;
use crate::support::tree::{Tree, config};

/// Returns the sorted findings on one config of a run: `CODE pointer message`.
fn findings(tree: &Tree, paths: &[&str], config: &str) -> Vec<String> {
    let arguments = ["validate", "--format", "json"];
    let ran = pkgtool(arguments.iter().chain(paths))
        .within(tree.root())
        .run();
    let found = ran.findings().into_iter();
    let mut found: Vec<String> = found
        .filter(|found| found.path == config)
        .map(|found| format!("{} {} {}", found.code, found.pointer, found.message))
        .collect();
    found.sort();
    found
}

/// Creates packages at four places: in a plain directory with a precision list and a repository
/// root, in a hidden directory with both, behind a link, and without either.
///
/// Each package uses a precision of the list. Each also has a reference that leads out of the
/// repository, or a model that no config names.
fn tree(leads_out: bool) -> Tree {
    let mut own = config();
    own["variants"][0]["precision"] = json!("own");
    let list = json!({ "quantized": ["own"], "non_quantized": ["fp32"] });
    let mut tree = Tree::new();
    if leads_out {
        own["tokenizer"] = json!("../../../t.json");
    }
    for place in ["in/a", ".hidden/b", "far/c/d", "e"] {
        let backend = format!("{place}/xnnpack");
        tree = tree
            .package(&backend, &own)
            .file(&format!("{backend}/left_xnnpack_int8.pte"), "left")
            .file(&format!("{backend}/.m.mlpackage/x"), "left");
    }
    for place in ["in", ".hidden", "far/c"] {
        tree = tree.json(&format!("{place}/precisions.json"), &list);
        fs::create_dir(tree.path(&format!("{place}/.git"))).expect("a directory");
    }
    let tree = tree.file("far/.gitattributes", "").file("t.json", "{}");
    symlink("far/c", tree.path("link")).expect("a link");
    tree
}

/// Each package with paths from which a walk reaches it.
const WAYS: &[(&str, &[&[&str]])] = &[
    (
        "in/a",
        &[&["."], &["in"], &["in/a"], &["in/a/xnnpack"], &[".", "in"]],
    ),
    (
        ".hidden/b",
        &[&[".hidden"], &[".", ".hidden/b"], &[".hidden/b", "."]],
    ),
    ("far/c/d", &[&["."], &["far"]]),
    ("link/d", &[&["link"], &["link/d"], &["link", "in"]]),
    ("e", &[&["."], &["e"], &["e", ".hidden"]]),
];

#[test]
fn a_package_gets_the_same_findings_however_it_was_met() {
    for leads_out in [false, true] {
        let tree = tree(leads_out);
        for (package, walks) in WAYS {
            let config = format!("{package}/xnnpack/config.json");
            let named = findings(&tree, &[&config], &config);
            let has = |text: &str| named.iter().any(|it| it.contains(text));
            assert_eq!(has("left_xnnpack_int8.pte"), !leads_out, "{named:#?}");
            assert_eq!(has(".m.mlpackage"), !leads_out, "{named:#?}");
            assert_eq!(has("PKG016"), leads_out, "{named:#?}");
            assert_eq!(has("PKG008"), *package == "e", "{package}: {named:#?}");
            for walk in *walks {
                let walked = findings(&tree, walk, &config);
                assert_eq!(walked, named, "{package} by {walk:?}");
            }
        }
    }
}
