//! The tokenizer of a package: texts to ids and back.
//!
//! Owns all that is known of `tokenizer.json` and `tokenizer_config.json`, and the only use of the library
//! that reads them. Invariant: cutting and filling rows is asked for, never what a file says; no text is
//! encoded before its length was held against a bound; a panic of the library is an error here. A tokenizer
//! that was loaded to encode elsewhere runs neither normaliser nor pattern in this process. Knows no model.

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

pub use config::{AddedToken, Side, TokenizerConfig};
pub use detokenizer::Detokenizer;
pub use elsewhere::{Encoding as EncodingWork, WORK};
pub use error::TokenizerError;
pub use files::TokenizerFiles;
pub use kind::ForeignKind;
pub use vocabulary::Vocabulary;

use crate::runtime::parsers::Client;
use elsewhere::Source;
use guard::guarded;
use load::Parsed;
use vocabulary::Spelling;

/// Longest text that is encoded at once, in bytes: a million tokens and more. Encoding takes some two
/// hundred times as much memory for a while.
pub const MAX_TEXT: usize = 4 << 20;

/// From so many texts on they are encoded on several threads.
const PARALLEL: usize = 8;

/// A tokenizer, as it was loaded once; encoding and decoding need no lock. Copies share it.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
    /// Who encodes, if not this process.
    client: Option<Client>,
}

#[derive(Debug)]
struct Shared {
    /// Where other processes get it from; then the library here has no normaliser and no pattern.
    source: Option<Source>,
    library: tokenizers::Tokenizer,
    config: TokenizerConfig,
    padding: Padding,
    truncation_side: Side,
    spelling: Spelling,
    /// How the file says that ids become a text.
    decoder: serde_json::Value,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Specials {
    /// As the tokenizer says: for texts by themselves.
    Added,
    /// No: for rendered templates, which write them.
    Absent,
}

/// What happens to a text of more tokens than are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlong {
    /// It is refused, with both numbers.
    Refused,
    /// It is cut on the tokenizer's side.
    Truncated,
}

/// How many tokens a text may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Loads a tokenizer whose texts other processes encode. What it decodes here is bounded.
    pub fn elsewhere(files: &TokenizerFiles, client: &Client) -> Result<Self, TokenizerError> {
        let (source, [tokenizer, config]) = Source::read(files)?;
        let config = match &files.config {
            Some(path) => TokenizerConfig::parse(path, &config)?,
            None => TokenizerConfig::default(),
        };
        // Its normaliser and its patterns are read by the other process: an empty text does that.
        let encoding = (Specials::Absent, None);
        source.encode(client, &[""], encoding)?;
        let tokenizer = load::without_pipeline(&files.tokenizer, tokenizer)?;
        let own = Self::of_parts(&files.tokenizer, &tokenizer, config, Some(source))?;
        decoding::check(&files.tokenizer, &own)?;
        Ok(own.on_behalf(client.again()))
    }

    /// The same tokenizer for one request: its texts are encoded on behalf of that client.
    #[must_use]
    pub fn on_behalf(&self, client: Client) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            client: Some(client),
        }
    }

    /// The tokenizer in the bytes of a file; `file` is for messages.
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
        source: Option<Source>,
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
        let shared = Shared {
            source,
            library: tokenizer,
            config,
            padding,
            truncation_side,
            spelling: Spelling::of(decoder.as_ref()),
            decoder: decoder.unwrap_or_default(),
            vocabulary: OnceLock::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            client: None,
        })
    }

    /// What `tokenizer_config.json` says; nothing where there is none.
    pub fn config(&self) -> &TokenizerConfig {
        &self.shared.config
    }

    /// What rows are filled with.
    pub fn padding(&self) -> Padding {
        self.shared.padding
    }

    /// The id of a token by its text, be it of the vocabulary or added.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.shared.library.token_to_id(token)
    }

    /// The id of the token at the beginning of a sequence, where the settings name one.
    pub fn bos(&self) -> Option<u32> {
        self.id_of(self.shared.config.bos_token.as_deref()?)
    }

    /// The id of the token at the end of a sequence, where the settings name one.
    pub fn eos(&self) -> Option<u32> {
        self.id_of(self.shared.config.eos_token.as_deref()?)
    }

    /// The ids of a text.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>, TokenizerError> {
        let mut rows = self.encode_all(&[text], specials, None)?;
        Ok(rows.pop().unwrap_or_default().ids)
    }

    /// How many tokens a text has.
    pub fn count(&self, text: &str, specials: Specials) -> Result<usize, TokenizerError> {
        Ok(self.encode(text, specials)?.len())
    }

    /// Several texts, each with the special tokens, none longer than the bound; nothing is filled.
    pub fn encode_batch(
        &self,
        texts: &[&str],
        bound: Option<Bound>,
    ) -> Result<Vec<Encoded>, TokenizerError> {
        self.encode_all(texts, Specials::Added, bound)
    }

    /// Several texts, here or in another process.
    fn encode_all(
        &self,
        texts: &[&str],
        specials: Specials,
        bound: Option<Bound>,
    ) -> Result<Vec<Encoded>, TokenizerError> {
        if let Some(long) = texts.iter().find(|text| text.len() > MAX_TEXT) {
            return Err(TokenizerError::LongText {
                bytes: long.len(),
                limit: MAX_TEXT,
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
        if texts.len() < PARALLEL {
            texts.iter().enumerate().map(one).collect()
        } else {
            texts.par_iter().enumerate().map(one).collect()
        }
    }

    /// Cuts ids to so many, on the tokenizer's side.
    pub fn truncate(&self, ids: &mut Vec<u32>, most: usize) {
        match self.shared.truncation_side {
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
        guarded(|| self.shared.library.decode(&ids, skip_special))
    }

    /// Each id's bytes; made when it is first asked for.
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

    /// Whether tokens are nothing but their bytes, wherever they stand.
    fn is_exact(&self) -> bool {
        self.shared.spelling.is_exact()
    }
}

impl Shared {
    fn encoded(
        &self,
        text: &str,
        specials: Specials,
        bound: Option<Bound>,
    ) -> Result<Encoded, TokenizerError> {
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
