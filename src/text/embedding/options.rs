//! What a caller may choose about embeddings: keys of a predict config.

use super::Pooling;

/// Choices; what is left open is as the package says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingOptions {
    /// Cut texts that are too long rather than refuse them (`truncate`).
    pub truncate: bool,
    /// Most tokens of a text, no more than the model takes (`max_length`).
    pub max_length: Option<usize>,
    /// How states become vectors; several are put one after the other (`pooling`).
    pub pooling: Option<Vec<Pooling>>,
    /// Whether vectors are scaled to length 1 (`normalize`).
    pub normalize: Option<bool>,
}

impl EmbeddingOptions {
    /// The keys of a predict config.
    pub const KEYS: [&'static str; 4] = ["truncate", "max_length", "pooling", "normalize"];
}
