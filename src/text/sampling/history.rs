//! Tokens of the prompt and the output of one choice, and what their repetition costs.
//!
//! Invariant: a step costs as much as there are different tokens, never as much as there were tokens.

use std::collections::HashMap;

use super::Sampling;

/// What was said so far. Empty where no penalty needs it.
#[derive(Debug, Clone)]
pub(super) struct History {
    /// How often each token is in the output; 0 for those of the prompt alone.
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

    /// Tokens of the prompt count for repetition alone.
    #[expect(clippy::float_cmp, reason = "exactly 1 does nothing")]
    fn repeats(&self) -> bool {
        self.repetition != 1.0
    }

    fn weighs(&self) -> bool {
        self.repeats() || self.frequency != 0.0 || self.presence != 0.0
    }

    /// Notes a token of the output.
    pub(super) fn said(&mut self, token: u32) {
        if self.weighs() {
            let count = self.counts.entry(token).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    /// Repetition first, for prompt and output; then frequency and presence, for output.
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
                #[expect(clippy::cast_precision_loss, reason = "contexts are far shorter")]
                let count = *count as f32;
                *logit -= count * self.frequency + self.presence;
            }
            *logit = logit.min(f32::MAX);
        }
    }
}
