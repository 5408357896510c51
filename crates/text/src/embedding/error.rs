//! Errors of embedding texts.

use std::path::PathBuf;

use super::Sourced;
use crate::tokenizer::TokenizerError;
use pkgtool_engine::tensor::TensorError;

/// Texts that cannot be embedded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EmbeddingError {
    /// The tokenizer is broken, or rejects a text.
    #[error(transparent)]
    Tokenizer(TokenizerError),
    /// A file beside the model is invalid.
    #[error("{} {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The model is not recognised as a text embedding model.
    #[error("not a text embedding model: {0}")]
    Signature(String),
    /// A predict config or an option that the model does not allow.
    #[error("`{key}`: {reason}")]
    Option {
        /// The key.
        key: &'static str,
        /// The expected and the found value.
        reason: String,
    },
    /// Too many texts in one request.
    #[error("too many texts: expected at most {limit}, got {texts}")]
    TooMany {
        /// Number of texts.
        texts: usize,
        /// Maximum number of texts.
        limit: usize,
    },
    /// A text is too large.
    #[error("text {text} is too large: expected at most {limit} bytes, got {bytes}")]
    TooLarge {
        /// Index of the text.
        text: usize,
        /// Its size in bytes; token ids count four bytes each.
        bytes: usize,
        /// Maximum size, in bytes.
        limit: usize,
    },
    /// The texts together are too large.
    #[error("the texts together are too large: expected at most {limit} bytes, got {bytes}")]
    TooLargeTogether {
        /// Their total size, in bytes.
        bytes: usize,
        /// Maximum total size, in bytes.
        limit: usize,
    },
    /// A text has more tokens than the model accepts.
    #[error(
        "text {text} has {tokens} tokens, but the model accepts {} ({}); shorten it, or set `truncate`",
        limit.value, limit.by
    )]
    TooLong {
        /// Index of the text.
        text: usize,
        /// Number of its tokens, including those that the tokenizer adds.
        tokens: usize,
        /// Maximum number of tokens, and the source of this limit.
        limit: Sourced<usize>,
    },
    /// A text without any token.
    #[error("text {text} has no tokens; give it at least one word")]
    NoTokens {
        /// Index of the text.
        text: usize,
    },
    /// A token id outside the vocabulary.
    #[error("text {text} has the unknown token {id}: the vocabulary has {tokens} tokens")]
    UnknownToken {
        /// Index of the text.
        text: usize,
        /// The token id.
        id: u32,
        /// Size of the vocabulary.
        tokens: usize,
    },
    /// The input tensors cannot be built.
    #[error("cannot build the inputs: {0}")]
    Inputs(#[from] TensorError),
    /// The model's output is neither a vector nor token states.
    #[error("the model's output is not an embedding: {0}")]
    Output(String),
}

impl EmbeddingError {
    /// Converts an error of the tokenizer; `longest` adds the source of its limit.
    pub(super) fn of_tokenizer(error: TokenizerError, longest: &Sourced<usize>) -> Self {
        match error {
            TokenizerError::TooManyTokens { text, tokens, .. } => Self::TooLong {
                text,
                tokens,
                limit: longest.clone(),
            },
            error => Self::Tokenizer(error),
        }
    }

    /// Returns the index of the text at fault, if any.
    pub fn text(&self) -> Option<usize> {
        match self {
            Self::TooLarge { text, .. }
            | Self::TooLong { text, .. }
            | Self::NoTokens { text }
            | Self::UnknownToken { text, .. } => Some(*text),
            _ => None,
        }
    }

    /// Returns whether the request is at fault. Otherwise the package is.
    pub fn is_by_request(&self) -> bool {
        let by_text = matches!(
            self,
            Self::Tokenizer(TokenizerError::LongText { .. } | TokenizerError::NoRoom { .. })
        );
        let by_amount = matches!(
            self,
            Self::TooMany { .. } | Self::TooLargeTogether { .. } | Self::Option { .. }
        );
        by_text || by_amount || self.text().is_some()
    }
}
