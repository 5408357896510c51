//! Parses tool calls that mark names and values: `<function=f><parameter=x>1</parameter>`.

use serde_json::{Map, Value};

use super::OfferedTool;
use super::json::{object_text, to_typed_value};
use super::parts::ParsedCall;

/// The end of such a call.
pub(super) const CALL_END: &str = "</function>";

/// The beginning of such a call.
pub(super) const CALL_BEGIN: &str = "<function=";

/// Parses the call in a text from [`CALL_BEGIN`] up to [`CALL_END`].
pub(super) fn call(text: &str, tools: &[OfferedTool]) -> Option<ParsedCall> {
    let text = text.strip_prefix(CALL_BEGIN)?;
    let (name, body) = text.split_once('>')?;
    let name = name.trim().trim_matches('"');
    let tool = tools.iter().find(|tool| tool.name == name)?;
    let name = tool.name.clone();
    // Llama writes JSON in between.
    if let Some(arguments) = object_text(body) {
        let arguments = arguments.to_owned();
        return Some(ParsedCall { name, arguments });
    }
    let mut arguments = Map::new();
    let mut rest = body.trim_start();
    while let Some(parameter) = rest.strip_prefix("<parameter=") {
        let (key, after) = parameter.split_once('>')?;
        let key = key.trim().trim_matches('"');
        // Some models forget to close a parameter before the next one.
        let close = after.find("</parameter>");
        let next = after.find("\n<parameter=");
        let (value, after) = match (close, next) {
            (Some(close), next) if next.is_none_or(|next| close < next) => {
                (&after[..close], &after[close + "</parameter>".len()..])
            }
            (_, Some(next)) => after.split_at(next),
            (_, None) => (after, ""),
        };
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let schema = tool
            .parameters
            .as_ref()
            .and_then(|schema| schema.get("properties"));
        let schema = schema.and_then(|properties| properties.get(key));
        arguments.insert(key.to_owned(), to_typed_value(value, schema));
        rest = after.trim_start();
    }
    rest.is_empty().then(|| ParsedCall {
        name,
        arguments: Value::Object(arguments).to_string(),
    })
}
