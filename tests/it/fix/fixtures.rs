//! Tests of `fix` on every broken config of the repository: fixable errors are fixed, and a second
//! run changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pkgtool_check::validate::rule_metas;

use super::{contents, fix};
use crate::support::fixture;
use crate::support::run::validate;
use crate::support::tree::Tree;

/// Packages with errors that `fix` fixes completely: all of a rule's bad fixtures, or the listed
/// ones.
const MENDED: &[(&str, &[&str])] = &[
    ("PKG003", &[]),
    (
        "PKG004",
        &[
            "dtype",
            "list",
            "not-a-token",
            "not-allowed",
            "repeated",
            "typing-error",
            "wrong-type",
        ],
    ),
    ("PKG005", &[]),
    ("PKG006", &[]),
    ("PKG008", &["typing-error"]),
    (
        "PKG010",
        &[
            "component-methods",
            "methods-empty",
            "methods-key",
            "methods-text",
            "schema",
            "size",
            "tokenizer",
        ],
    ),
    ("PKG011", &[]),
    ("PKG012", &["typing-error"]),
    ("PKG013", &[]),
    ("PKG014", &[]),
    ("PKG015", &["tokenizer"]),
    ("PKG019", &[]),
    (
        "PKG025",
        &[
            "generic",
            "no-backend",
            "no-model",
            "no-precision",
            "upper-case",
        ],
    ),
    ("PKG026", &["looks-like"]),
    ("PKG029", &["program"]),
    ("PKG030", &[]),
    ("PKG031", &[]),
    ("PKG032", &[]),
    ("PKG033", &[]),
    ("PKG034", &[]),
    ("PKG035", &[]),
    ("PKG045", &[]),
    ("PKG048", &["exchanged"]),
];

/// Rules whose fixtures lack the files that their fixes need; other tests cover them.
const ELSEWHERE: [&str; 5] = ["PKG002", "PKG009", "PKG016", "PKG020", "PKG024"];

fn copied(from: &Path) -> Tree {
    let mut tree = Tree::new();
    for (path, bytes) in contents(from) {
        tree = tree.file(&path, bytes);
    }
    tree
}

#[test]
fn bad_packages_are_mended_to_clean() {
    let fixable = rule_metas().into_iter().filter(|rule| rule.fix.is_some());
    for code in fixable.map(|rule| rule.code) {
        let Some((_, named)) = MENDED.iter().find(|(known, _)| *known == code) else {
            assert!(
                ELSEWHERE.contains(&code),
                "{code} has no package that is fixed"
            );
            continue;
        };
        let bad = fixture(&format!("rules/{code}/bad"));
        let packages: Vec<String> = if named.is_empty() {
            vec![".".to_owned()]
        } else {
            named.iter().map(|name| (*name).to_owned()).collect()
        };
        for package in packages {
            let tree = copied(&bad);
            fix(&tree, &["--unsafe", &package]).expect_code(0);
            let left = validate(tree.root(), &package).expect_code(0).findings();
            assert!(
                left.iter().all(|found| found.code != code),
                "{code}/{package}: {left:?}"
            );
        }
    }
}

#[test]
fn a_second_run_changes_nothing() {
    for source in ["tests/fixtures/rules", "packages-examples"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let tree = copied(&root);
        for arguments in [&[][..], &["--unsafe"]] {
            fix(&tree, arguments);
            let once = contents(tree.root());
            let ran = fix(&tree, arguments);
            assert!(
                ran.stdout.contains("nothing was changed"),
                "{source}: {}",
                ran.stdout
            );
            assert_eq!(contents(tree.root()), once, "{source} {arguments:?}");
        }
    }
}

#[test]
fn clean_examples_stay_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples");
    let tree = copied(&root);
    let before: BTreeMap<String, Vec<u8>> = contents(tree.root());
    fix(&tree, &["--unsafe"]).expect_code(0);
    assert_eq!(contents(tree.root()), before);
}

/// Common deviations from JSON are fixed; the rest of the package is valid.
#[test]
fn liberties_with_json_are_taken_back() {
    let text = fs::read_to_string(fixture("rules/PKG005/good/xnnpack/config.json"));
    let clean = text.unwrap_or_else(|_| format!("{:#}\n", crate::support::tree::config()));
    for (lenient, note) in [
        (format!("\u{feff}{clean}"), "a byte order mark"),
        (clean.replacen('{', "{ // the config", 1), "a comment"),
        (
            clean.replacen("\"model\"", "model", 1),
            "a key without quotes",
        ),
        (clean.replacen("\"model\"", "'model'", 1), "single quotes"),
    ] {
        let tree = Tree::with_package().file("xnnpack/config.json", &lenient);
        fix(&tree, &["--rule", "json-syntax"]);
        let after = fs::read_to_string(tree.path("xnnpack/config.json")).expect("a text");
        let squeezed = |text: &str| text.replace("{ \n", "{\n").replace("{\n", "{");
        assert_eq!(squeezed(&after), squeezed(&clean), "{note}");
    }
    // If one of several syntax errors cannot be fixed, nothing changes.
    let broken = clean.replacen("\"model\"", "model", 1).replacen(',', "", 1);
    let tree = Tree::with_package().file("xnnpack/config.json", &broken);
    fix(&tree, &[]).expect_code(1);
    assert_eq!(
        fs::read_to_string(tree.path("xnnpack/config.json")).expect("a text"),
        broken
    );
}
