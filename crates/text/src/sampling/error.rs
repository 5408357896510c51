//! Errors of sampling settings and of logits.

use thiserror::Error;

/// A setting out of range, or logits that cannot be sampled.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SamplingError {
    /// A setting has the wrong type or is out of range.
    #[error("`{field}` must be {expected}, not {found}")]
    Setting {
        /// Name of the field.
        field: String,
        /// The expected type and range.
        expected: String,
        /// The value, cut if it is long.
        found: String,
    },
    /// A bias for a token outside the model's vocabulary.
    #[error("`logit_bias` has the unknown token {token}: expected 0 to {last}")]
    Token {
        /// The token.
        token: u32,
        /// The last token of the vocabulary.
        last: usize,
    },
    /// A logit is NaN or infinite.
    #[error(
        "the model computed {value} for token {token}: the file is damaged, or its precision is too low \
         for this input"
    )]
    NotFinite {
        /// The first such token.
        token: usize,
        /// `NaN` or `inf`.
        value: f32,
    },
    /// Every token is excluded, or the vocabulary is empty.
    #[error("no token can follow: the model or the constraint excludes all {tokens} tokens")]
    Nothing {
        /// Number of tokens.
        tokens: usize,
    },
}
