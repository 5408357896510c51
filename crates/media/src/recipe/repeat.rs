//! How a recipe cuts a sound into windows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sound;

/// Maximum length of a window, in samples.
const MAX_WINDOW: usize = 60 * sound::RATE as usize;

/// Shortest step from one window to the next, in samples.
const MIN_HOP: usize = sound::RATE as usize / 200;

/// How a model runs once for each window of a sound.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowRepeat {
    /// Samples of a window.
    pub(super) window: usize,
    /// Samples from the start of one window to the next.
    pub(super) hop: usize,
    /// Samples in front of its start that belong to a window.
    #[serde(default)]
    pub(super) before: usize,
    /// Least number of rows of an input. Zeros stand for missing ones, whose rows in the outputs are dropped.
    #[serde(default)]
    pub(super) rows: usize,
    /// Number of values that are kept of each row of the outputs; 0 keeps all.
    #[serde(default)]
    pub(super) columns: usize,
    /// The output of the previous run that an input takes, by the input's name. The first run takes zeros.
    #[serde(default)]
    pub(super) state: BTreeMap<String, String>,
}

impl WindowRepeat {
    /// Checks the numbers.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self {
            window,
            hop,
            before,
            ..
        } = *self;
        if !(1..=MAX_WINDOW).contains(&window) {
            return Err(format!(
                "`window` {window}: expected 1 to {MAX_WINDOW} samples"
            ));
        }
        if !(MIN_HOP..=window).contains(&hop) {
            return Err(format!(
                "`hop` {hop}: expected {MIN_HOP} to {window} samples"
            ));
        }
        if before > window - hop {
            return Err(format!(
                "`before` {before}: expected at most `window` - `hop`"
            ));
        }
        Ok(())
    }

    /// Returns the samples of a window that the next one has too, behind its start.
    pub(super) fn overlap(&self) -> usize {
        self.window - self.hop - self.before
    }
}
