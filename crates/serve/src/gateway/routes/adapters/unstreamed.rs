//! Converts the whole answer of a service that does not stream into server-sent events.
//!
//! Invariant: a client that asked for events gets events or an error. The answer's content is
//! unchanged except for names that differ in events.

use std::fmt::Write as _;

use serde_json::value::RawValue;

use crate::service::events::DONE;
use crate::service::json;

/// Maximum number of choices of an answer, and of tool calls of a choice.
const MAX_CHOICES: usize = 1024;

/// Converts a whole answer to events; returns `None` if it is not a completion.
pub(super) fn events(answer: &[u8]) -> Option<String> {
    let text = json::text(answer).ok()?;
    let members = json::members(text, "$").ok()?;
    let has = |key: &str| members.iter().any(|(known, _)| known == key);
    let data = if has("error") {
        text.to_owned()
    } else if has("choices") {
        object(members.into_iter().map(|(key, value)| {
            let value = match key.as_str() {
                "object" if value.get() == "\"chat.completion\"" => {
                    "\"chat.completion.chunk\"".to_owned()
                }
                "choices" => array(value, choice)?,
                _ => value.get().to_owned(),
            };
            Some((key, value))
        }))?
    } else {
        return None;
    };
    // JSON strings contain no line breaks, and an event's data must not contain any.
    let data = data.replace(['\n', '\r'], " ");
    Some(format!("data: {data}\n\n{DONE}"))
}

/// Converts a choice: its `message` becomes the `delta`.
fn choice(_: usize, choice: &RawValue) -> Option<String> {
    let members = json::members(choice.get(), "$").ok()?;
    object(members.into_iter().map(|(key, value)| {
        if key == "message" && value.get().starts_with('{') {
            return Some(("delta".to_owned(), delta(value)?));
        }
        Some((key, value.get().to_owned()))
    }))
}

/// Converts a message: tool calls get an index.
fn delta(message: &RawValue) -> Option<String> {
    let members = json::members(message.get(), "$").ok()?;
    object(members.into_iter().map(|(key, value)| {
        let value = if key == "tool_calls" && value.get().starts_with('[') {
            array(value, |at, call| {
                let members = json::members(call.get(), "$").ok()?;
                let rest = members.into_iter().filter(|(key, _)| key != "index");
                let rest = rest.map(|(key, value)| Some((key, value.get().to_owned())));
                object(
                    [Some(("index".to_owned(), at.to_string()))]
                        .into_iter()
                        .chain(rest),
                )
            })?
        } else {
            value.get().to_owned()
        };
        Some((key, value))
    }))
}

fn object(members: impl Iterator<Item = Option<(String, String)>>) -> Option<String> {
    let mut text = String::from("{");
    for member in members {
        let (key, value) = member?;
        let comma = if text.len() > 1 { "," } else { "" };
        let key = serde_json::to_string(&key).ok()?;
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{key}:{value}");
    }
    text.push('}');
    Some(text)
}

fn array(value: &RawValue, each: impl Fn(usize, &RawValue) -> Option<String>) -> Option<String> {
    let elements = json::elements(value.get(), MAX_CHOICES, "$").ok()?;
    let elements = elements.into_iter().enumerate();
    let texts: Option<Vec<String>> = elements.map(|(at, element)| each(at, element)).collect();
    Some(format!("[{}]", texts?.join(",")))
}

#[cfg(test)]
mod tests {
    use super::events;

    #[test]
    fn a_whole_chat_completion_is_one_event() {
        let whole = r#"{"id":"c","object":"chat.completion",
            "choices":[{"index":0,"message":{"role":"assistant","content":"a\nb","tool_calls":[{"id":"t"}]},
            "finish_reason":"stop"}],"usage":{"prompt_tokens":1.0}}"#;
        let expected = concat!(
            r#"data: {"id":"c","object":"chat.completion.chunk","#,
            r#""choices":[{"index":0,"delta":{"role":"assistant","content":"a\nb","#,
            r#""tool_calls":[{"index":0,"id":"t"}]},"finish_reason":"stop"}],"#,
            r#""usage":{"prompt_tokens":1.0}}"#,
            "\n\ndata: [DONE]\n\n"
        );
        assert_eq!(events(whole.as_bytes()).as_deref(), Some(expected));
    }

    #[test]
    fn completions_and_errors_keep_their_form() {
        let text = r#"{"object":"text_completion","choices":[{"text":"a"}]}"#;
        let expected = format!("data: {text}\n\ndata: [DONE]\n\n");
        assert_eq!(events(text.as_bytes()), Some(expected));
        let error = events(b"{\"error\":\n{\"message\":\"no\"}}").expect("it is an error");
        assert!(
            error.starts_with("data: {\"error\": {\"message\":\"no\"}}\n\n"),
            "{error}"
        );
        for other in [
            "",
            "[]",
            "{}",
            "text",
            r#"{"data":[]}"#,
            r#"{"choices":{}}"#,
        ] {
            assert_eq!(events(other.as_bytes()), None, "{other}");
        }
    }
}
