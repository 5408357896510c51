//! Errors of recognising and running decoders.

use std::error::Error;

/// A model that cannot be used as a text decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{method}` is not a supported text decoder: {reason}")]
pub struct NotADecoder {
    /// The method.
    pub method: String,
    /// The expected and the found signature.
    pub reason: String,
}

/// A decoder that failed to compute logits.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// `going_on` returned false. Tokens that were fed until then stay in the decoder.
    #[error("the caller has disconnected")]
    Disconnected,
    /// The tokens exceed the model's context.
    #[error("too many tokens for the model's context: expected at most {context}, got {tokens}")]
    ContextFull {
        /// Number of tokens, held ones and new ones together.
        tokens: usize,
        /// The context length, in tokens.
        context: usize,
    },
    /// A token outside the model's vocabulary.
    #[error("unknown token {token}: the model has {vocabulary} tokens, numbered from 0")]
    Token {
        /// The token.
        token: u32,
        /// Number of tokens in the vocabulary.
        vocabulary: usize,
    },
    /// The model's output is not logits, or the call is not possible.
    #[error("{0}")]
    Model(String),
    /// The model failed on further tokens: its real context is smaller than its file states.
    #[error("the model failed after {held} tokens: {cause}")]
    BeyondContext {
        /// Number of tokens in the decoder.
        held: usize,
        /// The error of the step, unchanged.
        cause: Box<dyn Error + Send + Sync>,
    },
    /// A step failed; holds the error of the step, unchanged.
    #[error("{0}")]
    Step(#[source] Box<dyn Error + Send + Sync>),
}
