//! From logits to a token: settings, and the state of one choice.
//!
//! Invariant: the same settings, seed, choice and logits give the same token, on any machine and
//! whatever else is being generated. Knows no tokenizer and no model.

mod bounds;
mod error;
mod exponential;
mod history;
mod keep;
mod likelihood;
mod sampler;
mod wish;

pub use bounds::{BOUNDS, Bound};
pub use error::SamplingError;
pub use likelihood::Likelihood;
pub use sampler::{Chosen, Sampler};
pub use wish::SamplingWish;

use std::hash::{BuildHasher, Hasher, RandomState};

/// How tokens are drawn. Every value is within its bounds ([`BOUNDS`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// So many of the likeliest tokens stay; 0 is all.
    pub top_k: usize,
    /// The likeliest tokens stay whose probabilities sum up to this, with the one that reaches it.
    pub top_p: f32,
    /// Tokens stay that are at least this likely, as a share of the likeliest one's probability.
    pub min_p: f32,
    /// Logits of tokens in the prompt or the output are divided by it, or multiplied where negative.
    pub repetition_penalty: f32,
    /// Taken from a token's logit for every time that it is in the output.
    pub frequency_penalty: f32,
    /// Taken once from the logit of a token in the output.
    pub presence_penalty: f32,
    /// Added to the logits of tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Another seed draws otherwise; without one every request does.
    pub seed: Option<u64>,
    /// How many of the likeliest tokens are told beside the chosen one; `None` tells no probabilities.
    pub logprobs: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
            logprobs: None,
        }
    }
}

impl Sampling {
    /// What the request says; of the rest what the model's `generation_config.json` says; of the rest
    /// the defaults.
    pub fn merged(request: SamplingWish, generation_config: SamplingWish) -> Self {
        let default = Self::default();
        let wish = request.over(generation_config);
        Self {
            temperature: wish.temperature.unwrap_or(default.temperature),
            top_k: wish.top_k.unwrap_or(default.top_k),
            top_p: wish.top_p.unwrap_or(default.top_p),
            min_p: wish.min_p.unwrap_or(default.min_p),
            repetition_penalty: wish
                .repetition_penalty
                .unwrap_or(default.repetition_penalty),
            frequency_penalty: wish.frequency_penalty.unwrap_or(default.frequency_penalty),
            presence_penalty: wish.presence_penalty.unwrap_or(default.presence_penalty),
            logit_bias: wish.logit_bias.unwrap_or_default(),
            seed: wish.seed,
            logprobs: wish.logprobs,
        }
    }

    /// The seed, one of chance where none was given. All choices of a request share it.
    pub fn seed(&self) -> u64 {
        // The standard library takes the keys of its maps from the system's source of chance.
        self.seed
            .unwrap_or_else(|| RandomState::new().build_hasher().finish())
    }
}
