//! What a template makes of the forms that conversations come in.
//!
//! Found by rendering small conversations and looking for what was in them: what a template does is a
//! better witness than its text. Invariant: a form that fails is one that the template does not take;
//! a fault of the machinery is never taken for an answer.

use serde_json::{Value, json};

use super::conversation::Conversation;
use super::error::TemplateError;

/// What a template takes.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a form that is taken or not"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// Contents that are texts.
    pub texts: bool,
    /// Contents that are lists of typed parts: it loops over them itself.
    pub parts: bool,
    /// Arguments of tool calls as objects; else it wants them as JSON text.
    pub argument_objects: bool,
    /// Tools: it tells the model about them.
    pub tools: bool,
}

/// A word that no template has in itself.
const WORD: &str = "quernstone";

type Outcome = Result<String, TemplateError>;

/// Tries the forms.
pub(super) fn tried(render: impl Fn(&Conversation) -> Outcome) -> Result<Takes, TemplateError> {
    let render = |conversation: &Conversation| answered(render(conversation));
    let user = |content: Value| Conversation::of(vec![json!({"role": "user", "content": content})]);
    let of_text = render(&user(WORD.into()))?;
    let of_parts = render(&user(json!([{"type": "text", "text": WORD}])))?;
    let object = render(&called(&json!({ WORD: "value" })))?;
    let text = render(&called(&json!({ WORD: "value" }).to_string().into()))?;
    let mut with_tools = user("Hello".into());
    with_tools.tools = Some(vec![tool()]);
    let with_tools = render(&with_tools)?;
    Ok(Takes {
        // Where neither works, the fault will show with the conversation itself.
        texts: has_word(of_text.as_ref()) || !has_word(of_parts.as_ref()),
        parts: has_word(of_parts.as_ref()) && !shows_parts(of_parts.as_ref()),
        argument_objects: !has_word(text.as_ref())
            || (has_word(object.as_ref()) && !shows_object(object.as_ref())),
        tools: has_word(with_tools.as_ref()),
    })
}

/// What came of a form; nothing if the template failed on it.
fn answered(outcome: Outcome) -> Result<Option<String>, TemplateError> {
    match outcome {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_of_machine() => Err(error),
        Err(_) => Ok(None),
    }
}

/// A conversation in which a tool was called.
fn called(arguments: &Value) -> Conversation {
    let call = json!({
        // Some templates want exactly nine letters or digits.
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
        "function": {"name": WORD, "description": "Looks up.", "parameters": no_parameters()},
    })
}

fn no_parameters() -> Value {
    json!({"type": "object", "properties": {}, "required": []})
}

fn has_word(text: Option<&String>) -> bool {
    text.is_some_and(|text| text.contains(WORD))
}

/// The list itself was printed.
fn shows_parts(text: Option<&String>) -> bool {
    let printed = |text: &String| text.contains("'type'") || text.contains("\"type\"");
    text.is_some_and(printed)
}

/// The object was printed as Python prints it.
fn shows_object(text: Option<&String>) -> bool {
    let printed = format!("{{'{WORD}'");
    text.is_some_and(|text| text.contains(&printed))
}
