//! Detects tokens of the setting `extra-precisions` that the precision list in force classifies the
//! other way.
//!
//! The list in force is known only while a config is checked. Contradictions are collected then,
//! and reported once at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::settings::{Overrides, PolicySettings};
use crate::validate::settings_invalid;
use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::PrecisionList;

/// The contradictions found in one run.
#[derive(Debug, Default)]
pub(super) struct Contradictions {
    /// Tokens by settings file; `None` is the command line.
    by_file: Mutex<BTreeMap<Option<PathBuf>, Vec<String>>>,
}

impl Contradictions {
    /// Records the contradictions between settings and a precision list that applies to the same
    /// file.
    pub(super) fn record(&self, settings: &PolicySettings, by: &Overrides, list: &PrecisionList) {
        for token in settings.extra.against(list) {
            let file = settings.file.as_ref().map(|(file, _)| file.clone());
            // The command line overrides the settings file.
            let file = file.filter(|_| !by.extra.contains(token));
            let mut heard = self.by_file.lock().unwrap_or_else(PoisonError::into_inner);
            let tokens = heard.entry(file).or_default();
            if !tokens.iter().any(|known| known == token) {
                tokens.push(token.to_owned());
            }
        }
    }

    /// Returns the findings about a settings file.
    pub(super) fn of(&self, settings: &Arc<PolicySettings>) -> Vec<Finding> {
        let heard = self.by_file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = settings.file.as_ref().map(|(file, _)| file.clone());
        let tokens = heard.get(&file).filter(|_| file.is_some());
        let places = settings.extra_places.iter();
        let wrong = places.filter(|(token, ..)| tokens.is_some_and(|it| it.contains(token)));
        wrong
            .map(|(token, path, span)| {
                let anchor = Anchor::At(path.clone(), *span);
                let finding = settings_invalid(anchor, message(token, &settings.extra));
                finding.help("remove it: a token must be in exactly one of the two lists")
            })
            .collect()
    }

    /// Returns the error in the command line, if there is one.
    pub(super) fn of_command_line(&self, overrides: &Overrides) -> Option<String> {
        let heard = self.by_file.lock().unwrap_or_else(PoisonError::into_inner);
        let token = heard.get(&None)?.first()?;
        Some(message(token, &overrides.extra))
    }
}

fn message(token: &str, extra: &PrecisionList) -> String {
    let (here, there) = match extra.is_quantized(token) {
        Some(true) => ("quantized", "not"),
        _ => ("not quantized", "quantized"),
    };
    format!("`{token}` is {here} here, but {there} in the precision list in force")
}
