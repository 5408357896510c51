//! The tokenizer of a package: encodes texts to token ids, and decodes ids to text.
//!
//! This module owns `tokenizer.json` and `tokenizer_config.json`, and only it uses the tokenizers
//! library. Invariant: truncation and padding happen only on request, never because of a setting in
//! a file. The length of a text is checked before it is encoded. A panic of the library becomes an
//! error. A tokenizer that encodes in worker processes runs neither its normaliser nor its patterns
//! in this process. Models are handled elsewhere.

pub mod config;
mod decoding;
mod detokenizer;
mod elsewhere;
mod error;
mod files;
mod guard;
mod kind;
mod load;
mod read;
mod vocabulary;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tokenizers::{Encoding, TruncationDirection};

pub use config::{AddedToken, SequenceSide, TokenizerConfig};
pub use detokenizer::Detokenizer;
pub use elsewhere::{EncodingWork, JOB_NAME};
pub use error::TokenizerError;
pub use files::TokenizerFiles;
pub use kind::ForeignKind;
pub use vocabulary::Vocabulary;

use elsewhere::TokenizerSource;
use guard::catch_panic;
use load::ParsedTokenizer;
use pkgtool_engine::runtime::parsers::ParserClient;
use vocabulary::ByteSpelling;

/// Maximum size of a text, in bytes: more than a million tokens. Encoding temporarily takes about
/// two hundred times as much memory.
pub const MAX_TEXT_BYTES: usize = 4 << 20;

/// Minimum number of texts that are encoded on several threads.
const MIN_PARALLEL_TEXTS: usize = 8;

/// A loaded tokenizer. Encoding and decoding need no lock. Clones share the data.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    shared: Arc<SharedTokenizer>,
    /// The client of the worker processes that encode, if this process does not.
    client: Option<ParserClient>,
}

#[derive(Debug)]
struct SharedTokenizer {
    /// The files for worker processes. If set, `library` has no normaliser and no patterns.
    source: Option<TokenizerSource>,
    library: tokenizers::Tokenizer,
    config: TokenizerConfig,
    padding: Padding,
    truncation_side: SequenceSide,
    spelling: ByteSpelling,
    /// The file's decoder settings, which define how ids become text.
    decoder: serde_json::Value,
    vocabulary: OnceLock<Vocabulary>,
}

/// The padding that fills the rows of a batch up to the longest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding {
    /// The token id; `None` if no file names one.
    pub id: Option<u32>,
    /// The type id of padding.
    pub type_id: u32,
    /// The side of the padding.
    pub side: SequenceSide,
}

/// The treatment of special tokens that a model expects around a text (`[CLS]`, `<s>`, …).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpecialTokens {
    /// Added, as the tokenizer defines: for plain texts.
    Added,
    /// Not added: for rendered templates, which contain them.
    Absent,
}

/// The treatment of texts with too many tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverlongPolicy {
    /// They are rejected; the error names both numbers.
    Refused,
    /// They are truncated on the tokenizer's side.
    Truncated,
}

/// A limit on the number of tokens of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenLimit {
    /// Maximum number of tokens, including added ones.
    pub tokens: usize,
    /// The treatment of longer texts.
    pub overlong: OverlongPolicy,
}

/// An encoded text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodedText {
    /// Token ids.
    pub ids: Vec<u32>,
    /// The segment of each token; 0 unless the tokenizer sets another.
    pub type_ids: Vec<u32>,
}

impl Tokenizer {
    /// Loads `tokenizer.json` and, if given, `tokenizer_config.json`. A large vocabulary takes
    /// seconds, so call this once, and not where a request waits.
    pub fn load(file: &Path, config: Option<&Path>) -> Result<Self, TokenizerError> {
        let config = match config {
            Some(config) => TokenizerConfig::read(config)?,
            None => TokenizerConfig::default(),
        };
        let bytes = read::bounded(file, load::MAX_TOKENIZER_BYTES)?;
        Self::parse(file, &bytes, config)
    }

    /// Loads the tokenizer of a package.
    pub fn of(files: &TokenizerFiles) -> Result<Self, TokenizerError> {
        Self::load(&files.tokenizer, files.config.as_deref())
    }

    /// Loads a tokenizer that encodes texts in worker processes. Decoding runs in this process,
    /// within limits.
    pub fn with_worker(
        files: &TokenizerFiles,
        client: &ParserClient,
    ) -> Result<Self, TokenizerError> {
        let (source, [tokenizer, config]) = TokenizerSource::read(files)?;
        let config = match &files.config {
            Some(path) => TokenizerConfig::parse(path, &config)?,
            None => TokenizerConfig::default(),
        };
        // Encoding an empty text makes the worker load the normaliser and the patterns.
        let encoding = (SpecialTokens::Absent, None);
        source.encode(client, &[""], encoding)?;
        let tokenizer = load::without_pipeline(&files.tokenizer, tokenizer)?;
        let own = Self::of_parts(&files.tokenizer, &tokenizer, config, Some(source))?;
        decoding::check(&files.tokenizer, &own)?;
        Ok(own.on_behalf(client.new_request()))
    }

    /// Returns a copy for one request, whose texts are encoded on behalf of that client.
    #[must_use]
    pub fn on_behalf(&self, client: ParserClient) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            client: Some(client),
        }
    }

    /// Parses the bytes of a `tokenizer.json`; `file` is for messages.
    pub fn parse(
        file: &Path,
        bytes: &[u8],
        config: TokenizerConfig,
    ) -> Result<Self, TokenizerError> {
        Self::of_parts(file, bytes, config, None)
    }

    fn of_parts(
        file: &Path,
        bytes: &[u8],
        config: TokenizerConfig,
        source: Option<TokenizerSource>,
    ) -> Result<Self, TokenizerError> {
        let parsed = load::parse(file, bytes, &config)?;
        let ParsedTokenizer {
            tokenizer,
            padding,
            truncation_side,
        } = parsed;
        let decoder = catch_panic(|| {
            let decoder = tokenizer.get_decoder();
            Ok(decoder.map(serde_json::to_value).transpose()?)
        })?;
        let shared = SharedTokenizer {
            source,
            library: tokenizer,
            config,
            padding,
            truncation_side,
            spelling: ByteSpelling::of(decoder.as_ref()),
            decoder: decoder.unwrap_or_default(),
            vocabulary: OnceLock::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            client: None,
        })
    }

    /// Returns the settings of `tokenizer_config.json`; empty if that file is missing.
    pub fn config(&self) -> &TokenizerConfig {
        &self.shared.config
    }

    /// Returns the padding settings.
    pub fn padding(&self) -> Padding {
        self.shared.padding
    }

    /// Returns the id of a token by its text, whether from the vocabulary or added.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.shared.library.token_to_id(token)
    }

    /// Returns the text of the token that stands for a picture, if the settings name one.
    pub fn image_token(&self) -> Option<&str> {
        self.shared.config.image_token.as_deref()
    }

    /// Returns the id of the token that begins a sequence, if the settings name one.
    pub fn bos(&self) -> Option<u32> {
        self.id_of(self.shared.config.bos_token.as_deref()?)
    }

    /// Returns the id of the token that ends a sequence, if the settings name one.
    pub fn eos(&self) -> Option<u32> {
        self.id_of(self.shared.config.eos_token.as_deref()?)
    }

    /// Encodes a text.
    pub fn encode(&self, text: &str, specials: SpecialTokens) -> Result<Vec<u32>, TokenizerError> {
        let mut rows = self.encode_all(&[text], specials, None)?;
        Ok(rows.pop().unwrap_or_default().ids)
    }

    /// Returns the number of tokens of a text.
    pub fn count(&self, text: &str, specials: SpecialTokens) -> Result<usize, TokenizerError> {
        Ok(self.encode(text, specials)?.len())
    }

    /// Encodes several texts with special tokens, each within the limit. Nothing is padded.
    pub fn encode_batch(
        &self,
        texts: &[&str],
        bound: Option<TokenLimit>,
    ) -> Result<Vec<EncodedText>, TokenizerError> {
        self.encode_all(texts, SpecialTokens::Added, bound)
    }

    /// Encodes a text with special tokens, and truncates it to `most` tokens.
    pub fn encode_truncated(&self, text: &str, most: usize) -> Result<Vec<u32>, TokenizerError> {
        let limit = TokenLimit {
            tokens: most,
            overlong: OverlongPolicy::Truncated,
        };
        let mut rows = self.encode_batch(&[text], Some(limit))?;
        Ok(rows.pop().unwrap_or_default().ids)
    }

    /// Encodes several texts, in this process or in a worker process.
    fn encode_all(
        &self,
        texts: &[&str],
        specials: SpecialTokens,
        bound: Option<TokenLimit>,
    ) -> Result<Vec<EncodedText>, TokenizerError> {
        if let Some(long) = texts.iter().find(|text| text.len() > MAX_TEXT_BYTES) {
            return Err(TokenizerError::LongText {
                bytes: long.len(),
                limit: MAX_TEXT_BYTES,
            });
        }
        if let (Some(source), Some(client)) = (&self.shared.source, &self.client) {
            return source.encode(client, texts, (specials, bound));
        }
        let one = |(place, text): (usize, &&str)| {
            let encoded = self.shared.encoded(text, specials, bound);
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
        if texts.len() < MIN_PARALLEL_TEXTS {
            texts.iter().enumerate().map(one).collect()
        } else {
            texts.par_iter().enumerate().map(one).collect()
        }
    }

    /// Truncates ids to `most`, on the tokenizer's side.
    pub fn truncate(&self, ids: &mut Vec<u32>, most: usize) {
        match self.shared.truncation_side {
            SequenceSide::Right => ids.truncate(most),
            SequenceSide::Left => drop(ids.drain(..ids.len().saturating_sub(most))),
        }
    }

    /// Decodes ids to text; `skip_special` leaves out control tokens. Ids outside the vocabulary
    /// are ignored.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        let vocabulary = self.vocabulary();
        let is_told = |id: &u32| {
            vocabulary.bytes(*id).is_some() && !(skip_special && vocabulary.is_special(*id))
        };
        let ids: Vec<u32> = ids.iter().copied().filter(is_told).collect();
        // Some decoders of the library panic on empty input.
        if ids.is_empty() {
            return Ok(String::new());
        }
        catch_panic(|| self.shared.library.decode(&ids, skip_special))
    }

    /// Returns the bytes of each token, computed on first use.
    pub fn vocabulary(&self) -> &Vocabulary {
        let shared = &self.shared;
        shared.vocabulary.get_or_init(|| {
            let added = shared.library.get_added_vocabulary();
            let is_special = |token: &str| added.is_special_token(token);
            let tokens = shared.library.get_vocab(true).into_iter();
            let tokens = tokens.map(|(token, id)| {
                let special = is_special(&token);
                (token, id, special)
            });
            Vocabulary::of(tokens, &shared.spelling)
        })
    }

    /// Returns whether each token decodes to the same bytes at every position.
    fn is_exact(&self) -> bool {
        self.shared.spelling.is_exact()
    }
}

impl SharedTokenizer {
    fn encoded(
        &self,
        text: &str,
        specials: SpecialTokens,
        bound: Option<TokenLimit>,
    ) -> Result<EncodedText, TokenizerError> {
        let plain = catch_panic(|| self.library.encode_fast(text, false))?;
        let (plain, tokens) = match (specials, bound) {
            (SpecialTokens::Absent, None) => return Ok(EncodedText::of(&plain)),
            (_, None) => (plain, usize::MAX),
            (_, Some(bound)) => (self.bounded(plain, specials, bound)?, bound.tokens),
        };
        if specials == SpecialTokens::Absent {
            return Ok(EncodedText::of(&plain));
        }
        let whole = catch_panic(|| self.library.post_process(plain, None, true))?;
        debug_assert!(whole.get_ids().len() <= tokens, "truncated before");
        Ok(EncodedText::of(&whole))
    }

    /// Encodes a text without added tokens, and truncates it so that they fit.
    fn bounded(
        &self,
        mut plain: Encoding,
        specials: SpecialTokens,
        bound: TokenLimit,
    ) -> Result<Encoding, TokenizerError> {
        let added = match specials {
            SpecialTokens::Added => self.added(),
            SpecialTokens::Absent => 0,
        };
        let limit = bound.tokens;
        let Some(room) = limit.checked_sub(added) else {
            return Err(TokenizerError::NoRoom { limit, added });
        };
        let tokens = plain.get_ids().len() + added;
        if tokens <= limit {
            return Ok(plain);
        }
        if bound.overlong == OverlongPolicy::Refused {
            return Err(TokenizerError::TooManyTokens {
                text: 0,
                tokens,
                limit,
            });
        }
        let direction = match self.truncation_side {
            SequenceSide::Left => TruncationDirection::Left,
            SequenceSide::Right => TruncationDirection::Right,
        };
        plain.truncate(room, 0, direction);
        // The library keeps the truncated rest in pieces, and would add special tokens to them as
        // well.
        plain.set_overflowing(Vec::new());
        Ok(plain)
    }

    /// Returns the number of tokens that are added to every text.
    fn added(&self) -> usize {
        use tokenizers::PostProcessor as _;
        let processor = self.library.get_post_processor();
        processor.map_or(0, |processor| processor.added_tokens(false))
    }
}

impl EncodedText {
    fn of(encoding: &Encoding) -> Self {
        Self {
            ids: encoding.get_ids().to_vec(),
            type_ids: encoding.get_type_ids().to_vec(),
        }
    }
}
