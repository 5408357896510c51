//! Writes chat and text completions in the format of chat clients (OpenAI-compatible): whole
//! answers or chunks of a stream.
//!
//! Invariant: all chunks of an answer have the same id, time and model, and together they equal the
//! whole answer. This module knows nothing of models and HTTP.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::database::Timestamp;
use pkgtool_text::answer::Piece;
use pkgtool_text::generation::{GenerationEvent, GenerationUsage};
use pkgtool_text::sampling::Likelihood;
use pkgtool_text::tokenizer::Tokenizer;

/// Kind of completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// A chat completion, with messages.
    Chat,
    /// A text completion.
    Text,
}

/// The form of an answer that the client requested.
#[derive(Debug, Clone)]
pub(super) struct AnswerForm {
    /// Kind of completion.
    pub(super) kind: AnswerKind,
    /// The model's name as the client specified it.
    pub(super) model: String,
    /// True if the stream ends with a chunk that contains the usage.
    pub(super) includes_usage: bool,
    /// True if tokens are reported with their probabilities.
    pub(super) has_logprobs: bool,
    /// Prompts to repeat before the choices, each for an equal number of choices; empty for a chat.
    pub(super) echo: Vec<String>,
}

/// Writes one answer.
pub(super) struct AnswerWriter {
    form: AnswerForm,
    id: String,
    created: i64,
    tokenizer: Arc<Tokenizer>,
    choices: Vec<ChoiceState>,
}

/// State of a choice.
#[derive(Debug, Default)]
struct ChoiceState {
    is_begun: bool,
    content: String,
    reasoning: String,
    calls: Vec<WrittenCall>,
    /// Tokens that no chunk contains yet; for a whole answer, all tokens.
    tokens: Vec<TokenRecord>,
    /// Number of text characters before those tokens.
    offset: usize,
    finish: Option<&'static str>,
}

#[derive(Debug)]
struct WrittenCall {
    id: String,
    name: String,
    arguments: String,
}

/// A token with its probability, and the most likely alternatives.
#[derive(Debug)]
struct TokenRecord {
    chosen: Likelihood,
    top: Vec<Likelihood>,
}

impl AnswerWriter {
    /// Creates the writer of an empty answer. `random` makes the answer's id unique.
    pub(super) fn new(
        form: AnswerForm,
        tokenizer: Arc<Tokenizer>,
        random: u128,
        choices: usize,
    ) -> Self {
        let prefix = match form.kind {
            AnswerKind::Chat => "chatcmpl",
            AnswerKind::Text => "cmpl",
        };
        let mut all = Vec::new();
        all.resize_with(choices, ChoiceState::default);
        Self {
            form,
            id: format!("{prefix}-{random:032x}"),
            created: Timestamp::now().0 / 1000,
            tokenizer,
            choices: all,
        }
    }

    /// Adds an event of the generation to a whole answer.
    pub(super) fn take(&mut self, event: GenerationEvent) {
        let place = choice_of(&event);
        let Some(choice) = self.choices.get_mut(place) else {
            return;
        };
        match event {
            GenerationEvent::Token { chosen, top, .. } => {
                choice.tokens.push(TokenRecord { chosen, top });
            }
            GenerationEvent::Piece { piece, .. } => choice.add(piece),
            GenerationEvent::Finish { reason, .. } => choice.finish = Some(reason.name()),
        }
    }

    /// Returns the whole answer.
    pub(super) fn whole(mut self, usage: &GenerationUsage) -> Value {
        let choices = std::mem::take(&mut self.choices);
        let choices = choices.into_iter().enumerate();
        let choices: Vec<Value> = choices
            .map(|(place, choice)| match self.form.kind {
                AnswerKind::Chat => self.message(place, &choice),
                AnswerKind::Text => self.text(place, &choice),
            })
            .collect();
        let object = match self.form.kind {
            AnswerKind::Chat => "chat.completion",
            AnswerKind::Text => "text_completion",
        };
        let mut answer = self.head(object, choices);
        answer.insert("usage".to_owned(), usage_of(usage));
        Value::Object(answer)
    }

    /// Returns the chunks for an event of the generation.
    pub(super) fn chunks(&mut self, event: GenerationEvent) -> Vec<Value> {
        let place = choice_of(&event);
        if place >= self.choices.len() {
            return Vec::new();
        }
        let mut chunks = Vec::new();
        if !std::mem::replace(&mut self.choices[place].is_begun, true) {
            chunks.extend(self.first(place));
        }
        match event {
            GenerationEvent::Token { chosen, top, .. } => {
                self.choices[place].tokens.push(TokenRecord { chosen, top });
            }
            GenerationEvent::Piece { piece, .. } => chunks.push(self.piece(place, piece)),
            GenerationEvent::Finish { reason, .. } => {
                let delta = match self.form.kind {
                    AnswerKind::Chat => json!({}),
                    AnswerKind::Text => json!(""),
                };
                chunks.push(self.chunk(place, &delta, Some(reason.name())));
            }
        }
        chunks
    }

    /// Returns the final chunk of a stream with the usage, if the client requested it.
    pub(super) fn last(&self, usage: &GenerationUsage) -> Option<Value> {
        if !self.form.includes_usage {
            return None;
        }
        let mut chunk = self.head(self.chunk_object(), Vec::new());
        chunk.insert("usage".to_owned(), usage_of(usage));
        Some(Value::Object(chunk))
    }

    /// Returns the first chunk of a choice: the role or the prompt.
    fn first(&self, place: usize) -> Option<Value> {
        match self.form.kind {
            AnswerKind::Chat => {
                let delta = json!({"role": "assistant", "content": ""});
                Some(self.bare_chunk(place, &delta, None, &Value::Null))
            }
            AnswerKind::Text => {
                let echo = self.echo(place)?;
                Some(self.bare_chunk(place, &json!(echo), None, &Value::Null))
            }
        }
    }

    fn piece(&mut self, place: usize, piece: Piece) -> Value {
        let delta = match (self.form.kind, piece) {
            (AnswerKind::Chat, Piece::Content(text)) => json!({"content": text}),
            (AnswerKind::Chat, Piece::Reasoning(text)) => json!({"reasoning_content": text}),
            (AnswerKind::Chat, Piece::Call { index, id, name }) => {
                let function = json!({"name": name, "arguments": ""});
                json!({"tool_calls": [
                    {"index": index, "id": id, "type": "function", "function": function}
                ]})
            }
            (AnswerKind::Chat, Piece::Arguments { index, text }) => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            }
            // A text completion does not separate reasoning from content.
            (AnswerKind::Text, Piece::Content(text) | Piece::Reasoning(text)) => json!(text),
            (AnswerKind::Text, _) => json!(""),
        };
        self.chunk(place, &delta, None)
    }

    fn chunk(&mut self, place: usize, delta: &Value, finish: Option<&'static str>) -> Value {
        let tokens = std::mem::take(&mut self.choices[place].tokens);
        let logprobs = self.logprobs(&tokens, &mut self.choices[place].offset.clone());
        if self.form.kind == AnswerKind::Text {
            let said = delta.as_str().map_or(0, |text| text.chars().count());
            self.choices[place].offset += said;
        }
        self.bare_chunk(place, delta, finish, &logprobs)
    }

    fn bare_chunk(
        &self,
        place: usize,
        delta: &Value,
        finish: Option<&'static str>,
        logprobs: &Value,
    ) -> Value {
        let key = match self.form.kind {
            AnswerKind::Chat => "delta",
            AnswerKind::Text => "text",
        };
        let choice = json!({
            "index": place, key: delta, "logprobs": logprobs, "finish_reason": finish,
        });
        let mut chunk = self.head(self.chunk_object(), vec![choice]);
        if self.form.includes_usage {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        Value::Object(chunk)
    }

    fn chunk_object(&self) -> &'static str {
        match self.form.kind {
            AnswerKind::Chat => "chat.completion.chunk",
            AnswerKind::Text => "text_completion",
        }
    }

    fn head(&self, object: &str, choices: Vec<Value>) -> Map<String, Value> {
        let mut head = Map::new();
        for (key, value) in [
            ("id", json!(self.id)),
            ("object", json!(object)),
            ("created", json!(self.created)),
            ("model", json!(self.form.model)),
            ("choices", Value::Array(choices)),
        ] {
            head.insert(key.to_owned(), value);
        }
        head
    }

    fn message(&self, place: usize, choice: &ChoiceState) -> Value {
        let logprobs = self.logprobs(&choice.tokens, &mut 0);
        let calls = choice.calls.iter().map(|call| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"id": call.id, "type": "function", "function": function})
        });
        let calls: Vec<Value> = calls.collect();
        let is_silent = choice.content.is_empty() && !calls.is_empty();
        let content = (!is_silent).then_some(choice.content.as_str());
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !choice.reasoning.is_empty() {
            message["reasoning_content"] = json!(choice.reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = Value::Array(calls);
        }
        json!({
            "index": place, "message": message, "logprobs": logprobs,
            "finish_reason": choice.finish,
        })
    }

    fn text(&self, place: usize, choice: &ChoiceState) -> Value {
        let echo = self.echo(place).unwrap_or_default();
        let mut offset = echo.chars().count();
        let logprobs = self.logprobs(&choice.tokens, &mut offset);
        let text = format!("{echo}{}", choice.content);
        json!({
            "text": text, "index": place, "logprobs": logprobs, "finish_reason": choice.finish,
        })
    }

    /// Returns the prompt to repeat before a choice. Choices are ordered by prompt.
    fn echo(&self, place: usize) -> Option<&str> {
        let prompts = self.form.echo.len();
        if prompts == 0 {
            return None;
        }
        let each = self.choices.len().max(prompts) / prompts;
        self.form.echo.get(place / each).map(String::as_str)
    }

    fn logprobs(&self, tokens: &[TokenRecord], offset: &mut usize) -> Value {
        if !self.form.has_logprobs || tokens.is_empty() {
            return Value::Null;
        }
        match self.form.kind {
            AnswerKind::Chat => {
                let content = tokens.iter().map(|told| {
                    let mut token = self.token(told.chosen);
                    let top = told.top.iter().map(|one| self.token(*one));
                    token["top_logprobs"] = top.collect();
                    token
                });
                json!({"content": content.collect::<Vec<Value>>(), "refusal": null})
            }
            AnswerKind::Text => self.logprobs_of_text(tokens, offset),
        }
    }

    fn token(&self, one: Likelihood) -> Value {
        let bytes = self.tokenizer.vocabulary().bytes(one.token);
        let text = bytes.map(String::from_utf8_lossy);
        json!({"token": text, "logprob": one.logprob, "bytes": bytes})
    }

    fn logprobs_of_text(&self, tokens: &[TokenRecord], offset: &mut usize) -> Value {
        let text = |one: &Likelihood| {
            let bytes = self.tokenizer.vocabulary().bytes(one.token);
            String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
        };
        let (mut texts, mut own, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
        for told in tokens {
            let name = text(&told.chosen);
            offsets.push(*offset);
            *offset += name.chars().count();
            texts.push(name);
            own.push(told.chosen.logprob);
            let top = told.top.iter().map(|one| (text(one), json!(one.logprob)));
            tops.push(Value::Object(top.collect()));
        }
        json!({
            "tokens": texts, "token_logprobs": own, "top_logprobs": tops, "text_offset": offsets,
        })
    }
}

impl ChoiceState {
    fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Content(text) => self.content.push_str(&text),
            Piece::Reasoning(text) => self.reasoning.push_str(&text),
            Piece::Call { id, name, .. } => self.calls.push(WrittenCall {
                id,
                name,
                arguments: String::new(),
            }),
            Piece::Arguments { index, text } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
        }
    }
}

fn choice_of(event: &GenerationEvent) -> usize {
    match event {
        GenerationEvent::Token { choice, .. }
        | GenerationEvent::Piece { choice, .. }
        | GenerationEvent::Finish { choice, .. } => *choice,
    }
}

/// Returns the usage in the field names that clients read.
pub(super) fn usage_of(usage: &GenerationUsage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}
