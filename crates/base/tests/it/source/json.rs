//! The JSON parser with positions, compared with `serde_json`: equal values and correct spans.

use pkgtool_base::source::Document;
use pkgtool_base::source::json::{JsonValue, Node};
use proptest::prelude::*;
use serde_json::Value;

use pkgtool_testing::mutate::{JsonPart, changes};

const TEXT: &str =
    r#"{"a": [1, -2.5e3, true, null, "ë\u00e9\n"], "b": {"c": {}, "d": []}, "": "x"}"#;

/// Checks the guarantees of `Document::parse(text)`.
fn agrees(text: &str) -> Result<(), TestCaseError> {
    let value = serde_json::from_str::<Value>(text);
    match (Document::parse(text), value) {
        (Ok(document), Ok(value)) => {
            prop_assert_eq!(&document.root.to_value(), &value);
            node_agrees(&document.root, &value, text)
        }
        (Err(error), Err(_)) => {
            let span = error.span;
            prop_assert!(
                span.start <= span.end && span.end <= text.len(),
                "{error:?}"
            );
            prop_assert!(text.is_char_boundary(span.start), "{error:?} in {text:?}");
            Ok(())
        }
        (ours, theirs) => {
            prop_assert!(false, "{text:?}: {ours:?} but {theirs:?}");
            Ok(())
        }
    }
}

fn node_agrees(node: &Node, value: &Value, text: &str) -> Result<(), TestCaseError> {
    let own = &text[node.span.start..node.span.end];
    prop_assert_eq!(&serde_json::from_str::<Value>(own).expect("JSON"), value);
    match (&node.kind, value) {
        (JsonValue::Array(elements), Value::Array(values)) => {
            for (element, value) in elements.iter().zip(values) {
                node_agrees(element, value, text)?;
            }
        }
        (JsonValue::Object(members), Value::Object(values)) => {
            prop_assert_eq!(members.effective().count(), values.len());
            for member in members.effective() {
                let key = &text[member.key_span.start..member.key_span.end];
                prop_assert_eq!(
                    &serde_json::from_str::<String>(key).expect("a key"),
                    &member.key
                );
                node_agrees(&member.value, &values[member.key.as_str()], text)?;
            }
        }
        (JsonValue::String(own), Value::String(value)) => prop_assert_eq!(own, value),
        _ => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_text(text in any::<String>()) {
        agrees(&text)?;
    }

    #[test]
    fn jsonish_text(text in r#"([\[\]{},: \n\t]|"a"|"\\u00e9"|"\\ud800"|-?[0-9]{1,3}|1\.5|1e9|1e999|\.|true|nul|null|'|//|\\|"|é|\u{feff}|\u{7f}|\u{1})*"#) {
        agrees(&text)?;
    }

    #[test]
    fn strings(inside in r#"([a-c😀]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}|\\u[dD][89abcdefAC][0-9]{2}|\\[a-zA-Z0']|[\u{0}-\u{20}]){0,6}"#) {
        agrees(&format!("\"{inside}\""))?;
    }

    #[test]
    fn numbers(text in "[-+]?[0-9]{0,3}[.]?[0-9]{0,2}([eE][-+]?[0-9]{0,4})?") {
        agrees(&text)?;
    }

    #[test]
    fn changed_text(
        changes in changes(),
        letters in prop::collection::vec((any::<prop::sample::Index>(), r#"["{}\[\],:\\ 0-9e.\-]|é"#), 0..3),
    ) {
        let mut tree = JsonPart::parse(TEXT);
        for (at, change) in &changes {
            tree.apply(*at, change);
        }
        let mut text: Vec<char> = tree.text().chars().collect();
        for (at, letter) in &letters {
            let at = at.index(text.len());
            text[at] = letter.chars().next().expect("a letter");
        }
        agrees(&text.into_iter().collect::<String>())?;
    }
}
