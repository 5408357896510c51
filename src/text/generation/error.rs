//! Why a text was not generated.

use std::error::Error;

use crate::text::constraint::ConstraintError;
use crate::text::decoder::DecodeError;
use crate::text::sampling::SamplingError;

/// What a tokenizer says went wrong.
pub type Fault = Box<dyn Error + Send + Sync>;

/// A request that cannot be answered, or a model that fails at it.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// Nothing to begin with.
    #[error("the prompt has no token; at least one is needed")]
    EmptyPrompt,
    /// No choice is asked for.
    #[error("`n` must be at least 1, not 0")]
    NoChoice,
    /// No token is asked for.
    #[error("`max_tokens` must be at least 1, not 0")]
    NoTokens,
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {prompt} tokens, and the model holds {context} with the answer: shorten it"
    )]
    LongPrompt {
        /// Its tokens.
        prompt: usize,
        /// Most that the model holds.
        context: usize,
    },
    /// The prompt leaves less room than is asked for.
    #[error(
        "the prompt has {prompt} tokens and `max_tokens` is {max_tokens}, together {}; the model holds \
         {context}: shorten the prompt or lower `max_tokens`",
        prompt.saturating_add(*max_tokens)
    )]
    LongAnswer {
        /// The prompt's tokens.
        prompt: usize,
        /// Those asked for.
        max_tokens: usize,
        /// Most that the model holds.
        context: usize,
    },
    /// Settings, or logits that nothing can be drawn from.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The constraint cannot be followed.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The model failed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The tokens have no text.
    #[error("the text of a token cannot be told: {0}")]
    Detokenize(#[source] Fault),
}

impl GenerationError {
    /// Whether the request asks for what cannot be; otherwise the model or the tool is at fault.
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
            // Those that the model chooses it has.
            Self::Decode(error) => matches!(error, DecodeError::Token { .. }),
            Self::Detokenize(_) => false,
        }
    }
}
