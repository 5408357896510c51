//! What is wrong with a request to a text model, or with the model's files.

use std::path::PathBuf;

use crate::text::chat::Fault;
use crate::text::constraint::ConstraintError;
use crate::text::decoder::DecodeError;
use crate::text::generation::GenerationError;
use crate::text::sampling::SamplingError;
use crate::text::stop::StopError;
use crate::text::template::{FindError, TemplateError};
use crate::text::tokenizer::TokenizerError;

/// Why there is no text.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A field is not as it must be.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A field asks for what there is not.
    #[error("`{field}` {reason}")]
    Unsupported {
        /// The field.
        field: &'static str,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// Settings of drawing.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// Stop strings.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The form of the answer.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The package has no template for chats.
    #[error(transparent)]
    NoTemplate(FindError),
    /// The template gave no prompt.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The tokenizer's files, or a text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The model, or what it was asked.
    #[error(transparent)]
    Generation(#[from] GenerationError),
    /// A file beside the model.
    #[error("{}: {error}", file.display())]
    Settings {
        /// The file.
        file: PathBuf,
        /// What is wrong in it.
        error: SamplingError,
    },
    /// A file beside the model that cannot be read.
    #[error("{} {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
}

impl TextError {
    pub(super) fn unsupported(field: &'static str, reason: &'static str) -> Self {
        Self::Unsupported { field, reason }
    }

    /// The field of the request that is at fault, where one is.
    pub fn field(&self) -> Option<&str> {
        let named = match self {
            Self::Fault(fault) => fault.path.as_str(),
            Self::Unsupported { field, .. } => field,
            Self::Sampling(SamplingError::Token { .. }) => "logit_bias",
            Self::Stop(error) => &error.field,
            Self::Sampling(SamplingError::Setting { field, .. })
            | Self::Constraint(
                ConstraintError::Field { field, .. }
                | ConstraintError::Keyword { field, .. }
                | ConstraintError::Large { field, .. }
                | ConstraintError::Schema { field, .. },
            ) => field,
            Self::Template(error) if error.is_about_the_conversation() => "messages",
            Self::Generation(error) => match error {
                GenerationError::NoChoice => "n",
                GenerationError::NoTokens | GenerationError::LongAnswer { .. } => "max_tokens",
                GenerationError::LongPrompt { .. }
                | GenerationError::EmptyPrompt
                | GenerationError::Decode(DecodeError::Token { .. }) => "prompt",
                _ => return None,
            },
            _ => return None,
        };
        Some(named)
    }

    /// Whether the request is for more tokens than the model holds.
    pub fn is_too_long(&self) -> bool {
        matches!(
            self,
            Self::Generation(
                GenerationError::LongPrompt { .. } | GenerationError::LongAnswer { .. }
            )
        )
    }

    /// Whether another request would have been answered: the fault is the caller's to mend.
    pub fn is_of_request(&self) -> bool {
        match self {
            Self::Fault(_) | Self::Unsupported { .. } | Self::Stop(_) => true,
            Self::NoTemplate(_) | Self::Settings { .. } | Self::File { .. } => false,
            Self::Sampling(error) => {
                matches!(
                    error,
                    SamplingError::Setting { .. } | SamplingError::Token { .. }
                )
            }
            Self::Constraint(error) => !matches!(error, ConstraintError::Vocabulary(_)),
            Self::Template(error) => error.is_about_the_conversation(),
            Self::Tokenizer(error) => {
                matches!(
                    error,
                    TokenizerError::LongText { .. } | TokenizerError::TooManyTokens { .. }
                )
            }
            Self::Generation(error) => error.is_of_request(),
        }
    }
}
