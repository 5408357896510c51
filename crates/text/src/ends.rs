//! The tokens that end an answer, collected from the model, its configuration, its tokenizer and
//! its chat template.
//!
//! Invariant: the result is the union of all sources; no source overrides another. Many packages
//! name only the base model's end token, and with that alone a chat would never stop.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Special tokens with which templates end a turn.
const TURN_ENDS: [&str; 10] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|end_of_text|>",
    "<|endoftext|>",
];

/// Ends a single message in templates with channels (Harmony); elsewhere it ends the turn.
const MESSAGE_END: &str = "<|end|>";

/// The set of tokens that end an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndTokens(BTreeSet<u32>);

impl EndTokens {
    /// Adds the end tokens from a program's constant methods.
    #[must_use]
    pub fn of_program(mut self, ids: &[i64]) -> Self {
        self.0
            .extend(ids.iter().filter_map(|id| u32::try_from(*id).ok()));
        self
    }

    /// Adds `eos_token_id` of a `generation_config.json`, which is one id or a list.
    #[must_use]
    pub fn of_generation_config(mut self, config: &Map<String, Value>) -> Self {
        let ids = match config.get("eos_token_id") {
            Some(Value::Array(ids)) => ids.as_slice(),
            Some(id) => std::slice::from_ref(id),
            None => &[],
        };
        let ids = ids.iter().filter_map(Value::as_u64);
        self.0.extend(ids.filter_map(|id| u32::try_from(id).ok()));
        self
    }

    /// Adds the end token of the tokenizer's settings.
    #[must_use]
    pub fn of_tokenizer(mut self, eos: Option<u32>) -> Self {
        self.0.extend(eos);
        self
    }

    /// Adds the special tokens that end turns in a template, if the tokenizer has them.
    #[must_use]
    pub fn of_template(mut self, template: &str, id_of: &dyn Fn(&str) -> Option<u32>) -> Self {
        let has_channels = template.contains("<|channel|>");
        let ends = TURN_ENDS
            .into_iter()
            .filter(|end| template.contains(end) && !(has_channels && *end == MESSAGE_END));
        self.0.extend(ends.filter_map(id_of));
        self
    }

    /// Returns whether `token` ends the answer.
    pub fn has(&self, token: u32) -> bool {
        self.0.contains(&token)
    }

    /// Returns all end tokens, in ascending order.
    pub fn ids(&self) -> Vec<u32> {
        self.0.iter().copied().collect()
    }
}

impl FromIterator<u32> for EndTokens {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        Self(ids.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_sources_count() {
        let config = |value: Value| value.as_object().cloned().unwrap_or_default();
        let ends = EndTokens::default()
            .of_program(&[2, -1])
            .of_generation_config(&config(json!({"eos_token_id": [3, 4, "x"]})))
            .of_generation_config(&config(json!({"eos_token_id": 5})))
            .of_generation_config(&config(json!({})))
            .of_tokenizer(Some(2))
            .of_template("{{ '<|im_end|>' }}", &|end| {
                (end == "<|im_end|>").then_some(9)
            });
        assert_eq!(ends.ids(), [2, 3, 4, 5, 9]);
        assert!(ends.has(9) && !ends.has(1));
        let id_of = |end: &str| Some(u32::try_from(end.len()).unwrap_or(0));
        let channels = "<|channel|><|message|><|end|><|return|>";
        let ends = EndTokens::default().of_template(channels, &id_of);
        assert_eq!(ends.ids(), [u32::try_from("<|return|>".len()).unwrap_or(0)]);
    }
}
