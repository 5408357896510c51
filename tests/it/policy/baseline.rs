//! Tests of baselines: only new findings are reported, and stale entries are noted.

use std::fs;

use serde_json::{Value, json};

use super::{faulty, run, told};
use crate::support::run::pkgtool;
use crate::support::tree::{MODEL, Tree, config};

fn written(tree: &Tree) -> Value {
    let text = fs::read_to_string(tree.path("base.json")).expect("a baseline");
    serde_json::from_str(&text).expect("JSON")
}

fn write(tree: &Tree, arguments: &[&str]) -> String {
    let all = ["validate", "--write-baseline", "base.json"]
        .iter()
        .chain(arguments);
    pkgtool(all).within(tree.root()).run().expect_code(0).stderr
}

#[test]
fn what_is_known_is_not_told() {
    let mut broken = faulty();
    broken["variants"][0]["size_bytes"] = json!(1);
    let tree = Tree::new().package("xnnpack", &broken);
    run(&tree, &[]).expect_code(1);
    assert_eq!(
        write(&tree, &[]),
        "note: base.json has 3 known findings: 3 new, 0 gone\n"
    );
    let text = fs::read_to_string(tree.path("base.json")).expect("a baseline");
    assert_eq!(
        text,
        "{\n  \"version\": 1,\n  \"findings\": [\n    {\"file\":\"xnnpack/config.json\",\"rule\":\"file-name\",\"pointer\":\"/variants/fp32/file\"},\n    {\"file\":\"xnnpack/config.json\",\"rule\":\"license-unknown\",\"pointer\":\"/license\"},\n    {\"file\":\"xnnpack/config.json\",\"rule\":\"size-mismatch\",\"pointer\":\"/variants/fp32/size_bytes\"}\n  ]\n}\n"
    );
    assert_eq!(told(&tree, &["--baseline", "base.json"]), [""; 0]);
    // Lines, numbers and the order of variants may change.
    broken["variants"][0]["size_bytes"] = json!(22);
    broken["family"] = json!("other");
    let first = json!({ "precision": "fp16", "file": MODEL });
    broken["variants"]
        .as_array_mut()
        .expect("a list")
        .insert(0, first);
    let tree = tree.package("xnnpack", &broken);
    let found = run(&tree, &["--baseline", "base.json"]).findings();
    assert!(
        !found.is_empty()
            && found
                .iter()
                .all(|one| !one.pointer.starts_with("/variants/1/size")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .all(|one| one.pointer != "/license" && one.code != "PKG058"),
        "{found:?}"
    );
}

#[test]
fn what_is_gone_is_told_and_removed() {
    let tree = Tree::new()
        .package("a/xnnpack", &faulty())
        .package("b/xnnpack", &faulty());
    write(&tree, &[]);
    let tree = tree.package("a/xnnpack", &config());
    let found = run(&tree, &["--baseline", "base.json"])
        .expect_code(0)
        .findings();
    let [one] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (one.code.as_str(), one.path.as_str()),
        ("PKG058", "base.json")
    );
    assert!(
        one.message
            .starts_with("2 known findings are gone: `file-name` at a/xnnpack/config.json#"),
        "{one:?}"
    );
    // Entries outside of the checked paths and rules are not stale.
    assert_eq!(told(&tree, &["--baseline", "base.json", "b"]), [""; 0]);
    assert_eq!(
        told(&tree, &["--baseline", "base.json", "--no-model"]),
        [""; 0]
    );
    assert_eq!(
        told(&tree, &["--baseline", "base.json", "--select", "tensor"]),
        [""; 0]
    );
    assert!(write(&tree, &["b"]).contains("has 4 known findings: 0 new, 0 gone"));
    assert!(write(&tree, &[]).contains("has 2 known findings: 0 new, 2 gone"));
    fs::remove_dir_all(tree.path("b")).expect("it was there");
    assert_eq!(
        told(&tree, &["--baseline", "base.json"]),
        ["base.json baseline-stale note"]
    );
    assert_eq!(
        told(
            &tree,
            &["--baseline", "base.json", "--ignore", "baseline-stale"]
        ),
        [""; 0]
    );
}

#[test]
fn findings_are_counted() {
    let twice = |count: usize| {
        let mut config = config();
        for _ in 1..count {
            let same = config["variants"][0].clone();
            config["variants"]
                .as_array_mut()
                .expect("a list")
                .push(same);
        }
        config
    };
    let tree = Tree::new().package("xnnpack", &twice(3));
    let select = ["--select", "variant-duplicate"];
    assert_eq!(told(&tree, &select).len(), 2);
    write(&tree, &select);
    assert_eq!(written(&tree)["findings"][0]["count"], 2);
    let known = [
        "--select",
        "variant-duplicate,baseline-stale",
        "--baseline",
        "base.json",
    ];
    assert_eq!(told(&tree, &known), [""; 0]);
    let tree = tree.package("xnnpack", &twice(4));
    assert_eq!(told(&tree, &known).len(), 1, "one is new");
    let tree = tree.package("xnnpack", &twice(2));
    assert_eq!(told(&tree, &known), ["base.json baseline-stale note"]);
}

#[test]
fn settings_name_a_baseline() {
    let tree = Tree::new()
        .package("p/xnnpack", &faulty())
        .file("p/pkgtool.toml", "baseline = \"known/base.json\"")
        .file("p/known/.keep", "");
    let ran = pkgtool(["validate", "--write-baseline", "p/known/base.json", "p"])
        .within(tree.root())
        .run();
    ran.expect_code(0);
    let text = fs::read_to_string(tree.path("p/known/base.json")).expect("a baseline");
    assert!(text.contains("\"../xnnpack/config.json\""), "{text}");
    assert_eq!(told(&tree, &["p"]), [""; 0]);
    assert_eq!(told(&tree, &["--no-config"]).len(), 2);
    let moved = Tree::new();
    fs::rename(tree.path("p"), moved.path("q")).expect("it moves");
    assert_eq!(
        told(&moved, &["q"]),
        [""; 0],
        "a baseline moves together with its packages"
    );
}

#[test]
fn nothing_but_baselines_is_overwritten() {
    let tree = Tree::new().package("xnnpack", &faulty());
    for other in [
        "",
        "{}",
        "{\"version\": 2, \"findings\": []}",
        "[1",
        "\"text\"",
        "{\"version\":1,\"findings\":[{\"file\":1}]}",
    ] {
        let tree = Tree::new()
            .package("xnnpack", &faulty())
            .file("base.json", other);
        for option in ["--write-baseline", "--baseline"] {
            let ran = run(&tree, &[option, "base.json"]).expect_code(2);
            assert!(ran.stderr.contains("unusable baseline"), "{}", ran.stderr);
        }
        assert_eq!(
            fs::read_to_string(tree.path("base.json")).expect("it stays"),
            other
        );
    }
    run(&tree, &["--write-baseline", "no/such/base.json"]).expect_code(2);
    run(&tree, &["--write-baseline", "xnnpack"]).expect_code(2);
    write(&tree, &[]);
    let left: Vec<_> = fs::read_dir(tree.root())
        .expect("a directory")
        .map(|one| one.expect("an entry").file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
