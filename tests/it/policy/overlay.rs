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

const POSE: &str = r#"{"properties": {"capabilities": {"items": {"enum": ["pose-estimation", "classification"]}}}}"#;
const TEAM: &str = r##"{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/team",
    "required": ["team"], "properties": {"team": {"$ref": "#/$defs/team"}},
    "$defs": {"team": {"type": "string", "pattern": "^[A-Z][a-z]+$"}}}"##;
const NOTE: &str = r##"{"properties": {"variants": {"items": {"$ref": "#/$defs/v"}}},
    "$defs": {"v": {"properties": {"x-note": {"maxLength": 3}, "n": {"uniqueItems": true}}}}}"##;

/// Overlays, changes to the members of a valid config (null removes one), and the findings. In a
/// finding, `@` names the overlay.
const RIGHT: &[(&str, &str, &[&str])] = &[
    ("{}", "{}", &[]),
    (POSE, "{}", &[]),
    (POSE, r#"{"capabilities": ["pose-estimation"]}"#, &[]),
    (
        POSE,
        r#"{"capabilities": ["vision"]}"#,
        &["/capabilities/0 \"vision\" is not allowed here@"],
    ),
    (
        POSE,
        r#"{"capabilities": ["pose", "classification"]}"#,
        &["/capabilities/0 \"pose\" is not allowed here"],
    ),
    (TEAM, "{}", &[" the file lacks `team`@"]),
    (TEAM, r#"{"team": "Vision"}"#, &[]),
    (
        TEAM,
        r#"{"team": "vision"}"#,
        &["/team \"vision\" does not match \"^[A-Z][a-z]+$\"@"],
    ),
    (
        TEAM,
        r#"{"team": [1]}"#,
        &["/team expected a string, found an array@"],
    ),
    (TEAM, r#"{"taem": "Vision"}"#, &["/taem unknown key `taem`"]),
    (
        NOTE,
        r#"{"/variants/0/x-note": "abc", "/variants/0/n": [1, 2]}"#,
        &[],
    ),
    (
        NOTE,
        r#"{"/variants/0/x-note": "abcd"}"#,
        &["/variants/0/x-note \"abcd\" is longer than 3 characters@"],
    ),
    (
        NOTE,
        r#"{"/variants/0/n": [1, 2, 1.0]}"#,
        &["/variants/0/n the elements must differ@"],
    ),
    (
        NOTE,
        r#"{"x-note": "abc"}"#,
        &["/x-note unknown key `x-note`"],
    ),
    (
        r#"{"required": ["size", "tokenizer", "license"]}"#,
        r#"{"license": null}"#,
        &[
            " the file lacks `license`",
            " the file lacks `size` and `tokenizer`@",
        ],
    ),
    (
        r#"{"anyOf": [{"required": ["size"]}, false], "properties": {"model": false}}"#,
        "{}",
        &[
            " the object is not valid under any of the schemas listed in the 'anyOf' keyword@",
            "/model \"tiny\" is not allowed here@",
        ],
    ),
    (
        r#"{"properties": {"variants": {"minItems": 2, "maxItems": 1}}}"#,
        "{}",
        &["/variants must have at least 2 items@"],
    ),
    (
        r#"{"properties": {"variants": {"items": {"not": {"required": ["methods"]}}}}}"#,
        "{}",
        &["/variants/0 the object satisfies a schema that `not` excludes@"],
    ),
    (
        r#"{"additionalProperties": false, "properties": {"model": {}}}"#,
        r#"{"$schema": null, "family": null, "capabilities": null, "license": null, "variants": null}"#,
        &[
            " the file lacks `$schema`, `family`, `capabilities`, `license` and `variants`",
            "/backend unknown key `backend`@",
        ],
    ),
];

/// Overlays, and the message about each after the file's name.
const WRONG: &[(&str, &str)] = &[
    ("{", "1:1: invalid JSON: "),
    (r#"{"a": 1,}"#, "1:8: invalid JSON: "),
    ("[]", "1:1: expected a JSON object, found another value"),
    ("true", "1:1: expected a JSON object, found another value"),
    (
        r#"{"type": "strng"}"#,
        "1:2 (/type): expected array, boolean, integer, null, number, object, string, found `strng`",
    ),
    (
        r#"{"type": 1}"#,
        "1:2 (/type): expected a string, found another value",
    ),
    (
        "{\n \"$ref\": \"https://example.com/a.json\"}",
        "2:2 (/$ref): expected a reference within the file, found `https://example.com/a.json`",
    ),
    (
        r#"{"$ref": "other.json#/a"}"#,
        "1:2 (/$ref): expected a reference within the file, found `other.json#/a`",
    ),
    (
        r#"{"$ref": "file:///etc/passwd"}"#,
        "1:2 (/$ref): expected a reference within the file, found `file:///etc/passwd`",
    ),
    (
        r##"{"$ref": "#/$defs/none"}"##,
        "1:2 (/$ref): expected a reference to a schema, found `#/$defs/none`",
    ),
    (r##"{"$ref": "#"}"##, "1:1: the references form a cycle"),
    (
        r##"{"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}"##,
        "1:12 (/$defs/a): the references form a cycle",
    ),
    (
        r#"{"pattern": "(?:[a-z]{1,900}){900}"}"#,
        "1:13 (/pattern): expected a regular expression",
    ),
    (
        r#"{"pattern": "^(?=a)"}"#,
        "1:13 (/pattern): expected a regular expression",
    ),
    (
        r#"{"pattern": "("}"#,
        "1:13 (/pattern): expected a regular expression",
    ),
    (
        r#"{"format": "colour"}"#,
        "1:2 (/format): expected a format of draft 2020-12, such as uri, date or email, found `colour`",
    ),
    (r#"{"title": "a", "title": "b"}"#, "(/title): duplicate key"),
    (
        r#"{"$schema": "http://json-schema.org/draft-07/schema#"}"#,
        "1:2 (/$schema): expected https://json-schema.org/draft/2020-12/schema, found `http://json-schema.org/draft-07/schema#`",
    ),
    (
        r#"{"not": {"$id": "a"}}"#,
        "1:10 (/not/$id): expected it only at the root, found `a`",
    ),
    (
        r#"{"propertes": {}}"#,
        "1:2 (/propertes): unsupported keyword `propertes`",
    ),
    (
        r#"{"unevaluatedProperties": false}"#,
        "1:2 (/unevaluatedProperties): unsupported keyword `unevaluatedProperties`",
    ),
    (
        r##"{"$dynamicRef": "#a"}"##,
        "1:2 (/$dynamicRef): unsupported keyword `$dynamicRef`",
    ),
    (
        r#"{"minItems": -1}"#,
        "1:14 (/minItems): expected JSON Schema of draft 2020-12: the value is less than the minimum of 0",
    ),
    (
        r#"{"required": "a"}"#,
        "1:14 (/required): expected JSON Schema of draft 2020-12: the value is not of type \"array\"",
    ),
    (
        r#"{"items": [true]}"#,
        "1:2 (/items): expected a schema, found another value",
    ),
];

/// Returns a schema with `count` definitions, each of which refers to the next one twice.
fn doubling(count: usize) -> String {
    let twice = |i: usize| {
        let next = format!("{{\"$ref\": \"#/$defs/d{}\"}}", i + 1);
        format!("\"d{i}\": {{\"allOf\": [{next}, {next}]}}")
    };
    let all: Vec<String> = (0..count).map(twice).collect();
    let all = all.join(", ");
    format!(
        "{{\"$ref\": \"#/$defs/d0\", \"$defs\": {{{all}, \"d{count}\": {{\"required\": [\"size\"]}}}}}}"
    )
}

/// Returns a value within this number of opening and closing parts.
fn nested(open: &str, close: &str, count: usize) -> String {
    format!("{}true{}", open.repeat(count), close.repeat(count))
}

fn apply(changes: &str) -> Value {
    let mut config = config();
    let changes: Value = serde_json::from_str(changes).expect("JSON");
    for (key, value) in changes.as_object().expect("an object") {
        let (parent, key) = key.rsplit_once('/').unwrap_or(("", key));
        let parent = config.pointer_mut(parent).and_then(Value::as_object_mut);
        let parent = parent.expect("an object");
        match value {
            Value::Null => drop(parent.remove(key)),
            value => drop(parent.insert(key.to_owned(), value.clone())),
        }
    }
    config
}

#[test]
fn overlays_add_keys_and_capabilities_and_tighten_the_rest() {
    let items = nested("{\"properties\": {\"variants\": {\"items\": ", "}}}", 15);
    let chain = doubling(6);
    let deep: [(&str, &str, &[&str]); 2] = [
        (&items, "{}", &[]),
        (&chain, "{}", &[" the file lacks `size`@"]),
    ];
    for (overlay, changes, expected) in RIGHT.iter().chain(&deep) {
        let tree = with(overlay, &apply(changes));
        let found = found(&tree, &["--select", "schema"]);
        let by = " (overlay `overlay.schema.json`)";
        let expected = expected
            .iter()
            .map(|one| format!("PKG004 {}", one.replace('@', by)));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{overlay} {changes}");
    }
}

#[test]
fn wrong_overlays_are_errors_of_the_settings() {
    let patterns = vec!["{\"pattern\": \"a\"}"; 201].join(", ");
    let patterns = format!("{{\"allOf\": [{patterns}]}}");
    let (wide, long, deep) = (doubling(15), doubling(60), nested("{\"not\": ", "}", 40));
    let large = [
        (wide.as_str(), "1:1: expected at most 5000 values, found "),
        (&long, "expected at most 32 nested schemas, found more"),
        (&deep, "expected at most 32 nested schemas, found more"),
        (&patterns, "1:1: expected at most 200 patterns, found 201"),
    ];
    let mut wrong = String::new();
    for (overlay, expected) in WRONG.iter().chain(&large) {
        let tree = with(overlay, &config());
        let found = run(&tree, &[]).expect_code(1).findings();
        let message = match &found[..] {
            [one] if one.code == "PKG053" && one.path == "pkgtool.toml" => one.message.as_str(),
            _ => "",
        };
        if !message.starts_with("overlay.schema.json:") || !message.contains(expected) {
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
    let pose = apply(r#"{"capabilities": ["pose-estimation"], "team": "a"}"#);
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
    let mut wrong = apply(r#"{"capabilities": ["Pose-Estimation"]}"#);
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
    let long = apply(&json!({ "license": text, "x": text }).to_string());
    let wide = apply(&json!({ "model": vec![0; 50_000] }).to_string());
    let many: Vec<String> = (0..1000)
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
            started.elapsed() < Duration::from_mins(1),
            "{:?}",
            started.elapsed()
        );
    }
}
