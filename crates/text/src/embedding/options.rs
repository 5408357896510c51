//! Embedding options of a caller, set as keys of a predict config.

use super::Pooling;

/// Embedding options. Unset ones follow the package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingOptions {
    /// Cut texts that are too long instead of rejecting them (`truncate`).
    pub truncate: bool,
    /// Maximum number of tokens of a text, at most the model's own limit (`max_length`).
    pub max_length: Option<usize>,
    /// Pooling methods; the results of several are concatenated (`pooling`).
    pub pooling: Option<Vec<Pooling>>,
    /// Scale vectors to length 1 (`normalize`).
    pub normalize: Option<bool>,
}

impl EmbeddingOptions {
    /// The keys of a predict config.
    pub const KEYS: [&'static str; 4] = ["truncate", "max_length", "pooling", "normalize"];
}
