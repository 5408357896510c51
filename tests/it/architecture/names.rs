//! Keeps names of types apart, so that a search for a name finds one type.

use std::collections::BTreeMap;

use regex::Regex;

use super::{SourceFile, sources};

/// End of the names of files that replace a module in builds without its feature. They define the
/// types of that module again.
const STAND_IN: &str = "_absent.rs";

/// Names that several types may have, each with the reason. A type with a name of its own in the
/// OpenAPI document has `#[schema(as = …)]` instead.
const SHARED: &[(&str, &str)] = &[("Cut", "one type for each kind of system")];

/// Returns the names of the types that a source defines outside of its test modules. Associated
/// types are indented aliases.
fn types(text: &str) -> Vec<String> {
    let definition = Regex::new(
        r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:unsafe )?(struct|enum|trait|union|type) ([A-Za-z]\w*)",
    )
    .expect("a valid pattern");
    let mut names = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let item = lines.by_ref().find(|line| !line.trim().starts_with("#["));
            if let Some(item) = item.filter(|item| item.ends_with('{')) {
                let indent = item.len() - item.trim_start().len();
                let end = format!("{}}}", &item[..indent]);
                lines.by_ref().find(|line| *line == end);
            }
        } else if let Some(found) = definition.captures(line)
            && (found[1].is_empty() || &found[2] != "type")
        {
            names.push(found[3].to_owned());
        }
    }
    names
}

fn is_compared(file: &SourceFile) -> bool {
    !file.path.to_string_lossy().ends_with(STAND_IN)
}

#[test]
fn a_type_name_is_defined_once() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources().iter().filter(|file| is_compared(file)) {
        for name in types(&file.text) {
            let path = file.path.display().to_string();
            files.entry(name).or_default().push(path);
        }
    }
    assert!(files.len() > 500, "the search finds the types");
    files.retain(|name, files| files.len() > 1 && !SHARED.iter().any(|(it, _)| it == name));
    assert!(files.is_empty(), "names of more than one type: {files:#?}");
}

#[test]
fn types_outside_of_tests_are_seen() {
    let text = "pub(super) struct A<'a>(&'a str);\nimpl Iterator for A<'_> {\n    type Item = u8;\n}\n\
                fn f() {\n    enum B {}\n}\ntype C = u8;\n#[cfg(test)]\nmod tests {\n    struct D;\n}\ntrait E {}\n";
    assert_eq!(types(text), ["A", "B", "C", "E"]);
}
