//! Tests of `pkgtool rules`: each rule's severity under a project's settings.

use super::faulty;
use crate::support::run::pkgtool;
use crate::support::tree::Tree;

#[test]
fn rules_are_listed_with_what_settings_make_of_them() {
    let tree = Tree::new().package("xnnpack", &faulty()).file(
        "pkgtool.toml",

        "select = [\"file\", \"tensor\", \"license\", \"PKG004\"]\nignore = [\"license\"]\ndeny-warnings = true\n\
         [severity]\nall = \"note\"\ntensor = \"error\"\nfile-name = \"warning\"\nfile-missing = \"off\"\n\
         [per-path-ignores]\n\"old/**\" = [\"tensor\"]\n\"x\" = [\"PKG034\"]\n",
    )
    .file("other/pkgtool.toml", "[severity]\nschema = \"warning\"\n")
    .file("broken/pkgtool.toml", "sevrity = 1\n");
    let list = |directory: &str, arguments: &[&str]| {
        let all = [&["rules"][..], arguments].concat();
        pkgtool(all)
            .within(tree.path(directory))
            .run()
            .expect_code(0)
    };
    let rules = list("xnnpack", &["--format", "json"]).json();
    let settings = serde_json::json!({ "file": "../pkgtool.toml", "deny_warnings": true });
    let of = |rules: &serde_json::Value, name: &str| {
        let all = rules["rules"].as_array().expect("an array");
        let one = all.iter().find(|rule| rule["rule"] == name);
        let one = one.unwrap_or_else(|| panic!("no {name}"));
        let keys = ["severity", "in_force", "changed_by", "not_in"];
        serde_json::json!(keys.map(|key| one[key].clone()))
    };
    assert_eq!(
        rules["settings"]["deny_warnings"],
        settings["deny_warnings"]
    );
    let file = rules["settings"]["file"].as_str().expect("a file");
    assert!(file.ends_with("pkgtool.toml"), "{file}");
    let by = |setting: &str, rules: Option<&str>| serde_json::json!({ "setting": setting, "rules": rules });
    for (name, expected) in [
        (
            "json-syntax",
            serde_json::json!(["error", "off", by("select", None), []]),
        ),
        (
            "license-unknown",
            serde_json::json!(["note", "off", by("ignore", Some("license")), []]),
        ),
        (
            "schema",
            serde_json::json!(["error", "note", by("severity", Some("all")), []]),
        ),
        (
            "file-missing",
            serde_json::json!(["error", "off", by("severity", Some("file-missing")), []]),
        ),
        // The setting equals the rule's default severity.
        (
            "file-name",
            serde_json::json!(["warning", "warning", null, []]),
        ),
        (
            "tensor-rank",
            serde_json::json!(["error", "error", null, ["old/**"]]),
        ),
        (
            "tensor-shape",
            serde_json::json!(["error", "error", null, ["old/**", "x"]]),
        ),
    ] {
        assert_eq!(of(&rules, name), expected, "{name}");
    }
    let table = list("", &[]).stdout;
    for line in [
        "# pkgtool.toml: code, severity in force, default severity, fix, rule, reason for the difference",
        "PKG002  off      error    safe    json-syntax",
        "PKG004  note     error    unsafe  schema",
    ] {
        assert!(
            table.lines().any(|one| one.starts_with(line)),
            "{line} in {table}"
        );
    }
    for end in [
        "not in `select`",
        "`ignore` lists `license`",
        "`severity` has `all = \"note\"`",
        "not in `old/**`, `x`",
    ] {
        assert!(
            table.lines().any(|one| one.ends_with(end)),
            "{end} in {table}"
        );
    }
    let other = list("", &["--format=json", "--config", "other/pkgtool.toml"]).json();
    assert_eq!(of(&other, "schema")[1], "warning");
    assert_eq!(of(&other, "license-unknown")[1], "note");
    let bare = list("", &["--no-config", "--format", "json"]).json();
    assert_eq!(bare["settings"], serde_json::Value::Null);
    assert_eq!(
        of(&bare, "schema"),
        serde_json::json!(["error", "error", null, []])
    );
    let bare = list("", &["--no-config"]).stdout;
    assert_eq!(
        bare,
        pkgtool(["rules"]).run().expect_code(0).stdout,
        "as without settings"
    );
    for format in ["markdown", "page"] {
        let here = list("", &["--format", format]).stdout;
        assert_eq!(here, list("", &["--no-config", "--format", format]).stdout);
    }
    let broken = list("broken", &[]);
    assert!(
        broken
            .stderr
            .contains("pkgtool.toml has 1 error; run `pkgtool validate "),
        "{}",
        broken.stderr
    );
    let absent = pkgtool(["rules", "--config", "none.toml"])
        .within(tree.root())
        .run();
    assert!(absent.expect_code(2).stderr.contains("none.toml"));
}
