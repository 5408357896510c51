//! What can be wrong with settings of sampling, and with logits.

use thiserror::Error;

/// Settings that are out of bounds, or logits that nothing can be drawn from.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SamplingError {
    /// A setting has another type, or lies outside its bounds.
    #[error("`{field}` must be {expected}, not {found}")]
    Setting {
        /// As it is named where it was said.
        field: String,
        /// Type and bounds.
        expected: String,
        /// The value, cut where it is long.
        found: String,
    },
    /// A bias for a token that the model has not.
    #[error("`logit_bias` names token {token}; the model has tokens 0 to {last}")]
    Token {
        /// The token.
        token: u32,
        /// The model's last.
        last: usize,
    },
    /// The model gave no number, or an infinite one.
    #[error(
        "the model gave {value} for token {token}: the file is damaged, or its precision is too low \
         for this input"
    )]
    NotFinite {
        /// The first such token.
        token: usize,
        /// `NaN` or `inf`.
        value: f32,
    },
    /// Every token is ruled out, or there is none.
    #[error("no token may follow: the model or the constraint rules out all of {tokens}")]
    Nothing {
        /// How many there are.
        tokens: usize,
    },
}
