//! Tests of `pkgtool init`: configs generated from model files alone, compared with hand-written
//! ones.

mod around;
mod asked;
mod examples;
mod given;
mod programs;
mod settings;

use std::path::Path;

use serde_json::Value;

use crate::support::run::{Ran, pkgtool};

/// Answers to the questions that model files leave open.
const SAID: [&str; 6] = [
    "--family",
    "tiny",
    "--license",
    "MIT",
    "--capability",
    "vision",
];

/// Runs `pkgtool init DIRECTORY --format json` with more arguments.
fn init(directory: &Path, more: &[&str]) -> Ran {
    let directory = directory.to_str().expect("a path in UTF-8");
    let arguments = ["init", directory, "--format", "json"];
    pkgtool(arguments.iter().chain(more)).run()
}

/// Reads a JSON file.
fn read(path: &Path) -> Value {
    let shown = path.display();
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{shown}: {error}"))
}

/// Removes the names that an author gave to tensors.
fn without_names(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            if members.contains_key("shape") {
                members.shift_remove("name");
            }
            let members = members.iter_mut();
            members.for_each(|(_, member)| *member = without_names(member.take()));
        }
        Value::Array(elements) => {
            let elements = elements.iter_mut();
            elements.for_each(|element| *element = without_names(element.take()));
        }
        _ => {}
    }
    value
}
