//! Every style of template with every conversation, compared with `transformers`.
//!
//! `tests/text/templates/generate.py` records the rendered text, the error that a template raises,
//! or another Python error.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pkgtool_text::template::{Conversation, TemplateError};
use serde_json::{Map, Value};

use super::{json_of_fixtures, no_variables, renderer, style};

/// The date that the generator uses, at noon, so that it is the same day in nearly all time zones.
fn noon() -> SystemTime {
    UNIX_EPOCH + Duration::from_hours(487_092)
}

fn conversation(case: &Value, tools: &Value) -> Conversation {
    let tools = tools.as_array().expect("a list");
    let variables = case.get("variables").and_then(Value::as_object);
    Conversation {
        messages: case["messages"].as_array().expect("a list").clone(),
        tools: case.get("tools").map(|_| tools.clone()),
        add_generation_prompt: case.get("add_generation_prompt") != Some(&Value::Bool(false)),
        variables: variables.cloned().unwrap_or_else(no_variables),
    }
}

#[test]
fn templates_render_as_transformers_renders_them() {
    let conversations = json_of_fixtures("conversations.json");
    let conversations = conversations.as_array().expect("a list");
    let tools = json_of_fixtures("tools.json");
    let golden = json_of_fixtures("golden.json");
    let golden: &Map<String, Value> = golden.as_object().expect("an object");
    let renderer = renderer();
    let mut count = 0;
    for (name, cases) in golden {
        let template = style(name);
        for case in conversations {
            let named = case["name"].as_str().expect("a name");
            let outcome = renderer.render_at(&template, &conversation(case, &tools), noon());
            match (&cases[named], outcome) {
                (Value::String(text), Ok(prompt)) => {
                    assert_eq!(&prompt, text, "{name}, {named}");
                }
                (Value::Object(said), Err(TemplateError::Raised { message, line, .. })) => {
                    assert_eq!(said["raised"], message, "{name}, {named}");
                    assert!(line.is_some(), "{name}, {named}");
                }
                (Value::Null, Err(TemplateError::Failed { .. })) => {}
                (expected, outcome) => panic!("{name}, {named}: {outcome:?}, not {expected:?}"),
            }
            count += 1;
        }
    }
    assert_eq!(count, golden.len() * conversations.len());
    assert!(count >= 280, "{count}");
}
