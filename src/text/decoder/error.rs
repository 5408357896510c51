//! Why a model is no decoder, and why one gave no logits.

use std::error::Error;

/// Why a model cannot be used as a decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{method}` is no text decoder that can be run here: {reason}")]
pub struct NotADecoder {
    /// The method.
    pub method: String,
    /// What was expected, and what was found.
    pub reason: String,
}

/// Why a model gave no logits.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// `going_on` said no. What was fed until then is held.
    #[error("the caller has gone")]
    Gone,
    /// More tokens than it can hold.
    #[error("{tokens} tokens do not fit: the model holds {context} at most")]
    Full {
        /// Those held, and those to be fed.
        tokens: usize,
        /// Most that it can hold.
        context: usize,
    },
    /// A token that the model does not have.
    #[error("there is no token {token}: the model has {vocabulary}, from 0")]
    Token {
        /// The token.
        token: u32,
        /// How many there are.
        vocabulary: usize,
    },
    /// The model gave something else than logits, or was asked for what it cannot do.
    #[error("{0}")]
    Model(String),
    /// The model does not take what was fed behind what it holds: it holds no more tokens, though nothing in its file
    /// says so.
    #[error("the model holds no more than {held} tokens: {cause}")]
    Beyond {
        /// How many it holds.
        held: usize,
        /// What whoever ran the step says, unchanged.
        cause: Box<dyn Error + Send + Sync>,
    },
    /// A step failed: what whoever ran it says, unchanged.
    #[error("{0}")]
    Step(#[source] Box<dyn Error + Send + Sync>),
}
