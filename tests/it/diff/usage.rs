//! Tests of the formats and exit codes of `pkgtool diff`.

use serde_json::json;

use crate::support::run::pkgtool;
use crate::support::tree::{Tree, config};

fn versions() -> Tree {
    let mut new = config();
    new["license"] = json!("*GPL* <b>|@someone");
    new["capabilities"] = json!(["classification", "vision"]);
    new["family"] = json!("a`<b>@x");
    Tree::new()
        .package("old/xnnpack", &config())
        .package("new/xnnpack", &new)
}

#[test]
fn exit_codes_follow_the_level() {
    let tree = versions();
    let run = |arguments: &[&str]| {
        let arguments = ["diff"].iter().chain(arguments);
        pkgtool(arguments).within(tree.root()).run()
    };
    run(&["old", "new"]).expect_code(1);
    run(&["old", "new", "--fail-on", "none"]).expect_code(0);
    run(&["old", "old", "--fail-on", "any"]).expect_code(0);
    let more = Tree::new()
        .package("old/xnnpack", &config())
        .package("new/xnnpack", &{
            let mut more = config();
            more["capabilities"] = json!(["classification", "vision"]);
            more
        });
    for (level, code) in [("breaking", 0), ("compatible", 1), ("any", 1), ("none", 0)] {
        let arguments = ["diff", "old", "new", "--fail-on", level];
        pkgtool(arguments)
            .within(more.root())
            .run()
            .expect_code(code);
    }
    let nothing = Tree::new().file("a/x", "").file("b/y", "");
    let ran = pkgtool(["diff", "a", "b"])
        .within(nothing.root())
        .run()
        .expect_code(3);
    assert!(
        ran.stderr.contains("nothing to compare in a and b"),
        "{}",
        ran.stderr
    );
}

#[test]
fn formats_say_the_same() {
    let tree = versions();
    let run = |format: &str| {
        let arguments = ["diff", "old", "new", "--format", format];
        pkgtool(arguments).within(tree.root()).run().expect_code(1)
    };
    let human = run("human").stdout;
    assert!(
        human.contains("  breaking    license-changed   `license`: `MIT` → "),
        "{human}"
    );
    assert!(
        human.ends_with("1 config compared: 1 breaking, 1 compatible and 1 cosmetic changes\n"),
        "{human}"
    );
    let json = run("json").json();
    assert_eq!(json["version"], 1);
    assert_eq!(
        json["summary"],
        json!({ "breaking": 1, "compatible": 1, "cosmetic": 1 })
    );
    assert_eq!(json["changes"][0]["kind"], "license-changed");
    assert_eq!(json["changes"][0]["package"], "tiny xnnpack");
    assert_eq!(json["changes"][0]["config"], "xnnpack/config.json");
    let markdown = run("markdown").stdout;
    assert!(
        markdown.starts_with("## Changes from `old` to `new`\n\n1 breaking, 1"),
        "{markdown}"
    );
    assert!(
        markdown.contains("### Breaking\n\n- **tiny xnnpack**\n"),
        "{markdown}"
    );
    // Texts from packages are escaped: they contain neither markup nor mentions.
    assert!(markdown.contains("→ `*GPL* <b>|@someone`\n"), "{markdown}");
    assert!(markdown.contains("\\<b\\>&#64;x"), "{markdown}");
}

#[test]
fn kinds_are_listed() {
    let ran = pkgtool(["diff", "--kinds"]).run().expect_code(0);
    assert_eq!(
        ran.stdout.lines().count(),
        pkgtool_check::diff::KINDS.len() + 2
    );
    assert!(
        ran.stdout.contains("| `input-added` | breaking |"),
        "{}",
        ran.stdout
    );
}
