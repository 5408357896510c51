//! The tokens of a choice's prompt and output, and the repetition penalties that they cause.
//!
//! Invariant: the cost of a step grows with the number of distinct tokens, not with the length of
//! the text.

use std::collections::HashMap;

use super::Sampling;

/// Token counts so far. Empty if no penalty is set.
#[derive(Debug, Clone)]
pub(super) struct History {
    /// Occurrences of each token in the output; 0 for tokens that occur only in the prompt.
    counts: HashMap<u32, u32>,
    repetition: f32,
    frequency: f32,
    presence: f32,
}

impl History {
    pub(super) fn new(settings: &Sampling, prompt: &[u32]) -> Self {
        let mut history = Self {
            counts: HashMap::new(),
            repetition: settings.repetition_penalty,
            frequency: settings.frequency_penalty,
            presence: settings.presence_penalty,
        };
        if history.repeats() {
            history.counts = prompt.iter().map(|token| (*token, 0)).collect();
        }
        history
    }

    /// Tokens of the prompt count only for the repetition penalty.
    #[expect(clippy::float_cmp, reason = "exactly 1 disables the penalty")]
    fn repeats(&self) -> bool {
        self.repetition != 1.0
    }

    fn weighs(&self) -> bool {
        self.repeats() || self.frequency != 0.0 || self.presence != 0.0
    }

    /// Records a token of the output.
    pub(super) fn record(&mut self, token: u32) {
        if self.weighs() {
            let count = self.counts.entry(token).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    /// Applies the repetition penalty to tokens of prompt and output, then frequency and presence
    /// penalties to tokens of the output.
    pub(super) fn apply(&self, logits: &mut [f32]) {
        for (token, count) in &self.counts {
            let Some(logit) = logits.get_mut(*token as usize) else {
                continue;
            };
            if self.repeats() {
                *logit = if *logit > 0.0 {
                    *logit / self.repetition
                } else {
                    *logit * self.repetition
                };
            }
            if *count > 0 {
                #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^24")]
                let count = *count as f32;
                *logit -= count * self.frequency + self.presence;
            }
            *logit = logit.min(f32::MAX);
        }
    }
}
