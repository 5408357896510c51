//! The schema checks compared with the specification.
//!
//! The cases are a valid config and every single violation of a row in the specification's tables.
//! Each violation gives exactly one finding, at the place of the fault. The published JSON schemas
//! reject the same files.

use std::fmt::Write;

use serde_json::{Value, json};

use super::schema_cases::{CASES_OF_A_CONFIG, CASES_OF_A_LIST, Case, Edit};
use crate::support::fixture;
use crate::support::run::{Found, pkgtool};
use crate::support::tree::{MODEL, Tree, signature};

/// Rules whose findings the JSON schema also rejects.
const SCHEMA_RULES: [&str; 4] = ["PKG004", "PKG005", "PKG007", "PKG011"];

/// A config that uses every field.
fn full_config() -> Value {
    let mut named = signature();
    named["inputs"][0]["name"] = json!("x");
    json!({
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": "tiny",
        "family": "tiny",
        "size": "s",
        "capabilities": ["classification", "vision"],
        "backend": "xnnpack",
        "license": "MIT",
        "tokenizer": "tokenizer.json",
        "tokenizer_config": "tokenizer.json",
        "variants": [
            {
                "precision": "fp32",
                "file": MODEL,
                "size_bytes": 2576,
                "methods": { "forward": named },
            },
            {
                "precision": "int8",
                "file": null,
                "components": {
                    "encoder": "tiny_encoder_xnnpack_int8.pte",
                    "decoder": "tiny_decoder_xnnpack_int8.pte",
                },
                "methods": {
                    "encoder": { "forward": signature() },
                    "decoder": { "forward": signature() },
                },
            },
        ],
    })
}

fn full_list() -> Value {
    json!({
        "$schema": "https://pkgtool.dev/schemas/precisions.schema.json",
        "description": "For tests.",
        "quantized": ["int8", "8da4w"],
        "non_quantized": ["fp32", "fp16"],
    })
}

fn edited(mut value: Value, edit: &Edit) -> Value {
    let (pointer, new) = match edit {
        Edit::Set(pointer, text) => {
            let new: Value = serde_json::from_str(text).expect("a case is JSON");
            (*pointer, Some(new))
        }
        Edit::Remove(pointer) => (*pointer, None),
    };
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return new.expect("the root is replaced, not removed");
    };
    let parent = value.pointer_mut(parent).expect("the parent of an edit");
    match (parent, new) {
        (Value::Object(object), Some(new)) => {
            object.insert(last.to_owned(), new);
        }
        (Value::Object(object), None) => {
            object.remove(last).expect("a key to remove");
        }
        (Value::Array(array), Some(new)) => {
            let index: usize = last.parse().expect("an index");
            if index < array.len() {
                array[index] = new;
            } else {
                array.push(new);
            }
        }
        _ => panic!("{pointer} cannot be edited"),
    }
    value
}

fn findings_by_case(name: &str, base: &Value, cases: &[Case]) -> Vec<Vec<Found>> {
    let program = std::fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture");
    let mut tree = Tree::new();
    for (number, case) in cases.iter().enumerate() {
        let directory = format!("{number:03}/xnnpack");
        let value = edited(base.clone(), &case.edit);
        tree = tree.json(&format!("{directory}/{name}"), &value);
        if name == "config.json" {
            tree = tree
                .file(&format!("{directory}/tokenizer.json"), "{}")
                .file(&format!("{directory}/{MODEL}"), &program)
                .file(
                    &format!("{directory}/tiny_encoder_xnnpack_int8.pte"),
                    &program,
                )
                .file(
                    &format!("{directory}/tiny_decoder_xnnpack_int8.pte"),
                    &program,
                );
        }
    }
    let arguments = ["validate", "--format", "json", "--no-model"];
    let found = pkgtool(arguments).within(tree.root()).run().findings();
    let of_case = |number: usize| {
        let directory = format!("{number:03}/");
        let own = found
            .iter()
            .filter(|found| found.path.starts_with(&directory));
        own.cloned().collect()
    };
    (0..cases.len()).map(of_case).collect()
}

fn check(name: &str, base: &Value, cases: &[Case]) {
    let mut wrong = String::new();
    for (case, found) in cases.iter().zip(findings_by_case(name, base, cases)) {
        let real: Vec<_> = found
            .iter()
            .map(|f| (f.code.as_str(), f.pointer.as_str(), f.message.as_str()))
            .collect();
        let expected = match case.code {
            "" => Vec::new(),
            _ => vec![(case.code, case.pointer, case.message)],
        };
        if real != expected {
            writeln!(
                wrong,
                "{:?}\n  expected {expected:?}\n  found    {real:?}",
                case.edit
            )
            .expect("a string");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn check_published_schema(schema: &str, base: &Value, cases: &[Case]) {
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    jsonschema::meta::validate(&schema).expect("the schema follows its meta-schema");
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(&schema)
        .expect("a schema");
    assert!(validator.is_valid(base), "the base config must be valid");
    for case in cases {
        let refused = SCHEMA_RULES.contains(&case.code);
        let valid = validator.is_valid(&edited(base.clone(), &case.edit));
        assert_eq!(valid, !refused, "{:?}", case.edit);
    }
}

/// Replaces each value of `base` in turn with values of every kind, removes each key, and adds an
/// unknown key to each object.
///
/// The tool must find a schema fault exactly where `jsonschema` rejects the value.
fn check_everywhere(name: &str, schema: &str, base: &Value) {
    const OTHERS: &str = r#"[null, true, 0, -1, 1.0, 1.5, 1e300, "", "a", "A", "a b", "https://a", "a:b c",
        "int8", [], ["a"], ["vision"], ["vision", "vision"], [1, -2.0], {}, {"a": 1}, {"inputs": []}]"#;
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let options = jsonschema::options().should_validate_formats(true);
    let validator = options.build(&schema).expect("a schema");
    let others: Value = serde_json::from_str(OTHERS).expect("JSON");
    let mut values = Vec::new();
    // Skips the root: validation ignores files whose root is not an object, and separate cases
    // cover them.
    for pointer in pointers(base).into_iter().skip(1) {
        for other in others.as_array().expect("a list") {
            let mut value = base.clone();
            *value.pointer_mut(&pointer).expect("the pointer exists") = other.clone();
            values.push(value);
        }
        let mut without = base.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
        match without.pointer_mut(parent).expect("the parent exists") {
            Value::Object(object) => drop(object.remove(key)),
            Value::Array(array) => drop(array.pop()),
            _ => {}
        }
        values.push(without);
        let mut with = base.clone();
        if let Some(Value::Object(object)) = with.pointer_mut(&pointer) {
            object.insert("extra".to_owned(), json!(1));
        }
        values.push(with);
    }
    assert!(values.len() > 100);
    let mut tree = Tree::new();
    for (number, value) in values.iter().enumerate() {
        tree = tree.json(&format!("{number:05}/xnnpack/{name}"), value);
    }
    let arguments = ["validate", "--format", "json", "--no-model"];
    let found = pkgtool(arguments).within(tree.root()).run().findings();
    for (number, value) in values.iter().enumerate() {
        let directory = format!("{number:05}/");
        let refused = found.iter().any(|found| {
            found.path.starts_with(&directory) && SCHEMA_RULES.contains(&found.code.as_str())
        });
        assert_eq!(refused, !validator.is_valid(value), "{value:#}");
    }
}

/// Returns the pointers of a value and of everything in it.
fn pointers(value: &Value) -> Vec<String> {
    let below = |key: String, value: &Value| {
        let inner = pointers(value).into_iter();
        inner
            .map(move |rest| format!("/{key}{rest}"))
            .collect::<Vec<_>>()
    };
    let mut all = vec![String::new()];
    match value {
        Value::Object(object) => {
            all.extend(
                object
                    .iter()
                    .flat_map(|(key, value)| below(key.clone(), value)),
            );
        }
        Value::Array(array) => {
            let values = array.iter().enumerate();
            all.extend(values.flat_map(|(index, value)| below(index.to_string(), value)));
        }
        _ => {}
    }
    all
}

fn printed_schema(what: &str) -> String {
    pkgtool(["schema", what]).run().expect_code(0).stdout
}

#[test]
fn each_fault_of_a_config_is_one_finding() {
    check("config.json", &full_config(), CASES_OF_A_CONFIG);
}

#[test]
fn each_fault_of_a_list_is_one_finding() {
    check("precisions.json", &full_list(), CASES_OF_A_LIST);
}

#[test]
fn the_published_config_schema_refuses_the_same() {
    let schema = printed_schema("config");
    check_published_schema(&schema, &full_config(), CASES_OF_A_CONFIG);
}

#[test]
fn the_published_list_schema_refuses_the_same() {
    let schema = printed_schema("precisions");
    check_published_schema(&schema, &full_list(), CASES_OF_A_LIST);
    let list: Value = serde_json::from_str(&printed_schema("precision-list")).expect("JSON");
    check_published_schema(&schema, &list, &[]);
}

#[test]
fn every_value_at_every_place_is_judged_as_by_another_validator() {
    check_everywhere("config.json", &printed_schema("config"), &full_config());
    check_everywhere(
        "precisions.json",
        &printed_schema("precisions"),
        &full_list(),
    );
}
