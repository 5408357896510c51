//! Lenient JSON (comments, trailing commas, single quotes) and its conversion to strict JSON.

use pkgtool_base::source::edit::apply;
use pkgtool_base::source::{Document, strict};
use proptest::prelude::*;
use serde_json::Value;

/// A value, and its text with comments, trailing commas and single quotes.
fn lenient() -> impl Strategy<Value = (String, Value)> {
    let text = "[a-z '/*,ë]{0,5}";
    let leaf = prop_oneof![
        Just(("true".to_owned(), Value::Bool(true))),
        Just(("None".to_owned(), Value::Null)),
        any::<i32>().prop_map(|number| (number.to_string(), Value::from(number))),
        text.prop_map(|text| (Value::from(text.as_str()).to_string(), Value::from(text))),
        text.prop_map(|text| (
            format!("'{}'", text.replace('\'', "\\'")),
            Value::from(text)
        )),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let gaps = prop_oneof![
            Just(""),
            Just(" // one\n"),
            Just("/* {[, */"),
            Just("\n  // a line\n  "),
            Just("\r\n"),
        ];
        let items = prop::collection::vec((inner.clone(), gaps.clone()), 0..4);
        let members = prop::collection::vec(("[a-z_]{1,4}", inner, gaps), 0..4);
        prop_oneof![
            items.prop_map(|items| {
                let texts = items.iter().map(|((text, _), gap)| format!("{text}{gap},"));
                let text = texts.collect::<Vec<_>>().concat();
                let values: Vec<Value> = items.into_iter().map(|((_, value), _)| value).collect();
                (format!("[{text}]"), Value::from(values))
            }),
            members.prop_map(|members| {
                let texts = members
                    .iter()
                    .map(|(key, (text, _), gap)| format!("{gap}{key}: {text}, "));
                let text = texts.collect::<Vec<_>>().concat();
                let object = members
                    .into_iter()
                    .map(|(key, (_, value), _)| (key, value))
                    .collect();
                (format!("{{{text}}}"), Value::Object(object))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn liberties_are_taken_back_and_nothing_else((text, value) in lenient(), mark in any::<bool>()) {
        let text = if mark { format!("\u{feff}{text}") } else { text };
        match strict(&text) {
            None => prop_assert!(Document::parse(&text).is_ok(), "{}", text),
            Some(made) => {
                let after = apply(&text, &made.edits).expect("the edits fit");
                let parsed = Document::parse(&after).map_err(|error| TestCaseError::fail(error.to_string()))?;
                prop_assert_eq!(parsed.root.to_value(), value, "{}", text);
                prop_assert_eq!(strict(&after), None);
            }
        }
    }

    #[test]
    fn any_text_is_read_to_its_end(text in "[\u{feff}{}\\[\\],:'\"/* a1\\\\\nT#]{0,40}") {
        if let Some(made) = strict(&text) {
            let after = apply(&text, &made.edits).expect("the edits fit");
            prop_assert!(Document::parse(&after).is_ok(), "{:?} became {:?}", text, after);
        }
    }
}
