//! Fuzzes the JSON parser with positions and compares it with `serde_json`: same accepted texts,
//! same values, correct spans.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pkgtool_base::source::Document;
use pkgtool_base::source::json::{JsonValue, Node};
use serde_json::Value;

fuzz_target!(|text: &str| {
    let value = serde_json::from_str::<Value>(text);
    match Document::parse(text) {
        Ok(document) => {
            let value = value.expect("only valid JSON is accepted");
            assert_eq!(document.root.to_value(), value);
            check(&document.root, &value, text);
        }
        Err(error) => {
            assert!(value.is_err(), "refused JSON: {error:?}");
            let span = error.span;
            assert!(
                span.start <= span.end && span.end <= text.len(),
                "{error:?}"
            );
        }
    }
});

fn check(node: &Node, value: &Value, text: &str) {
    let own = &text[node.span.start..node.span.end];
    assert_eq!(&serde_json::from_str::<Value>(own).expect("JSON"), value);
    match (&node.kind, value) {
        (JsonValue::Array(elements), Value::Array(values)) => {
            assert_eq!(elements.len(), values.len());
            for (element, value) in elements.iter().zip(values) {
                check(element, value, text);
            }
        }
        (JsonValue::Object(members), Value::Object(values)) => {
            assert_eq!(members.effective().count(), values.len());
            for member in members.effective() {
                check(&member.value, &values[member.key.as_str()], text);
            }
        }
        _ => {}
    }
}
