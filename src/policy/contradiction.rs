//! Tokens of `extra-precisions` that a precision list in force takes for the opposite.
//!
//! Which list is in force is known where a config is checked, so it is heard then and told at the end, once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::settings::{Overrides, Settings};
use crate::diagnostic::{Anchor, Finding};
use crate::package::PrecisionList;
use crate::validate::settings_invalid;

/// What was heard in one run.
#[derive(Debug, Default)]
pub(super) struct Contradictions {
    /// By files of settings; the command line has none.
    heard: Mutex<BTreeMap<Option<PathBuf>, Vec<String>>>,
}

impl Contradictions {
    /// Hears of a list that holds for a file which settings rule.
    pub(super) fn hear(&self, settings: &Settings, by: &Overrides, list: &PrecisionList) {
        for token in settings.extra.against(list) {
            let file = settings.file.as_ref().map(|(file, _)| file.clone());
            // The last word was the command line's.
            let file = file.filter(|_| !by.extra.contains(token));
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            let tokens = heard.entry(file).or_default();
            if !tokens.iter().any(|known| known == token) {
                tokens.push(token.to_owned());
            }
        }
    }

    /// The findings about a file of settings.
    pub(super) fn of(&self, settings: &Arc<Settings>) -> Vec<Finding> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let file = settings.file.as_ref().map(|(file, _)| file.clone());
        let tokens = heard.get(&file).filter(|_| file.is_some());
        let places = settings.extra_places.iter();
        let wrong = places.filter(|(token, ..)| tokens.is_some_and(|it| it.contains(token)));
        wrong
            .map(|(token, path, span)| {
                let anchor = Anchor::At(path.clone(), *span);
                let finding = settings_invalid(anchor, message(token, &settings.extra));
                finding.help("remove it: a token is in exactly one of the two lists")
            })
            .collect()
    }

    /// What is wrong with the command line.
    pub(super) fn of_command_line(&self, overrides: &Overrides) -> Option<String> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let token = heard.get(&None)?.first()?;
        Some(message(token, &overrides.extra))
    }
}

fn message(token: &str, extra: &PrecisionList) -> String {
    let (here, there) = match extra.is_quantized(token) {
        Some(true) => ("quantized", "not"),
        _ => ("not quantized", "quantized"),
    };
    format!("`{token}` is {here} here and {there} in the precision list that holds")
}
