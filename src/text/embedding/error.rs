//! Why there is no vector for a text.

use std::path::PathBuf;

use super::Said;
use crate::tensor::TensorError;
use crate::text::tokenizer::TokenizerError;

/// Why texts are not embedded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EmbeddingError {
    /// The tokenizer, or a text that it does not take.
    #[error(transparent)]
    Tokenizer(TokenizerError),
    /// A file beside the model that says something else than it may.
    #[error("{} {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The model is none that embeds texts, as far as can be seen.
    #[error("it is no model that texts can be given to: {0}")]
    Signature(String),
    /// A predict config, or an option, that the model does not allow.
    #[error("`{key}`: {reason}")]
    Option {
        /// The key.
        key: &'static str,
        /// What was expected, and found.
        reason: String,
    },
    /// More texts than are embedded at once.
    #[error("there are {texts} texts; no more than {limit} are embedded at once")]
    TooMany {
        /// How many there are.
        texts: usize,
        /// Most.
        limit: usize,
    },
    /// A text of more bytes than are looked at.
    #[error("text {text} has {bytes} bytes; no more than {limit} are embedded at once")]
    TooLarge {
        /// Its place.
        text: usize,
        /// Its size; four bytes a token, where ids are given.
        bytes: usize,
        /// Most.
        limit: usize,
    },
    /// Texts of more bytes together than are looked at.
    #[error("the texts have {bytes} bytes together; no more than {limit} are embedded at once")]
    TooLargeTogether {
        /// All of them.
        bytes: usize,
        /// Most.
        limit: usize,
    },
    /// A text of more tokens than the model takes.
    #[error(
        "text {text} has {tokens} tokens, and the model takes {} ({}); shorten it, or set `truncate`",
        limit.value, limit.by
    )]
    TooLong {
        /// Its place.
        text: usize,
        /// Its tokens, those that the tokenizer adds included.
        tokens: usize,
        /// Most, and what says so.
        limit: Said<usize>,
    },
    /// A text that becomes no token.
    #[error("text {text} has no tokens; give it at least one word")]
    NoTokens {
        /// Its place.
        text: usize,
    },
    /// An id that is no token.
    #[error("text {text} has the token {id}, and the vocabulary has {tokens} tokens")]
    UnknownToken {
        /// The text's place.
        text: usize,
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        tokens: usize,
    },
    /// The inputs could not be made.
    #[error("the inputs cannot be made: {0}")]
    Inputs(#[from] TensorError),
    /// The model gave something else than vectors or states.
    #[error("the model's answer is no embedding: {0}")]
    Output(String),
}

impl EmbeddingError {
    /// An error of the tokenizer; `longest` says where its bound comes from.
    pub(super) fn of_tokenizer(error: TokenizerError, longest: &Said<usize>) -> Self {
        match error {
            TokenizerError::TooManyTokens { text, tokens, .. } => Self::TooLong {
                text,
                tokens,
                limit: longest.clone(),
            },
            error => Self::Tokenizer(error),
        }
    }

    /// The place of the text that is to blame, if one is.
    pub fn text(&self) -> Option<usize> {
        match self {
            Self::TooLarge { text, .. }
            | Self::TooLong { text, .. }
            | Self::NoTokens { text }
            | Self::UnknownToken { text, .. } => Some(*text),
            _ => None,
        }
    }

    /// Whether what was asked for is to blame, not the package.
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
