//! Faults of a recipe's text, each with its place.

use std::fmt;

use toml::Spanned;

use super::pattern::TensorPattern;
use crate::answer::TypedAnswerKind;
use crate::kind::MediaKind;

/// A recipe cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RecipeError {
    /// The file.
    pub file: String,
    /// Line and column, from 1, if the fault has a place.
    pub place: Option<(usize, usize)>,
    /// The fault.
    pub reason: String,
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Converts offsets of a file's text to errors with a place.
pub(super) struct Faults<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Faults<'_> {
    pub(super) fn at(&self, offset: usize, reason: impl Into<String>) -> RecipeError {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        RecipeError {
            file: self.file.to_owned(),
            place: Some((line, column)),
            reason: reason.into(),
        }
    }

    pub(super) fn parsed<T>(&self, parsed: Result<T, toml::de::Error>) -> Result<T, RecipeError> {
        parsed.map_err(|error| {
            let reason = error.message().to_owned();
            match error.span() {
                Some(span) => self.at(span.start, reason),
                None => self.whole(reason),
            }
        })
    }

    pub(super) fn whole(&self, reason: impl Into<String>) -> RecipeError {
        RecipeError {
            file: self.file.to_owned(),
            place: None,
            reason: reason.into(),
        }
    }

    /// Reads the patterns of tensors.
    pub(super) fn tensors(
        &self,
        texts: &[Spanned<String>],
    ) -> Result<Vec<TensorPattern>, RecipeError> {
        let tensors = texts.iter().map(|text| {
            let pattern = TensorPattern::parse(text.get_ref());
            pattern.map_err(|reason| self.at(text.span().start, reason))
        });
        tensors.collect()
    }
}

/// Checks that an answer suits what a recipe reads and has.
pub(super) fn suits(
    answer: TypedAnswerKind,
    (takes, decodes): (MediaKind, bool),
    (has_reader, diffuses): (bool, bool),
) -> Result<(), String> {
    if (answer == TypedAnswerKind::Transcript) != decodes {
        return Err("the step `transcript` and the table `decode` need each other".to_owned());
    }
    let is_of_text = takes == MediaKind::Text;
    if diffuses != (is_of_text && answer == TypedAnswerKind::Picture) {
        let needed = "the step `diffusion` and the tables `denoise` and `paint` need each other";
        return Err(needed.to_owned());
    }
    if !diffuses && (answer == TypedAnswerKind::Speech) != is_of_text {
        return Err("the step `spoken` and a recipe that reads a text need each other".to_owned());
    }
    if has_reader && answer != TypedAnswerKind::Lines {
        let lines = TypedAnswerKind::Lines.summary();
        return Err(format!("`then` needs an answer with {lines}"));
    }
    Ok(())
}
