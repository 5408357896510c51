//! The tokenizer of a package: texts to ids and back.
//!
//! Owns all that is known of `tokenizer.json` and `tokenizer_config.json`, and the only use of the library
//! that reads them. Invariant: cutting and filling rows is asked for, never what a file says; no text is
//! encoded before its length was held against a bound; a panic of the library is an error here. Knows no
//! model.

pub mod config;
mod detokenizer;
mod error;
mod files;
mod guard;
mod kind;
mod load;
mod read;
mod vocabulary;

use std::path::Path;
use std::sync::OnceLock;

use rayon::prelude::*;
use tokenizers::{Encoding, TruncationDirection};

pub use config::{AddedToken, Side, TokenizerConfig};
pub use detokenizer::Detokenizer;
pub use error::TokenizerError;
pub use files::TokenizerFiles;
pub use kind::ForeignKind;
pub use vocabulary::Vocabulary;

use guard::guarded;
use load::Parsed;
use vocabulary::Spelling;

/// Longest text that is encoded at once, in bytes: a million tokens and more. Encoding takes some two
/// hundred times as much memory for a while.
pub const MAX_TEXT: usize = 4 << 20;

/// From so many texts on they are encoded on several threads.
const PARALLEL: usize = 8;

/// A tokenizer, as it was loaded once; encoding and decoding need no lock.
#[derive(Debug)]
pub struct Tokenizer {
    library: tokenizers::Tokenizer,
    config: TokenizerConfig,
    padding: Padding,
    truncation_side: Side,
    spelling: Spelling,
    vocabulary: OnceLock<Vocabulary>,
}

/// What rows of a batch are filled with, to be as long as its longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding {
    /// The id; `None` where no file names one.
    pub id: Option<u32>,
    /// The type id at the same places.
    pub type_id: u32,
    /// On which side.
    pub side: Side,
}

/// Whether the tokens that a model expects around a text (`[CLS]`, `<s>`, …) are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// As the tokenizer says: for texts by themselves.
    Added,
    /// No: for rendered templates, which write them.
    Absent,
}

/// What happens to a text of more tokens than are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlong {
    /// It is refused, with both numbers.
    Refused,
    /// It is cut on the tokenizer's side.
    Truncated,
}

/// How many tokens a text may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Most tokens, those that are added included.
    pub tokens: usize,
    /// What happens above that.
    pub overlong: Overlong,
}

/// A text as a model takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Ids of its tokens.
    pub ids: Vec<u32>,
    /// Which part each token belongs to; 0 but for tokenizers that say otherwise.
    pub type_ids: Vec<u32>,
}

impl Tokenizer {
    /// Loads `tokenizer.json` and, where there is one, `tokenizer_config.json`. Takes seconds for a large
    /// vocabulary: to be called once, where nothing waits.
    pub fn load(file: &Path, config: Option<&Path>) -> Result<Self, TokenizerError> {
        let config = match config {
            Some(config) => TokenizerConfig::read(config)?,
            None => TokenizerConfig::default(),
        };
        let bytes = read::bounded(file, load::MAX_BYTES)?;
        Self::parse(file, &bytes, config)
    }

    /// Loads the tokenizer of a package.
    pub fn of(files: &TokenizerFiles) -> Result<Self, TokenizerError> {
        Self::load(&files.tokenizer, files.config.as_deref())
    }

    /// The tokenizer in the bytes of a file; `file` is for messages.
    pub fn parse(
        file: &Path,
        bytes: &[u8],
        config: TokenizerConfig,
    ) -> Result<Self, TokenizerError> {
        let parsed = load::parse(file, bytes, &config)?;
        let Parsed {
            tokenizer,
            padding,
            truncation_side,
        } = parsed;
        let decoder = guarded(|| {
            let decoder = tokenizer.get_decoder();
            Ok(decoder.map(serde_json::to_value).transpose()?)
        })?;
        Ok(Self {
            library: tokenizer,
            config,
            padding,
            truncation_side,
            spelling: Spelling::of(decoder.as_ref()),
            vocabulary: OnceLock::new(),
        })
    }

    /// What `tokenizer_config.json` says; nothing where there is none.
    pub fn config(&self) -> &TokenizerConfig {
        &self.config
    }

    /// What rows are filled with.
    pub fn padding(&self) -> Padding {
        self.padding
    }

    /// The id of a token by its text, be it of the vocabulary or added.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.library.token_to_id(token)
    }

    /// The id of the token at the beginning of a sequence, where the settings name one.
    pub fn bos(&self) -> Option<u32> {
        self.id_of(self.config.bos_token.as_deref()?)
    }

    /// The id of the token at the end of a sequence, where the settings name one.
    pub fn eos(&self) -> Option<u32> {
        self.id_of(self.config.eos_token.as_deref()?)
    }

    /// The ids of a text.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.encoded(text, specials, None)?.ids)
    }

    /// How many tokens a text has.
    pub fn count(&self, text: &str, specials: Specials) -> Result<usize, TokenizerError> {
        Ok(self.encoded(text, specials, None)?.ids.len())
    }

    /// Several texts, each with the special tokens, none longer than the bound; nothing is filled.
    pub fn encode_batch(
        &self,
        texts: &[&str],
        bound: Option<Bound>,
    ) -> Result<Vec<Encoded>, TokenizerError> {
        let one = |(place, text): (usize, &&str)| {
            let encoded = self.encoded(text, Specials::Added, bound);
            encoded.map_err(|error| match error {
                TokenizerError::TooManyTokens { tokens, limit, .. } => {
                    TokenizerError::TooManyTokens {
                        text: place,
                        tokens,
                        limit,
                    }
                }
                other => other,
            })
        };
        if texts.len() < PARALLEL {
            texts.iter().enumerate().map(one).collect()
        } else {
            texts.par_iter().enumerate().map(one).collect()
        }
    }

    /// Cuts ids to so many, on the tokenizer's side.
    pub fn truncate(&self, ids: &mut Vec<u32>, most: usize) {
        match self.truncation_side {
            Side::Right => ids.truncate(most),
            Side::Left => drop(ids.drain(..ids.len().saturating_sub(most))),
        }
    }

    /// The text of ids; `skip_special` leaves out tokens that only control. Ids that are no tokens are
    /// left out.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        let vocabulary = self.vocabulary();
        let is_told = |id: &u32| {
            vocabulary.bytes(*id).is_some() && !(skip_special && vocabulary.is_special(*id))
        };
        let ids: Vec<u32> = ids.iter().copied().filter(is_told).collect();
        // A decoder of the library panics on nothing.
        if ids.is_empty() {
            return Ok(String::new());
        }
        guarded(|| self.library.decode(&ids, skip_special))
    }

    /// Each id's bytes; made when it is first asked for.
    pub fn vocabulary(&self) -> &Vocabulary {
        self.vocabulary.get_or_init(|| {
            let added = self.library.get_added_vocabulary();
            let is_special = |token: &str| added.is_special_token(token);
            let tokens = self.library.get_vocab(true).into_iter();
            let tokens = tokens.map(|(token, id)| {
                let special = is_special(&token);
                (token, id, special)
            });
            Vocabulary::of(tokens, &self.spelling)
        })
    }

    /// Whether tokens are nothing but their bytes, wherever they stand.
    fn is_exact(&self) -> bool {
        self.spelling.is_exact()
    }

    fn encoded(
        &self,
        text: &str,
        specials: Specials,
        bound: Option<Bound>,
    ) -> Result<Encoded, TokenizerError> {
        if text.len() > MAX_TEXT {
            return Err(TokenizerError::LongText {
                bytes: text.len(),
                limit: MAX_TEXT,
            });
        }
        let plain = guarded(|| self.library.encode_fast(text, false))?;
        let (plain, tokens) = match (specials, bound) {
            (Specials::Absent, None) => return Ok(Encoded::of(&plain)),
            (_, None) => (plain, usize::MAX),
            (_, Some(bound)) => (self.bounded(plain, specials, bound)?, bound.tokens),
        };
        if specials == Specials::Absent {
            return Ok(Encoded::of(&plain));
        }
        let whole = guarded(|| self.library.post_process(plain, None, true))?;
        debug_assert!(whole.get_ids().len() <= tokens, "it was cut before");
        Ok(Encoded::of(&whole))
    }

    /// A text without added tokens, short enough to have them added.
    fn bounded(
        &self,
        mut plain: Encoding,
        specials: Specials,
        bound: Bound,
    ) -> Result<Encoding, TokenizerError> {
        let added = match specials {
            Specials::Added => self.added(),
            Specials::Absent => 0,
        };
        let limit = bound.tokens;
        let Some(room) = limit.checked_sub(added) else {
            return Err(TokenizerError::NoRoom { limit, added });
        };
        let tokens = plain.get_ids().len() + added;
        if tokens <= limit {
            return Ok(plain);
        }
        if bound.overlong == Overlong::Refused {
            return Err(TokenizerError::TooManyTokens {
                text: 0,
                tokens,
                limit,
            });
        }
        let direction = match self.truncation_side {
            Side::Left => TruncationDirection::Left,
            Side::Right => TruncationDirection::Right,
        };
        plain.truncate(room, 0, direction);
        // What was cut off is kept in pieces, and would be given the added tokens, too.
        plain.set_overflowing(Vec::new());
        Ok(plain)
    }

    /// How many tokens are added to every text.
    fn added(&self) -> usize {
        use tokenizers::PostProcessor as _;
        let processor = self.library.get_post_processor();
        processor.map_or(0, |processor| processor.added_tokens(false))
    }
}

impl Encoded {
    fn of(encoding: &Encoding) -> Self {
        Self {
            ids: encoding.get_ids().to_vec(),
            type_ids: encoding.get_type_ids().to_vec(),
        }
    }
}
