//! Errors of a request to a text model, or of the model's files.

use std::path::PathBuf;

use crate::chat::FieldError;
use crate::constraint::ConstraintError;
use crate::decoder::DecodeError;
use crate::generation::GenerationError;
use crate::sampling::SamplingError;
use crate::stop::StopError;
use crate::template::{FindError, TemplateError};
use crate::tokenizer::TokenizerError;

/// A text request that failed.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A field is invalid.
    #[error(transparent)]
    Fault(#[from] FieldError),
    /// A field asks for an unsupported feature.
    #[error("`{field}` {reason}")]
    Unsupported {
        /// The field.
        field: &'static str,
        /// The reason and the remedy.
        reason: &'static str,
    },
    /// Invalid sampling settings.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// Invalid stop strings.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The output constraint failed.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The package has no chat template.
    #[error(transparent)]
    NoTemplate(FindError),
    /// The template failed to render a prompt.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The package names no token that stands for a picture.
    #[error(
        "the package names no token that stands for a picture: expected `image_token` in its \
         tokenizer_config.json, such as `<image>`"
    )]
    NoMark,
    /// Pictures have different numbers of rows.
    #[error(
        "the encoder of pictures returned {} rows of embeddings for one picture and {} for another: expected the same \
         number",
        counts[0],
        counts[1]
    )]
    PictureRows {
        /// Numbers of rows of two pictures.
        counts: [usize; 2],
    },
    /// The prompt does not have one mark for each picture.
    #[error(
        "the chat template wrote {found} times `{mark}`, which stands for a picture, for {given} pictures"
    )]
    Pictures {
        /// The mark.
        mark: String,
        /// Number of marks.
        found: usize,
        /// Number of pictures.
        given: usize,
    },
    /// The tokenizer's files are invalid, or a text cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The generation failed.
    #[error(transparent)]
    Generation(#[from] GenerationError),
    /// Invalid sampling settings in a file beside the model.
    #[error("{}: {error}", file.display())]
    Settings {
        /// The file.
        file: PathBuf,
        /// The invalid setting.
        error: SamplingError,
    },
    /// A file beside the model cannot be read or parsed.
    #[error("{} {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl TextError {
    pub(super) fn unsupported(field: &'static str, reason: &'static str) -> Self {
        Self::Unsupported { field, reason }
    }

    /// Returns the field of the request that is at fault, if any.
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
            Self::Pictures { .. } => "messages",
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

    /// Returns whether the prompt and the answer exceed the model's context.
    pub fn is_too_long(&self) -> bool {
        matches!(
            self,
            Self::Generation(
                GenerationError::LongPrompt { .. } | GenerationError::LongAnswer { .. }
            )
        )
    }

    /// Returns whether the request is at fault. Otherwise the package or the tool is.
    pub fn is_of_request(&self) -> bool {
        match self {
            Self::Fault(_) | Self::Unsupported { .. } | Self::Stop(_) | Self::Pictures { .. } => {
                true
            }
            Self::NoTemplate(_)
            | Self::NoMark
            | Self::PictureRows { .. }
            | Self::Settings { .. }
            | Self::File { .. } => false,
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
