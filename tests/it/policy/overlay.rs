//! Tests of the setting `schema`: a project's own JSON Schema, which adds to the built-in one.

use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::run;
use crate::support::editor::Editor;
use crate::support::run::pkgtool;
use crate::support::tree::{Tree, config};

const SETTINGS: &str = "schema = \"overlay.schema.json\"";
const CONFIG: &str = "xnnpack/config.json";

/// Returns a package under settings with this overlay.
fn with(overlay: &str, config: &Value) -> Tree {
    Tree::new()
        .package("xnnpack", config)
        .file("pkgtool.toml", SETTINGS)
        .file("overlay.schema.json", overlay)
}

/// Returns the findings as code, pointer and message.
fn found(tree: &Tree, arguments: &[&str]) -> Vec<String> {
    let found = run(tree, arguments).findings().into_iter();
    found
        .map(|one| format!("{} {} {}", one.code, one.pointer, one.message))
        .collect()
}

/// Returns a config with other values of some keys.
fn changed(members: Value) -> Value {
    let mut config = config();
    let Value::Object(members) = members else {
        panic!("an object");
    };
    config.as_object_mut().expect("an object").extend(members);
    config
}

fn with_variant(key: &str, value: Value) -> Value {
    let mut config = config();
    config["variants"][0][key] = value;
    config
}

#[test]
fn overlays_add_keys_and_capabilities_and_tighten_the_rest() {
    let pose = r#"{"properties": {"capabilities": {"items": {"enum": ["pose-estimation", "classification"]}}}}"#;
    let team = r##"{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/team",
        "required": ["team"], "properties": {"team": {"$ref": "#/$defs/team"}},
        "$defs": {"team": {"type": "string", "pattern": "^[A-Z][a-z]+$"}}}"##;
    let note = r##"{"properties": {"variants": {"items": {"$ref": "#/$defs/v"}}},
        "$defs": {"v": {"properties": {"x-note": {"maxLength": 3}}}}}"##;
    let closed = r#"{"additionalProperties": false, "properties": {"model": {}}}"#;
    let by = "(overlay `overlay.schema.json`)";
    for (overlay, config, expected) in [
        ("{}", config(), vec![]),
        (pose, config(), vec![]),
        (
            pose,
            changed(json!({"capabilities": ["pose-estimation"]})),
            vec![],
        ),
        (
            pose,
            changed(json!({"capabilities": ["vision"]})),
            vec![format!(
                "/capabilities/0 \"vision\" is not allowed here {by}"
            )],
        ),
        (
            pose,
            changed(json!({"capabilities": ["pose", "classification"]})),
            vec!["/capabilities/0 \"pose\" is not allowed here".to_owned()],
        ),
        (team, config(), vec![format!(" the file lacks `team` {by}")]),
        (team, changed(json!({"team": "Vision"})), vec![]),
        (
            team,
            changed(json!({"team": "vision"})),
            vec![format!(
                "/team \"vision\" does not match \"^[A-Z][a-z]+$\" {by}"
            )],
        ),
        (
            team,
            changed(json!({"team": [1]})),
            vec![format!("/team expected a string, found an array {by}")],
        ),
        (
            team,
            changed(json!({"taem": "Vision"})),
            vec!["/taem unknown key `taem`".to_owned()],
        ),
        (note, with_variant("x-note", json!("abc")), vec![]),
        (
            note,
            with_variant("x-note", json!("abcd")),
            vec![format!(
                "/variants/0/x-note \"abcd\" is longer than 3 characters {by}"
            )],
        ),
        (
            note,
            changed(json!({"x-note": "abc"})),
            vec!["/x-note unknown key `x-note`".to_owned()],
        ),
        (
            r#"{"required": ["size", "tokenizer", "license"]}"#,
            {
                let mut config = config();
                config.as_object_mut().expect("an object").remove("license");
                config
            },
            vec![
                " the file lacks `license`".to_owned(),
                format!(" the file lacks `size` and `tokenizer` {by}"),
            ],
        ),
        (
            r#"{"properties": {"variants": {"minItems": 2, "maxItems": 1}}}"#,
            config(),
            vec![format!("/variants must have at least 2 items {by}")],
        ),
        (
            r#"{"properties": {"variants": {"items": {"not": {"required": ["methods"]}}}}}"#,
            config(),
            vec![format!(
                "/variants/0 the object is not allowed for \"{{\"required\":[\"methods\"]}}\" {by}"
            )],
        ),
        (
            closed,
            json!({"model": "a", "backend": "xnnpack"}),
            vec![
                " the file lacks `$schema`, `family`, `capabilities`, `license` and `variants`"
                    .to_owned(),
                format!("/backend unknown key `backend` {by}"),
            ],
        ),
    ] {
        let tree = with(overlay, &config);
        let found = found(&tree, &["--select", "schema"]);
        let expected: Vec<String> = expected.iter().map(|one| format!("PKG004 {one}")).collect();
        assert_eq!(found, expected, "{overlay} {config}");
    }
}

#[test]
fn wrong_overlays_are_errors_of_the_settings() {
    let deep = |open: &str, close: &str| format!("{}true{}", open.repeat(40), close.repeat(40));
    let chain = |count: usize| {
        let definition = |i: usize| {
            format!(
                "\"d{i}\": {{\"allOf\": [{{\"$ref\": \"#/$defs/d{0}\"}}, {{\"$ref\": \"#/$defs/d{0}\"}}]}}",
                i + 1
            )
        };
        let all: Vec<String> = (0..count).map(definition).collect();
        format!(
            "{{\"$ref\": \"#/$defs/d0\", \"$defs\": {{{}, \"d{count}\": true}}}}",
            all.join(", ")
        )
    };
    let patterns = vec!["{\"pattern\": \"a\"}"; 201].join(", ");
    let cases: Vec<(String, &str)> = vec![
        ("{".to_owned(), "1:1: invalid JSON: "),
        ("{\"a\": 1,}".to_owned(), "1:8: invalid JSON: "),
        (
            "[]".to_owned(),
            "1:1: expected a JSON object, found another value",
        ),
        (
            "true".to_owned(),
            "1:1: expected a JSON object, found another value",
        ),
        (
            "{\"type\": \"strng\"}".to_owned(),
            "1:2 (/type): expected array, boolean, integer, null, number, object, string, found `strng`",
        ),
        (
            "{\"type\": 1}".to_owned(),
            "1:2 (/type): expected a string, found another value",
        ),
        (
            "{\n \"$ref\": \"https://example.com/a.json\"}".to_owned(),
            "2:2 (/$ref): expected a reference within the file, found `https://example.com/a.json`",
        ),
        (
            "{\"$ref\": \"other.json#/a\"}".to_owned(),
            "1:2 (/$ref): expected a reference within the file, found `other.json#/a`",
        ),
        (
            "{\"$ref\": \"file:///etc/passwd\"}".to_owned(),
            "1:2 (/$ref): expected a reference within the file, found `file:///etc/passwd`",
        ),
        (
            "{\"$ref\": \"#/$defs/none\"}".to_owned(),
            "1:2 (/$ref): expected a reference to a schema, found `#/$defs/none`",
        ),
        (
            "{\"$ref\": \"#\"}".to_owned(),
            "1:1: the references form a cycle",
        ),
        (
            "{\"$defs\": {\"a\": {\"items\": {\"$ref\": \"#/$defs/a\"}}}}".to_owned(),
            "1:12 (/$defs/a): the references form a cycle",
        ),
        (chain(20), "1:1: expected at most 5000 values, found "),
        (chain(60), "expected at most 32 nested schemas, found more"),
        (
            deep("{\"not\": ", "}"),
            "expected at most 32 nested schemas, found more",
        ),
        (
            format!("{{\"allOf\": [{patterns}]}}"),
            "1:1: expected at most 200 patterns, found 201",
        ),
        (
            "{\"pattern\": \"(?:[a-z]{1,900}){900}\"}".to_owned(),
            "1:13 (/pattern): expected a regular expression",
        ),
        (
            "{\"pattern\": \"^(?=a)\"}".to_owned(),
            "1:13 (/pattern): expected a regular expression",
        ),
        (
            "{\"pattern\": \"(\"}".to_owned(),
            "(/pattern): expected a regular expression",
        ),
        (
            "{\"format\": \"colour\"}".to_owned(),
            "1:2 (/format): expected a format of draft 2020-12, such as uri, date or email, found `colour`",
        ),
        (
            "{\"title\": \"a\", \"title\": \"b\"}".to_owned(),
            "(/title): duplicate key",
        ),
        (
            "{\"$schema\": \"http://json-schema.org/draft-07/schema#\"}".to_owned(),
            "1:2 (/$schema): expected https://json-schema.org/draft/2020-12/schema, found `http://json-schema.org/draft-07/schema#`",
        ),
        (
            "{\"not\": {\"$id\": \"a\"}}".to_owned(),
            "1:10 (/not/$id): expected it only at the root, found `a`",
        ),
        (
            "{\"propertes\": {}}".to_owned(),
            "1:2 (/propertes): unsupported keyword `propertes`",
        ),
        (
            "{\"unevaluatedProperties\": false}".to_owned(),
            "unsupported keyword `unevaluatedProperties`",
        ),
        (
            "{\"$dynamicRef\": \"#a\"}".to_owned(),
            "unsupported keyword `$dynamicRef`",
        ),
        (
            "{\"minItems\": -1}".to_owned(),
            "1:14 (/minItems): expected JSON Schema of draft 2020-12: the value is less than the minimum of 0",
        ),
        (
            "{\"required\": \"a\"}".to_owned(),
            "1:14 (/required): expected JSON Schema of draft 2020-12: the value is not of type \"array\"",
        ),
        (
            "{\"items\": [true]}".to_owned(),
            "1:2 (/items): expected a schema, found another value",
        ),
    ];
    let mut wrong = String::new();
    for (overlay, expected) in &cases {
        let tree = with(overlay, &config());
        let ran = run(&tree, &[]).expect_code(1);
        let found = ran.findings();
        let message = match &found[..] {
            [one] if one.code == "PKG053" && one.path == "pkgtool.toml" => one.message.as_str(),
            _ => "",
        };
        let is_named = message.starts_with("overlay.schema.json:");
        if !is_named || !message.contains(expected) {
            writeln!(
                wrong,
                "{overlay:.200}\n  expected {expected}\n  found    {found:?}"
            )
            .expect("a string");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn an_overlay_is_a_file_below_the_settings() {
    let large = format!("{{\"title\": \"{}\"}}", "a".repeat(1 << 20));
    let outside = Tree::new().file("a.json", "{\"required\": [\"secret\"]}");
    let tree = Tree::with_package()
        .file("large.json", large)
        .file("folder/a.json", "{}")
        .file("bytes.json", [0x22, 0xff, 0x22]);
    fs::create_dir(tree.path(".git")).expect("a directory");
    #[cfg(unix)]
    std::os::unix::fs::symlink(outside.path("a.json"), tree.path("link.json")).expect("a link");
    for (name, expected) in [
        ("none.json", "`none.json` does not exist"),
        (
            "folder",
            "`folder` is not a file: expected a JSON Schema, found a directory",
        ),
        (
            "large.json",
            "`large.json` is too large: expected at most 256 KiB",
        ),
        ("bytes.json", "`bytes.json` is not UTF-8"),
        (
            "../a.json",
            "expected a path below this directory, found `../a.json`",
        ),
        (
            "folder/../folder/a.json",
            "expected a path below this directory, found `folder/../folder/a.json`",
        ),
        (
            "/etc/hosts",
            "expected a path below this directory, found `/etc/hosts`",
        ),
        #[cfg(unix)]
        ("link.json", "`link.json` cannot be read: "),
        ("folder/a.json", ""),
        ("./folder/a.json", ""),
    ] {
        let tree_settings = format!("schema = \"{name}\"");
        fs::write(tree.path("pkgtool.toml"), tree_settings).expect("a file");
        let found = run(&tree, &[]).findings();
        let messages: Vec<&str> = found.iter().map(|one| one.message.as_str()).collect();
        match expected {
            "" => assert_eq!(messages, [""; 0], "{name}"),
            _ => assert!(
                messages.len() == 1 && messages[0].starts_with(expected),
                "{name}: {messages:?}"
            ),
        }
    }
}

#[test]
fn a_nested_overlay_only_tightens() {
    let pose = changed(json!({"capabilities": ["pose-estimation"], "team": "a"}));
    let overlay = r#"{"required": ["size"], "properties": {"team": {}, "capabilities": {"items": {"enum": ["pose-estimation"]}}}}"#;
    let tree = Tree::new()
        .package("a/xnnpack", &pose)
        .file("a/pkgtool.toml", SETTINGS)
        .file("a/overlay.schema.json", overlay);
    let all = |tree: &Tree, paths: &[&str]| found(tree, &[paths, &["--select", "schema"]].concat());
    let lacks = "PKG004  the file lacks `size` (overlay `a/overlay.schema.json`)";
    assert_eq!(all(&tree, &["a"]), [lacks], "the user named the package");
    let foreign = all(&tree, &["."]);
    assert_eq!(foreign.len(), 4, "{foreign:?}");
    assert!(
        foreign[0].starts_with("PKG053 /schema `schema` loosens"),
        "{foreign:?}"
    );
    assert_eq!(foreign[1], lacks);
    assert!(
        foreign[2].ends_with("unknown key `team`") || foreign[3].ends_with("unknown key `team`")
    );
    // The project's own overlay allows the same.
    let tree = tree
        .file("pkgtool.toml", SETTINGS)
        .file("overlay.schema.json", overlay);
    let both = all(&tree, &["."]);
    assert_eq!(
        both,
        ["PKG004  the file lacks `size` (overlay `overlay.schema.json`)"]
    );
    let shown = pkgtool(["validate", "--show-settings", "a"])
        .within(tree.root())
        .run()
        .stdout;
    assert!(
        shown.contains(
            "\nschema = \"overlay.schema.json\"\n# also schema = \"a/overlay.schema.json\"\n"
        ),
        "{shown}"
    );
}

#[test]
fn fixes_and_the_editor_know_overlays() {
    let overlay = r#"{"properties": {"team": {}, "capabilities": {"items": {"enum": ["pose-estimation", "vision"]}}}}"#;
    let mut wrong = changed(json!({"capabilities": ["Pose-Estimation"]}));
    let tree = with(overlay, &wrong);
    let path = tree.path(CONFIG);
    pkgtool(["fix"]).within(tree.root()).run().expect_code(0);
    let fixed: Value = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
    assert_eq!(fixed["capabilities"], json!(["pose-estimation"]));
    let mut editor = Editor::of(tree.root());
    wrong["capabilities"] = json!(["classification"]);
    editor.open(&path, &format!("{wrong:#}"));
    let findings = editor.findings(&path, Some(1));
    assert_eq!(findings.len(), 1, "{findings:?}");
    let message = findings[0]["message"].as_str().expect("a text");
    assert!(message.contains("(overlay `"), "{message}");
    let marked = "{ \"capabilities\": [\"po|\"] }";
    let answer = editor.ask_at("textDocument/completion", &path, marked);
    let items = answer["items"].as_array().expect("items");
    assert!(
        items.iter().any(|item| item["label"] == "pose-estimation"),
        "{items:?}"
    );
}

#[test]
fn hostile_overlays_take_bounded_time() {
    let text = "ab".repeat(1 << 19);
    let long = changed(json!({"license": text, "x": text}));
    let wide = changed(json!({"model": (0..50_000).collect::<Vec<u32>>()}));
    let many: Vec<String> = (0..2000)
        .map(|i| format!("{{\"maxItems\": {i}}}"))
        .collect();
    let many = format!(
        "{{\"properties\": {{\"model\": {{\"items\": {{\"allOf\": [{0}]}}, \"allOf\": [{0}]}}}}}}",
        many.join(", ")
    );
    let slow = "{\"pattern\": \"^(a|b|ab)*c[ab]{300}\"}";
    let patterns = format!(
        "{{\"properties\": {{\"license\": {{\"allOf\": [{}]}}}}}}",
        vec![slow; 100].join(", ")
    );
    let nested = "{\"properties\": {\"license\": {\"pattern\": \"^(([a-z])+.)+[A-Z]([a-z])+$\"}}}"
        .to_owned();
    for (overlay, config, expected) in [
        (
            &many,
            &wide,
            "the file is too large to be checked (overlay `overlay.schema.json`)",
        ),
        (
            &patterns,
            &long,
            "the file is too large to be checked (overlay `overlay.schema.json`)",
        ),
        (&nested, &long, "does not match"),
    ] {
        let tree = with(overlay, config);
        let started = Instant::now();
        let found = found(&tree, &["--select", "schema"]);
        assert!(
            found.iter().any(|one| one.contains(expected)),
            "{expected}: {found:.300?}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{:?}",
            started.elapsed()
        );
    }
}
