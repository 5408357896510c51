//! Text embedding: turns texts into a model's inputs, and the model's outputs into vectors.
//!
//! An [`Embedder`] plans the runs ([`EmbeddingRun`]) that embed a request's texts, and reads the vectors
//! from their outputs. The caller executes the runs. Invariant: vectors come in the order of the
//! texts, whichever texts shared a run. A text is cut only on request. Padding never contributes to
//! a vector.

mod encoder;
mod error;
mod options;
mod pooling;
mod positions;
mod rows;
mod said;
mod settings;
mod siblings;

use std::sync::Arc;

pub use encoder::{DimSize, Encoder};
pub use error::EmbeddingError;
pub use options::EmbeddingOptions;
pub use pooling::Pooling;
pub use pooling::cosine;
pub use rows::EmbeddingRun;
pub use said::Sourced;
pub use settings::EmbeddingSettings;
pub use siblings::EncoderSettings;

use super::tokenizer::{EncodedText, OverlongPolicy, TokenLimit, Tokenizer};
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_engine::tensor::{Signature, Tensor};

/// Capability name of text embedding models.
pub const CAPABILITY: &str = "text-embedding";

/// Maximum number of texts in a request.
pub const MAX_TEXTS: usize = 2048;

/// Maximum size of a text, in bytes.
pub const MAX_TEXT_BYTES: usize = 1 << 18;

/// Maximum total size of the texts in a request, in bytes.
pub const MAX_TEXTS_BYTES: usize = 4 << 20;

/// The texts of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbeddingInput {
    /// Plain texts.
    Texts(Vec<String>),
    /// Token ids, used unchanged: no special tokens are added.
    Ids(Vec<Vec<u32>>),
}

/// An embedding model with its tokenizer.
#[derive(Debug, Clone)]
pub struct Embedder {
    tokenizer: Arc<Tokenizer>,
    encoder: Encoder,
    settings: EmbeddingSettings,
}

/// The encoded texts of a request, and the runs that embed them.
#[derive(Debug)]
pub struct EmbeddingPlan {
    /// The runs, which may be executed in any order.
    pub runs: Vec<EmbeddingRun>,
    /// Number of texts.
    pub texts: usize,
    /// Number of tokens of all texts, including those that the tokenizer adds, without padding.
    pub tokens: usize,
    /// The pooling that turns token states into vectors.
    pub pooling: Vec<Pooling>,
    /// Scale vectors to length 1; `None` leaves vectors that come from the model
    /// unchanged.
    pub normalize: Option<bool>,
}

impl EmbeddingInput {
    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Ids(ids) => ids.len(),
        }
    }

    /// Returns whether the request has no texts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Embedder {
    /// Creates an embedder for a model of this signature. Fails if the model does not take token
    /// ids.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        signature: &Signature,
        settings: EmbeddingSettings,
    ) -> Result<Self, EmbeddingError> {
        let encoder = Encoder::of(signature)?;
        if let Some(Sourced { value, by }) = &settings.unapplied
            && encoder.returns_states
        {
            return Err(EmbeddingError::Signature(format!(
                "it returns token states, and {by} applies the unsupported module `{value}` after \
                 pooling; export it within the model"
            )));
        }
        Ok(Self {
            tokenizer,
            encoder,
            settings,
        })
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Returns a copy for one request, whose texts are encoded on behalf of that client.
    #[must_use]
    pub fn on_behalf(&self, client: ParserClient) -> Self {
        Self {
            tokenizer: Arc::new(self.tokenizer.on_behalf(client)),
            ..self.clone()
        }
    }

    /// Returns the settings from the files around the model.
    pub fn settings(&self) -> &EmbeddingSettings {
        &self.settings
    }

    /// Returns the maximum number of tokens of a text, with the source of this limit.
    pub fn longest(&self, options: &EmbeddingOptions) -> Result<Sourced<usize>, EmbeddingError> {
        self.settings.longest(&self.encoder, options)
    }

    /// Encodes the texts and builds the inputs of all runs.
    pub fn plan(
        &self,
        given: &EmbeddingInput,
        options: &EmbeddingOptions,
    ) -> Result<EmbeddingPlan, EmbeddingError> {
        check_limits(given)?;
        let longest = self.longest(options)?;
        let rows = match given {
            EmbeddingInput::Texts(texts) => self.encoded(texts, &longest, options)?,
            EmbeddingInput::Ids(ids) => self.checked_ids(ids, &longest, options)?,
        };
        if let Some(text) = rows.iter().position(|row| row.ids.is_empty()) {
            return Err(EmbeddingError::NoTokens { text });
        }
        Ok(EmbeddingPlan {
            texts: rows.len(),
            tokens: rows.iter().map(|row| row.ids.len()).sum(),
            runs: rows::plan_runs(&self.encoder, &rows, self.tokenizer.padding())?,
            pooling: options
                .pooling
                .clone()
                .unwrap_or_else(|| self.settings.pooling()),
            normalize: options.normalize.or(self.settings.normalize),
        })
    }

    fn encoded(
        &self,
        texts: &[String],
        longest: &Sourced<usize>,
        options: &EmbeddingOptions,
    ) -> Result<Vec<EncodedText>, EmbeddingError> {
        let bound = TokenLimit {
            tokens: longest.value,
            overlong: if options.truncate {
                OverlongPolicy::Truncated
            } else {
                OverlongPolicy::Refused
            },
        };
        let lowered: Vec<String>;
        let texts: Vec<&str> = if self.settings.lower_case {
            lowered = texts.iter().map(|text| text.to_lowercase()).collect();
            lowered.iter().map(String::as_str).collect()
        } else {
            texts.iter().map(String::as_str).collect()
        };
        let encoded = self.tokenizer.encode_batch(&texts, Some(bound));
        encoded.map_err(|error| EmbeddingError::of_tokenizer(error, longest))
    }

    fn checked_ids(
        &self,
        rows: &[Vec<u32>],
        longest: &Sourced<usize>,
        options: &EmbeddingOptions,
    ) -> Result<Vec<EncodedText>, EmbeddingError> {
        let vocabulary = self.tokenizer.vocabulary();
        let one = |(text, ids): (usize, &Vec<u32>)| {
            let stray = ids.iter().find(|id| vocabulary.bytes(**id).is_none());
            if let Some(id) = stray {
                return Err(EmbeddingError::UnknownToken {
                    text,
                    id: *id,
                    tokens: vocabulary.len(),
                });
            }
            let mut ids = ids.clone();
            if ids.len() > longest.value {
                if !options.truncate {
                    return Err(EmbeddingError::TooLong {
                        text,
                        tokens: ids.len(),
                        limit: longest.clone(),
                    });
                }
                self.tokenizer.truncate(&mut ids, longest.value);
            }
            Ok(EncodedText {
                type_ids: vec![0; ids.len()],
                ids,
            })
        };
        rows.iter().enumerate().map(one).collect()
    }
}

impl EmbeddingPlan {
    /// Returns the number of tokens of each text.
    pub fn tokens_by_text(&self) -> Vec<usize> {
        let mut tokens = vec![0; self.texts];
        for (text, count) in self.runs.iter().flat_map(EmbeddingRun::rows) {
            tokens[text] = count;
        }
        tokens
    }

    /// Returns the vectors of all texts. `outputs` holds the outputs of each run, in the order of
    /// the runs.
    pub fn vectors(&self, outputs: Vec<Vec<Tensor>>) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        let mut vectors = vec![Vec::new(); self.texts];
        for (run, outputs) in self.runs.iter().zip(outputs) {
            for (text, vector) in self.vectors_of(run, &outputs)? {
                vectors[text] = vector;
            }
        }
        Ok(vectors)
    }

    /// Returns the indices of a run's texts with their vectors, from the run's outputs.
    pub fn vectors_of(
        &self,
        run: &EmbeddingRun,
        outputs: &[Tensor],
    ) -> Result<Vec<(usize, Vec<f32>)>, EmbeddingError> {
        let answer = run.answer(outputs)?;
        let rows = run.rows().enumerate();
        let rows = rows.map(|(place, (text, tokens))| {
            let (mut vector, pooled) = match answer.row(place)? {
                rows::OutputRow::Vector(vector) => (vector, false),
                rows::OutputRow::States(states) => {
                    (pooling::pooled(&states, tokens, &self.pooling)?, true)
                }
            };
            if self.normalize.unwrap_or(pooled) {
                pooling::normalize(&mut vector);
            }
            Ok((text, vector))
        });
        rows.collect()
    }
}

/// Rejects too many or too large texts before any work is done.
fn check_limits(given: &EmbeddingInput) -> Result<(), EmbeddingError> {
    let texts = given.len();
    if texts > MAX_TEXTS {
        return Err(EmbeddingError::TooMany {
            texts,
            limit: MAX_TEXTS,
        });
    }
    let bytes: Vec<usize> = match given {
        EmbeddingInput::Texts(texts) => texts.iter().map(String::len).collect(),
        EmbeddingInput::Ids(ids) => ids.iter().map(|ids| ids.len().saturating_mul(4)).collect(),
    };
    if let Some(text) = bytes.iter().position(|bytes| *bytes > MAX_TEXT_BYTES) {
        return Err(EmbeddingError::TooLarge {
            text,
            bytes: bytes[text],
            limit: MAX_TEXT_BYTES,
        });
    }
    let all = bytes.iter().sum();
    if all > MAX_TEXTS_BYTES {
        return Err(EmbeddingError::TooLargeTogether {
            bytes: all,
            limit: MAX_TEXTS_BYTES,
        });
    }
    Ok(())
}
