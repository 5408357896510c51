//! What is said of a model's embeddings by the files around it: how long texts may be, how states become
//! vectors.
//!
//! Invariant: a bound that the model has by its sizes holds whatever is said; what says a bound is told with
//! it.

use std::path::{Path, PathBuf};

use super::encoder::Encoder;
use super::{EmbeddingError, EmbeddingOptions, Pooling, Said, Siblings, positions};
use crate::model::{ModelInfo, ValueKind};
use crate::text::tokenizer::TokenizerConfig;

/// Most tokens where nothing says how many the model takes.
const ASSUMED: usize = 8192;

/// What is said of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingSettings {
    /// Most tokens that it can take at all, beside its inputs' sizes.
    limit: Option<Said<usize>>,
    /// Most tokens that it is meant for.
    longest: Option<Said<usize>>,
    pooling: Option<Vec<Pooling>>,
    /// Whether vectors are scaled to length 1, where it is said.
    pub(super) normalize: Option<bool>,
    /// Whether texts are made lower case first.
    pub(super) lower_case: bool,
    /// What sentence-transformers applies to the pooled states, and nothing here does.
    pub(super) unapplied: Option<Said<String>>,
}

impl EmbeddingSettings {
    /// What is said of the model in `model`: by itself, by the settings of its tokenizer, by files in
    /// `directories`, which are those of the package's own files.
    pub fn read(
        model: &Path,
        info: &ModelInfo,
        tokenizer: &TokenizerConfig,
        directories: &[PathBuf],
    ) -> Result<Self, EmbeddingError> {
        let siblings = Siblings::read(directories)?;
        let named = tokenizer.pooling.as_deref().map(|name| {
            let reason = || format!("its tokenizer's settings name the pooling `{name}`");
            let pooling = Pooling::from_name(name).map(|pooling| vec![pooling]);
            pooling.ok_or_else(|| EmbeddingError::Signature(reason()))
        });
        let by_tokenizer = tokenizer.model_max_length.map(|value| Said {
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
            unapplied: siblings.unapplied,
        })
    }

    /// The ways of pooling; the mean where nothing is said.
    pub fn pooling(&self) -> Vec<Pooling> {
        self.pooling.clone().unwrap_or_else(|| vec![Pooling::Mean])
    }

    /// Most tokens that the model can take, whatever is asked for.
    pub fn limit(&self, encoder: &Encoder) -> Option<Said<usize>> {
        let by_size = encoder
            .longest()
            .and_then(|most| usize::try_from(most).ok())
            .map(|value| Said {
                value,
                by: "the size of its input".to_owned(),
            });
        least([by_size, self.limit.clone()])
    }

    /// Most tokens of a text, by what is asked for and what is said.
    pub fn longest(
        &self,
        encoder: &Encoder,
        options: &EmbeddingOptions,
    ) -> Result<Said<usize>, EmbeddingError> {
        let limit = self.limit(encoder);
        let Some(asked) = options.max_length else {
            return Ok(
                least([self.longest.clone(), limit]).unwrap_or_else(|| Said {
                    value: ASSUMED,
                    by: "nothing says how many, so this is assumed; `max_length` sets another"
                        .to_owned(),
                }),
            );
        };
        let reason = match limit {
            _ if asked == 0 => "it must be above 0".to_owned(),
            Some(Said { value, by }) if asked > value => {
                format!("{asked} is more than the {value} tokens that the model takes ({by})")
            }
            _ => {
                return Ok(Said {
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

fn least(bounds: [Option<Said<usize>>; 2]) -> Option<Said<usize>> {
    let bounds = bounds.into_iter().flatten();
    bounds.min_by_key(|bound| bound.value)
}

/// The number that a program gives by a constant method.
fn constant(info: &ModelInfo, name: &str) -> Option<Said<usize>> {
    let method = info.method(name).filter(|method| method.constant)?;
    let value = match &method.outputs.first()?.kind {
        ValueKind::Int(value) => usize::try_from(*value).ok()?,
        _ => return None,
    };
    (value > 0).then(|| Said {
        value,
        by: format!("its constant `{name}`"),
    })
}
