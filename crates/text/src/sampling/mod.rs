//! Sampling: turns logits into a token, by the settings of a request and the state of one choice.
//!
//! Invariant: the same settings, seed, choice and logits give the same token on every machine,
//! whatever else is being generated. Tokenizers and models are handled elsewhere.

mod bounds;
mod error;
mod exponential;
mod history;
mod keep;
mod likelihood;
mod sampler;
mod wish;

pub use bounds::{SETTING_RANGES, SettingRange};
pub use error::SamplingError;
pub use likelihood::Likelihood;
pub use sampler::{SampledToken, Sampler};
pub use wish::SamplingOverrides;

use std::hash::{BuildHasher, Hasher, RandomState};

/// Sampling settings. Every value is within its range ([`SETTING_RANGES`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 always takes the most likely token.
    pub temperature: f32,
    /// Sample from the K most likely tokens; 0 means all.
    pub top_k: usize,
    /// Sample from the most likely tokens whose probabilities sum up to this, including the one
    /// that reaches it.
    pub top_p: f32,
    /// Sample from tokens with at least this share of the most likely token's probability.
    pub min_p: f32,
    /// Divides positive logits of tokens in the prompt or the output, and multiplies negative ones.
    pub repetition_penalty: f32,
    /// Subtracted from a token's logit for each occurrence in the output.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of each token in the output.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Random seed. Without a seed, every request samples differently.
    pub seed: Option<u64>,
    /// Number of most likely tokens to report beside the sampled one; `None` reports no
    /// probabilities.
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
    /// Merges settings: the request overrides the model's `generation_config.json`, which overrides
    /// the defaults.
    pub fn merged(request: SamplingOverrides, generation_config: SamplingOverrides) -> Self {
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

    /// Returns the seed, or a random one if none is set. All choices of a request share it.
    pub fn seed(&self) -> u64 {
        // The standard library seeds its hash maps from the operating system's random source.
        self.seed
            .unwrap_or_else(|| RandomState::new().build_hasher().finish())
    }
}
