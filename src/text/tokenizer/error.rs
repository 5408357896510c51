//! What goes wrong with a tokenizer's files, and with a text.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::kind::ForeignKind;
use crate::runtime::parsers::ParserError;

/// Why there is no tokenizer, or no ids for a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum TokenizerError {
    /// A config that names a file outside its package.
    #[error("{}: `{key}` is `{reference}`, which {reason}", config.display())]
    Reference {
        /// The config.
        config: PathBuf,
        /// Its key.
        key: String,
        /// What it says.
        reference: String,
        /// Why that cannot be followed.
        reason: String,
    },
    /// A file that cannot be read.
    #[error("{} cannot be read: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A file that is too large to be what it is named as.
    #[error(
        "{} has {bytes} bytes, and no more than {limit} are read; is it the right file?",
        file.display()
    )]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// Its size.
        bytes: u64,
        /// Longest that is read.
        limit: u64,
    },
    /// A pointer of Git LFS in the file's place.
    #[error("{} is a Git LFS pointer, not the file; run `git lfs pull`", file.display())]
    LfsPointer {
        /// The file.
        file: PathBuf,
    },
    /// A tokenizer in another format.
    #[error("{} is {kind}, and a `tokenizer.json` is needed: {}", file.display(), kind.help())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// What it is.
        kind: ForeignKind,
    },
    /// No JSON, or JSON that is no such file.
    #[error("{} is broken: {reason}", file.display())]
    Broken {
        /// The file.
        file: PathBuf,
        /// What is wrong, without a full stop.
        reason: String,
    },
    /// A text that is longer than any that is encoded.
    #[error("the text has {bytes} bytes; no more than {limit} are encoded at once")]
    LongText {
        /// Bytes of the text.
        bytes: usize,
        /// Most bytes.
        limit: usize,
    },
    /// A text of more tokens than were allowed.
    #[error(
        "the text has {tokens} tokens, and the model takes {limit}; shorten it, or have it truncated"
    )]
    TooManyTokens {
        /// Place of the text among those given.
        text: usize,
        /// Tokens of the text, those that the tokenizer adds included.
        tokens: usize,
        /// Most tokens.
        limit: usize,
    },
    /// A bound that leaves no room for the tokens that are always added.
    #[error("a bound of {limit} tokens is too small: the tokenizer adds {added} to every text")]
    NoRoom {
        /// The bound.
        limit: usize,
        /// Tokens that are added.
        added: usize,
    },
    /// The library could not do it.
    #[error("the tokenizer failed: {0}")]
    Failed(String),
    /// The process that encodes did not.
    #[error("the text was not encoded by the tokenizer: {0}")]
    #[serde(skip)]
    Parser(#[from] ParserError),
}
