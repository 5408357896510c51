//! Tokens that end an answer: the union of all who name some.
//!
//! Invariant: many packages name only the base model's end; a chat would then never stop. So no source
//! overrules another.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Marks by which templates end a turn.
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

/// What only ends a message of several, where channels are.
const ENDS_A_MESSAGE: &str = "<|end|>";

/// A set of tokens that end an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends(BTreeSet<u32>);

impl Ends {
    /// Those that a program's constant methods tell.
    #[must_use]
    pub fn of_program(mut self, ids: &[i64]) -> Self {
        self.0
            .extend(ids.iter().filter_map(|id| u32::try_from(*id).ok()));
        self
    }

    /// Those of `eos_token_id` in a `generation_config.json`: one or several.
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

    /// That of the tokenizer's settings.
    #[must_use]
    pub fn of_tokenizer(mut self, eos: Option<u32>) -> Self {
        self.0.extend(eos);
        self
    }

    /// Those by which a template ends turns, where they are tokens.
    #[must_use]
    pub fn of_template(mut self, template: &str, id_of: &dyn Fn(&str) -> Option<u32>) -> Self {
        let has_channels = template.contains("<|channel|>");
        let ends = TURN_ENDS
            .into_iter()
            .filter(|end| template.contains(end) && !(has_channels && *end == ENDS_A_MESSAGE));
        self.0.extend(ends.filter_map(id_of));
        self
    }

    /// Whether a token ends the answer.
    pub fn has(&self, token: u32) -> bool {
        self.0.contains(&token)
    }

    /// All of them, in order.
    pub fn ids(&self) -> Vec<u32> {
        self.0.iter().copied().collect()
    }
}

impl FromIterator<u32> for Ends {
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
        let ends = Ends::default()
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
        let ends = Ends::default().of_template(channels, &id_of);
        assert_eq!(ends.ids(), [u32::try_from("<|return|>".len()).unwrap_or(0)]);
    }
}
