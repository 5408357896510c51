//! Histograms: counts of values between bounds, and their sum.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets of times, in seconds: from the cost of a status request to well
/// beyond the default timeout of a predict.
const TIME_BOUNDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// Upper bounds of the buckets of counts.
const COUNT_BOUNDS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Units per second in which sums of times are kept.
const NANOSECONDS_PER_SECOND: f64 = 1e9;

/// A histogram.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Number of units of the kept sum per unit of a value.
    scale: f64,
    /// One count per bound, and one beyond.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Creates a histogram of times.
    pub fn seconds() -> Self {
        Self::new(TIME_BOUNDS, NANOSECONDS_PER_SECOND)
    }

    /// Creates a histogram of counts.
    pub fn counts() -> Self {
        Self::new(COUNT_BOUNDS, 1.0)
    }

    fn new(bounds: &'static [f64], scale: f64) -> Self {
        Self {
            bounds,
            scale,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Records a time.
    pub fn time(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.add(took.as_secs_f64(), nanos);
    }

    /// Records a count.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the value is compared with small bounds"
    )]
    pub fn number(&self, value: usize) {
        self.add(value as f64, value as u64);
    }

    fn add(&self, value: f64, kept: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place].fetch_add(1, Relaxed);
        self.sum.fetch_add(kept, Relaxed);
    }

    /// Returns `true` if nothing was recorded yet.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| count.load(Relaxed) == 0)
    }

    /// Returns each bound with the number of values up to it.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        let mut total = 0;
        bounds.zip(counts).map(move |(bound, count)| {
            total += count;
            (bound, total)
        })
    }

    /// Returns the sum of all values.
    #[expect(clippy::cast_precision_loss, reason = "the page shows floats")]
    pub(super) fn sum(&self) -> f64 {
        self.sum.load(Relaxed) as f64 / self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_up_to_its_bound() {
        let histogram = Histogram::seconds();
        for millis in [1, 10, 60_000, 61_000, 900_000] {
            histogram.time(Duration::from_millis(millis));
        }
        let at = |bound: f64| {
            let mut all = histogram.cumulative();
            let found = all.find(|(known, _)| *known >= bound);
            found.map(|(_, count)| count)
        };
        assert_eq!(at(0.000_5), Some(0));
        assert_eq!(at(0.001), Some(1));
        assert_eq!(at(60.0), Some(3));
        assert_eq!(at(120.0), Some(4));
        assert_eq!(at(f64::INFINITY), Some(5));
        assert!((histogram.sum() - 1021.011).abs() < 1e-6);
        let sizes = Histogram::counts();
        sizes.number(1);
        sizes.number(3);
        assert_eq!(sizes.cumulative().nth(2), Some((4.0, 2)));
    }
}
