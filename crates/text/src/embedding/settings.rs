//! Embedding settings from the files around a model: the maximum text length, the pooling, and the
//! normalisation.
//!
//! Invariant: a limit that follows from the model's own sizes always applies. Every limit is
//! reported with its source.

use std::path::{Path, PathBuf};

use super::encoder::Encoder;
use super::{EmbeddingError, EmbeddingOptions, EncoderSettings, Pooling, Sourced, positions};
use crate::tokenizer::TokenizerConfig;
use pkgtool_model::{ModelInfo, ValueKind};

/// Assumed maximum number of tokens if no file states one.
const DEFAULT_MAX_TOKENS: usize = 8192;

/// The settings of an embedding model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingSettings {
    /// Maximum number of tokens that the model can process, apart from the sizes of its inputs.
    limit: Option<Sourced<usize>>,
    /// Maximum number of tokens that the model is meant for.
    longest: Option<Sourced<usize>>,
    pooling: Option<Vec<Pooling>>,
    /// Scale vectors to length 1, if stated.
    pub(super) normalize: Option<bool>,
    /// Convert texts to lower case first.
    pub(super) lower_case: bool,
    /// A module that sentence-transformers applies to the pooled states, and that is not supported
    /// here.
    pub(super) unapplied: Option<Sourced<String>>,
}

impl EmbeddingSettings {
    /// Reads the settings of the model at `model`: from the model itself, from its tokenizer's
    /// settings, and from files in `directories`, the folders of the package's own files.
    pub fn read(
        model: &Path,
        info: &ModelInfo,
        tokenizer: &TokenizerConfig,
        directories: &[PathBuf],
    ) -> Result<Self, EmbeddingError> {
        let siblings = EncoderSettings::read(directories)?;
        let named = tokenizer.pooling.as_deref().map(|name| {
            let reason = || format!("its tokenizer's settings name the unknown pooling `{name}`");
            let pooling = Pooling::from_name(name).map(|pooling| vec![pooling]);
            pooling.ok_or_else(|| EmbeddingError::Signature(reason()))
        });
        let by_tokenizer = tokenizer.model_max_length.map(|value| Sourced {
            value,
            by: "`model_max_length` of its tokenizer's configuration".to_owned(),
        });
        let by_program = constant(info, "get_max_seq_len");
        Ok(Self {
            limit: positions::table_rows(model, info.format),
            longest: siblings.longest.or(by_program).or(by_tokenizer),
            pooling: siblings.pooling.or(named.transpose()?),
            normalize: siblings.normalize,
            lower_case: siblings.lower_case,
            unapplied: siblings.unsupported_module,
        })
    }

    /// Returns the pooling methods; the default is the mean.
    pub fn pooling(&self) -> Vec<Pooling> {
        self.pooling.clone().unwrap_or_else(|| vec![Pooling::Mean])
    }

    /// Returns the maximum number of tokens that the model can process, whatever the request says.
    pub fn limit(&self, encoder: &Encoder) -> Option<Sourced<usize>> {
        let by_size = encoder
            .longest()
            .and_then(|most| usize::try_from(most).ok())
            .map(|value| Sourced {
                value,
                by: "the size of its input".to_owned(),
            });
        smallest_limit([by_size, self.limit.clone()])
    }

    /// Returns the maximum number of tokens of a text, by the request and the settings.
    pub fn longest(
        &self,
        encoder: &Encoder,
        options: &EmbeddingOptions,
    ) -> Result<Sourced<usize>, EmbeddingError> {
        let limit = self.limit(encoder);
        let Some(asked) = options.max_length else {
            return Ok(
                smallest_limit([self.longest.clone(), limit]).unwrap_or_else(|| Sourced {
                    value: DEFAULT_MAX_TOKENS,
                    by: "the default, since no file states a limit; `max_length` overrides it"
                        .to_owned(),
                }),
            );
        };
        let reason = match limit {
            _ if asked == 0 => "must be above 0, not 0".to_owned(),
            Some(Sourced { value, by }) if asked > value => {
                format!("{asked} exceeds the {value} tokens that the model accepts ({by})")
            }
            _ => {
                return Ok(Sourced {
                    value: asked,
                    by: "`max_length`".to_owned(),
                });
            }
        };
        Err(EmbeddingError::Option {
            key: "max_length",
            reason,
        })
    }
}

fn smallest_limit(bounds: [Option<Sourced<usize>>; 2]) -> Option<Sourced<usize>> {
    let bounds = bounds.into_iter().flatten();
    bounds.min_by_key(|bound| bound.value)
}

/// Returns the number that a constant method of a program returns.
fn constant(info: &ModelInfo, name: &str) -> Option<Sourced<usize>> {
    let method = info.method(name).filter(|method| method.constant)?;
    let value = match &method.outputs.first()?.kind {
        ValueKind::Int(value) => usize::try_from(*value).ok()?,
        _ => return None,
    };
    (value > 0).then(|| Sourced {
        value,
        by: format!("its constant `{name}`"),
    })
}
