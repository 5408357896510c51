//! Detects the message forms that a template accepts.
//!
//! Detection renders small conversations and searches the output for their content, which is more
//! reliable than an analysis of the template's text. Invariant: a form on which the template fails
//! counts as not accepted. A failure of a worker process is never taken for a result.

use serde_json::{Value, json};

use super::conversation::Conversation;
use super::error::TemplateError;

/// The message forms that a template accepts.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each form is accepted or not"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateTakes {
    /// Contents that are strings.
    pub texts: bool,
    /// Contents that are lists of typed parts, over which the template loops.
    pub parts: bool,
    /// Arguments of tool calls as objects; otherwise the template expects JSON text.
    pub argument_objects: bool,
    /// Tools, which the template describes to the model.
    pub tools: bool,
}

/// A word that no template contains.
const PROBE_WORD: &str = "quernstone";

type RenderResult = Result<String, TemplateError>;

/// Tests all forms.
pub(super) fn probe(
    render: impl Fn(&Conversation) -> RenderResult,
) -> Result<TemplateTakes, TemplateError> {
    let render = |conversation: &Conversation| rendered_or_none(render(conversation));
    let user = |content: Value| Conversation::of(vec![json!({"role": "user", "content": content})]);
    let of_text = render(&user(PROBE_WORD.into()))?;
    let of_parts = render(&user(json!([{"type": "text", "text": PROBE_WORD}])))?;
    let object = render(&called(&json!({ PROBE_WORD: "value" })))?;
    let text = render(&called(&json!({ PROBE_WORD: "value" }).to_string().into()))?;
    let mut with_tools = user("Hello".into());
    with_tools.tools = Some(vec![tool()]);
    let with_tools = render(&with_tools)?;
    Ok(TemplateTakes {
        // If neither form works, rendering the actual conversation will report the error.
        texts: has_word(of_text.as_ref()) || !has_word(of_parts.as_ref()),
        parts: has_word(of_parts.as_ref()) && !shows_parts(of_parts.as_ref()),
        argument_objects: !has_word(text.as_ref())
            || (has_word(object.as_ref()) && !shows_object(object.as_ref())),
        tools: has_word(with_tools.as_ref()),
    })
}

/// Returns the rendered text; `None` if the template failed on the form.
fn rendered_or_none(outcome: RenderResult) -> Result<Option<String>, TemplateError> {
    match outcome {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_of_machine() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Returns a conversation in which a tool was called.
fn called(arguments: &Value) -> Conversation {
    let call = json!({
        // Some templates require ids of exactly nine letters or digits.
        "id": "call00001",
        "type": "function",
        "function": {"name": "look_up", "arguments": arguments},
    });
    let mut conversation = Conversation::of(vec![
        json!({"role": "user", "content": "Hello"}),
        json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "call00001", "name": "look_up", "content": "1"}),
    ]);
    conversation.tools = Some(vec![json!({
        "type": "function",
        "function": {"name": "look_up", "description": "Looks up.", "parameters": no_parameters()},
    })]);
    conversation
}

fn tool() -> Value {
    json!({
        "type": "function",
        "function": {"name": PROBE_WORD, "description": "Looks up.", "parameters": no_parameters()},
    })
}

fn no_parameters() -> Value {
    json!({"type": "object", "properties": {}, "required": []})
}

fn has_word(text: Option<&String>) -> bool {
    text.is_some_and(|text| text.contains(PROBE_WORD))
}

/// Returns whether the list itself was printed.
fn shows_parts(text: Option<&String>) -> bool {
    let printed = |text: &String| text.contains("'type'") || text.contains("\"type\"");
    text.is_some_and(printed)
}

/// Returns whether the object was printed as Python prints it.
fn shows_object(text: Option<&String>) -> bool {
    let printed = format!("{{'{PROBE_WORD}'");
    text.is_some_and(|text| text.contains(&printed))
}
