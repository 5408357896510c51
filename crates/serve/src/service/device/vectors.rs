//! Embeddings requests of chat adapters: `input` in, a list of vectors out, as numbers or base64.
//!
//! Invariant: vectors have the order of the inputs. They are written as numbers unless the request
//! selects base64.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::adapter::AdapterCall;
use super::super::call::TokenUsage;
use super::super::text::merged;
use super::super::{Answer, Body, CallError, Refusal, TokenCounts};
use super::Embedding;
use crate::account::AccountId;
use pkgtool_text::embedding::{EmbeddingInput, MAX_TEXTS};

/// Parsed options of an embeddings request.
#[derive(Debug)]
pub(super) struct AskedEmbeddings {
    model: Option<String>,
    is_base64: bool,
}

/// A checked request.
#[derive(Debug)]
pub struct PreparedEmbeddings {
    asked: AskedEmbeddings,
    embedding: Embedding,
    name: String,
}

impl AskedEmbeddings {
    /// Parses a request. `chosen` are config keys that do not belong to it.
    pub(super) fn read(
        call: AdapterCall,
        body: &[u8],
        config: Option<&str>,
        chosen: &[&str],
    ) -> Result<(Self, EmbeddingInput, Option<String>), Refusal> {
        let (fields, config) = merged(call, body, config, chosen)?;
        let is_base64 = match fields.get("encoding_format").and_then(Value::as_str) {
            Some("base64") => true,
            Some("float") => false,
            _ if fields.get("encoding_format").is_none_or(Value::is_null) => false,
            _ => {
                return Err(refusal_at(
                    "$.encoding_format",
                    "expected `float` or `base64`",
                ));
            }
        };
        if fields.get("dimensions").is_some_and(|it| !it.is_null()) {
            let message = "this model's vectors have a fixed length; remove `dimensions`";
            return Err(refusal_at("$.dimensions", message));
        }
        let model = fields
            .get("model")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let given = given(fields.get("input").unwrap_or(&Value::Null))?;
        Ok((Self { model, is_base64 }, given, config))
    }
}

impl PreparedEmbeddings {
    pub(super) fn new(asked: AskedEmbeddings, embedding: Embedding, name: String) -> Self {
        Self {
            asked,
            embedding,
            name,
        }
    }

    /// Embeds the inputs and writes the answer.
    pub(super) async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let embedded = self.embedding.run(caller, timeout).await?;
        let vectors = embedded.vectors.iter().enumerate();
        let data: Vec<Value> = vectors
            .map(|(index, vector)| {
                let vector = if self.asked.is_base64 {
                    let bytes: Vec<u8> = vector.iter().flat_map(|it| it.to_le_bytes()).collect();
                    json!(STANDARD.encode(bytes))
                } else {
                    json!(vector)
                };
                json!({"object": "embedding", "index": index, "embedding": vector})
            })
            .collect();
        let body = json!({
            "object": "list",
            "data": data,
            "model": self.asked.model.unwrap_or(self.name),
            "usage": {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens},
        });
        let spent = TokenUsage::default();
        spent.add(TokenCounts {
            prompt: embedded.tokens as u64,
            ..TokenCounts::default()
        });
        Ok(Answer {
            status: 200,
            body: Body::Whole(body.to_string().into()),
            content_type: "application/json".to_owned(),
            spent: Some(Arc::new(spent)),
            worker: None,
        })
    }
}

/// Parses a text, texts, token ids, or lists of token ids.
fn given(input: &Value) -> Result<EmbeddingInput, Refusal> {
    let expected = "expected a string, strings, token ids, or lists of them";
    let texts = |items: &[Value]| -> Option<Vec<String>> {
        items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    match input {
        Value::String(text) => Ok(EmbeddingInput::Texts(vec![text.clone()])),
        Value::Array(items) if items.len() > MAX_TEXTS && !items[0].is_number() => {
            let message = format!("{} inputs, more than the limit of {MAX_TEXTS}", items.len());
            Err(refusal_at("$.input", &message))
        }
        Value::Array(items) => match items.first() {
            Some(Value::String(_)) => texts(items).map(EmbeddingInput::Texts),
            Some(Value::Number(_)) => ids(input).map(|ids| EmbeddingInput::Ids(vec![ids])),
            Some(Value::Array(_)) => {
                let lists: Option<Vec<Vec<u32>>> = items.iter().map(ids).collect();
                lists.map(EmbeddingInput::Ids)
            }
            _ => None,
        }
        .ok_or_else(|| refusal_at("$.input", expected)),
        _ => Err(refusal_at("$.input", expected)),
    }
}

fn ids(list: &Value) -> Option<Vec<u32>> {
    let id = |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids: Vec<u32> = list.as_array()?.iter().map(id).collect::<Option<_>>()?;
    (!ids.is_empty()).then_some(ids)
}

fn refusal_at(place: &str, message: &str) -> Refusal {
    Refusal::at(place, message)
}
