//! Errors of a tokenizer's files and of encoding texts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::kind::ForeignKind;
use pkgtool_engine::runtime::parsers::ParserError;

/// A tokenizer that cannot be loaded, or a text that cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum TokenizerError {
    /// A config names a file outside its package.
    #[error("{}: `{key}` is `{reference}`, which {reason}", config.display())]
    Reference {
        /// The config.
        config: PathBuf,
        /// Its key.
        key: String,
        /// The value of the key.
        reference: String,
        /// The reason why the reference is rejected.
        reason: String,
    },
    /// A file cannot be read.
    #[error("{} cannot be read: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The message of the operating system.
        reason: String,
    },
    /// A file is too large to be a tokenizer file.
    #[error(
        "{} is too large: expected at most {limit} bytes, got {bytes}; is it the right file?",
        file.display()
    )]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// Its size, in bytes.
        bytes: u64,
        /// Maximum size, in bytes.
        limit: u64,
    },
    /// The file is a Git LFS pointer.
    #[error("{} is a Git LFS pointer, not the file; run `git lfs pull`", file.display())]
    LfsPointer {
        /// The file.
        file: PathBuf,
    },
    /// The tokenizer has another format.
    #[error("{} is {kind}, not a `tokenizer.json`: {}", file.display(), kind.help())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Its format.
        kind: ForeignKind,
    },
    /// Invalid JSON, or JSON that is not a valid tokenizer file.
    #[error("{} is broken: {reason}", file.display())]
    Broken {
        /// The file.
        file: PathBuf,
        /// The problem, without a full stop.
        reason: String,
    },
    /// A text is too long to be encoded.
    #[error("the text is too large: expected at most {limit} bytes, got {bytes}")]
    LongText {
        /// Size of the text, in bytes.
        bytes: usize,
        /// Maximum size, in bytes.
        limit: usize,
    },
    /// A text has more tokens than allowed.
    #[error(
        "the text has {tokens} tokens, but the model accepts {limit}; shorten it, or have it truncated"
    )]
    TooManyTokens {
        /// Index of the text in the request.
        text: usize,
        /// Number of its tokens, including those that the tokenizer adds.
        tokens: usize,
        /// Maximum number of tokens.
        limit: usize,
    },
    /// The limit leaves no room for the tokens that are always added.
    #[error("a limit of {limit} tokens is too small: the tokenizer adds {added} to every text")]
    NoRoom {
        /// Maximum number of tokens.
        limit: usize,
        /// Number of tokens that are always added.
        added: usize,
    },
    /// The tokenizers library failed.
    #[error("the tokenizer failed: {0}")]
    Failed(String),
    /// The worker process failed to encode the text.
    #[error("the tokenizer did not encode the text: {0}")]
    #[serde(skip)]
    Parser(#[from] ParserError),
}
