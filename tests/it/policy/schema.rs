//! Tests that the published JSON Schema of settings and their parser accept the same files.

use pkgtool_check::policy::{EXCEPTION_KEYS, PRECISION_KEYS, SCHEMA, SETTINGS_KEYS};
use serde_json::Value;

use super::run;
use crate::support::run::pkgtool;
use crate::support::tree::Tree;

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("JSON")
}

fn keys(pointer: &str) -> Vec<String> {
    let schema = schema();
    let members = schema
        .pointer(pointer)
        .and_then(Value::as_object)
        .expect("an object");
    let mut keys: Vec<String> = members.keys().cloned().collect();
    keys.sort();
    keys
}

#[test]
fn both_have_the_same_keys() {
    for (pointer, known) in [
        ("/properties", &SETTINGS_KEYS[..]),
        ("/properties/extra-precisions/properties", &PRECISION_KEYS),
        ("/$defs/exception/properties", &EXCEPTION_KEYS),
    ] {
        let mut known: Vec<&str> = known.to_vec();
        known.sort_unstable();
        assert_eq!(keys(pointer), known);
    }
    let config: Value = serde_json::from_str(pkgtool_check::validate::CONFIG_SCHEMA).expect("JSON");
    let schema = schema();
    assert_eq!(
        schema.pointer("/properties/require-capabilities/items"),
        config.pointer("/properties/capabilities/items")
    );
    let printed = pkgtool(["schema", "settings"]).run().expect_code(0).stdout;
    assert_eq!(printed, SCHEMA);
}

/// Converts TOML to the JSON that schema tools validate: dates and times become strings.
fn as_json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::from(*number),
        toml::Value::Boolean(answer) => Value::from(*answer),
        toml::Value::Datetime(moment) => Value::from(moment.to_string()),
        toml::Value::Array(elements) => elements.iter().map(as_json).collect(),
        toml::Value::Table(table) => table
            .iter()
            .map(|(key, value)| (key.clone(), as_json(value)))
            .collect(),
    }
}

#[test]
fn both_take_and_refuse_the_same() {
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(&schema())
        .expect("a schema");
    let right = [
        "",
        "description = 'x'",
        "root = '../.'",
        "select = []",
        "ignore = ['all', 'PKG0']",
        "[severity]\nall = 'off'",
        "[severity]\nfile-name = 'error'",
        "severity = {}",
        "[per-path-ignores]\n'a/**' = ['file']",
        "exclude = ['a', 'b/']",
        "respect-gitignore = false",
        "deny-warnings = true",
        "[extra-precisions]\nquantized = ['a_1']",
        "extra-precisions = {}",
        "schema-id = 'https://example.com/config.schema.json'",
        "allow-licenses = []",
        "allow-licenses = ['MIT']",
        "require-backends = ['qnn']",
        "require-capabilities = ['vision']",
        "exception = []",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = 'x'",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = 'x'\npointer = ''\nuntil = 2999-02-28",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = 'x'\npointer = '/a'\nuntil = '2999-02-28'",
    ];
    let wrong = [
        "x = 1",
        "Select = []",
        "description = 1",
        "root = ''",
        "root = 1",
        "root = 'a\\b'",
        "root = ' '",
        "select = 'all'",
        "select = [1]",
        "ignore = {}",
        "severity = 'off'",
        "[severity]\nall = 'loud'",
        "[severity]\nall = true",
        "per-path-ignores = []",
        "[per-path-ignores]\n'a' = 'file'",
        "exclude = 'a'",
        "exclude = [1]",
        "respect-gitignore = 'no'",
        "deny-warnings = 1",
        "[extra-precisions]\nquantised = ['a']",
        "[extra-precisions]\nquantized = ['A']",
        "[extra-precisions]\nquantized = ['']",
        "[extra-precisions]\nnon-quantized = 'a'",
        "schema = 1",
        "schema = ''",
        "schema = 'a\\b'",
        "schema-id = 'no uri'",
        "schema-id = 1",
        "allow-licenses = 'MIT'",
        "allow-licenses = ['']",
        "allow-licenses = [1]",
        "require-backends = ['cpu']",
        "require-backends = 'qnn'",
        "require-capabilities = ['x']",
        "baseline = 1",
        "baseline = ''",
        "exception = 1",
        "exception = [1]",
        "[exception]\nfile = 'a'",
        "[[exception]]\nrule = 'file-name'\nreason = 'x'",
        "[[exception]]\nfile = 'a'\nreason = 'x'",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = ' '",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = 1",
        "[[exception]]\nfile = 'a'\nrule = 1\nreason = 'x'",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = 'x'\npointer = 'a'",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = 'x'\nuntil = 1",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = 'x'\nuntil = 'soon'",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = 'x'\nuntil = 2999-01-01T00:00:00Z",
        "[[exception]]\nfile = 'a'\nrule = 'file-name'\nreason = 'x'\nwhy = 'x'",
    ];
    let all = right
        .iter()
        .map(|one| (one, true))
        .chain(wrong.iter().map(|one| (one, false)));
    for (settings, is_right) in all {
        let value = settings.parse::<toml::Table>().expect("TOML");
        let value = as_json(&toml::Value::Table(value));
        assert_eq!(
            validator.is_valid(&value),
            is_right,
            "the schema: {settings}"
        );
        let tree = Tree::with_package().file("pkgtool.toml", settings);
        let found = run(&tree, &[]).findings();
        let takes = found.iter().all(|one| one.code != "PKG053");
        assert_eq!(takes, is_right, "the reader: {settings}: {found:?}");
    }
}
