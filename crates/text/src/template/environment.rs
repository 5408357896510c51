//! The Jinja environment that renders a template, set up like the one of `transformers`.
//!
//! Invariant: a template sees only the conversation, its special tokens and the functions defined
//! here; it cannot load other templates. Iterating over none is an error. Nothing is escaped.

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use serde_json::Map;

use super::conversation::{Conversation, with_reasoning};
use super::moment::RenderTime;
use super::{generation_tag, json_text, methods};

/// The name under which the library knows the template.
const NAME: &str = "chat template";

/// A parsed template.
pub(super) struct ParsedTemplate {
    environment: Environment<'static>,
    moment: RenderTime,
}

/// The message of a template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct RaisedMessage(pub(super) String);

impl ParsedTemplate {
    /// Parses a template.
    pub(super) fn new(text: &str, fuel: u64) -> Result<Self, Error> {
        let moment = RenderTime::default();
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build()?);
        environment.set_fuel(Some(fuel));
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(methods::call);
        minijinja_contrib::add_to_environment(&mut environment);
        environment.add_filter("tojson", json_text::tojson);
        environment.add_filter("trim", methods::trim);
        environment.add_filter("replace", methods::replace);
        environment.add_test("iterable", is_iterable);
        environment.add_test("sequence", is_sequence);
        environment.add_function("raise_exception", raise_exception);
        let now = moment.clone();
        environment.add_function("strftime_now", move |pattern: &str| now.text(pattern));
        environment.set_formatter(|out, state, value| {
            if value.kind() == ValueKind::Number && !value.is_integer() {
                return Ok(out.write_str(&json_text::number(value))?);
            }
            minijinja::escape_formatter(out, state, value)
        });
        let text = generation_tag::replaced(text).into_owned();
        environment.add_template_owned(NAME, text)?;
        Ok(Self {
            environment,
            moment,
        })
    }

    /// Renders a conversation's prompt at a moment, in seconds since 1970.
    pub(super) fn render(
        &self,
        conversation: &Conversation,
        tokens: &Map<String, serde_json::Value>,
        now: i64,
    ) -> Result<String, Error> {
        self.moment.set(now);
        let template = self.environment.get_template(NAME)?;
        template.render(variables(conversation, tokens))
    }
}

fn variables(conversation: &Conversation, tokens: &Map<String, serde_json::Value>) -> Value {
    let mut all = BTreeMap::new();
    all.insert("documents", Value::from(()));
    all.insert(
        "add_generation_prompt",
        conversation.add_generation_prompt.into(),
    );
    for (name, value) in tokens.iter().chain(&conversation.variables) {
        all.insert(name, Value::from(Serde(value)));
    }
    all.insert("tools", Value::from(Serde(&conversation.tools)));
    let messages = conversation.messages.iter();
    let messages = messages.map(|message| Value::from(Serde(&*with_reasoning(message))));
    all.insert("messages", messages.collect());
    Value::from_pairs(all)
}

/// In Python, none is not iterable.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// In Jinja, everything with a length and items is a sequence.
fn is_sequence(value: &Value) -> bool {
    let kinds = [
        ValueKind::Undefined,
        ValueKind::Seq,
        ValueKind::String,
        ValueKind::Map,
    ];
    kinds.contains(&value.kind())
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone())
        .with_source(RaisedMessage(message)))
}
