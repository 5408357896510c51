//! The progress of a training, which other threads read.

use std::sync::atomic::{AtomicU8, Ordering};

/// Progress of a training, in percent.
#[derive(Debug, Default)]
pub struct TrainingProgress(AtomicU8);

impl TrainingProgress {
    /// Returns the percentage.
    pub fn percentage(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the progress, unless it is further already. A training that ends has 100 percent.
    pub(super) fn set(&self, percentage: i32) {
        let percentage = u8::try_from(percentage.clamp(0, 99)).unwrap_or(0);
        self.0.fetch_max(percentage, Ordering::Relaxed);
    }

    /// Sets the progress to the point between two percentages that corresponds to `done` of `all`.
    pub(super) fn at(&self, from: u8, to: u8, done: u64, all: u64) {
        let part = u64::from(to - from) * done.min(all) / all.max(1);
        let now = from + u8::try_from(part).unwrap_or(0);
        self.0.fetch_max(now, Ordering::Relaxed);
    }
}
