//! Errors of text generation.

use std::error::Error;

use crate::constraint::ConstraintError;
use crate::decoder::DecodeError;
use crate::sampling::SamplingError;

/// An error of the tokenizer.
pub type DetokenizeError = Box<dyn Error + Send + Sync>;

/// A request that cannot be answered, or a failure of the model.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// The prompt is empty.
    #[error("the prompt is empty: expected at least one token")]
    EmptyPrompt,
    /// The request asks for 0 choices.
    #[error("`n` must be at least 1, not 0")]
    NoChoice,
    /// The request asks for 0 tokens.
    #[error("`max_tokens` must be at least 1, not 0")]
    NoTokens,
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {prompt} tokens, but the model's context is {context} tokens, answer included: \
         shorten the prompt"
    )]
    LongPrompt {
        /// Number of tokens in the prompt.
        prompt: usize,
        /// The model's context length, in tokens.
        context: usize,
    },
    /// The prompt leaves less room than `max_tokens` asks for.
    #[error(
        "the prompt has {prompt} tokens and `max_tokens` is {max_tokens}, together {}; the model's context \
         is {context} tokens: shorten the prompt or lower `max_tokens`",
        prompt.saturating_add(*max_tokens)
    )]
    LongAnswer {
        /// Number of tokens in the prompt.
        prompt: usize,
        /// Number of requested tokens.
        max_tokens: usize,
        /// The model's context length, in tokens.
        context: usize,
    },
    /// Invalid sampling settings, or logits that cannot be sampled.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The constraint cannot be applied.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The model failed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The tokens cannot be decoded to text.
    #[error("failed to decode a token to text: {0}")]
    Detokenize(#[source] DetokenizeError),
}

impl GenerationError {
    /// Returns whether the request is at fault. Otherwise the model or the tool is.
    pub fn is_of_request(&self) -> bool {
        match self {
            Self::EmptyPrompt
            | Self::NoChoice
            | Self::NoTokens
            | Self::LongPrompt { .. }
            | Self::LongAnswer { .. }
            | Self::Constraint(_) => true,
            Self::Sampling(error) => matches!(
                error,
                SamplingError::Setting { .. } | SamplingError::Token { .. }
            ),
            // Tokens that the model samples are always valid, so an invalid one comes from the
            // prompt.
            Self::Decode(error) => matches!(error, DecodeError::Token { .. }),
            Self::Detokenize(_) => false,
        }
    }
}
