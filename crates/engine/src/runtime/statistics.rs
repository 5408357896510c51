//! Statistics of run times: quantiles, means, and ratios with confidence intervals.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Serialize;

use super::measure::Series;

/// Number of samples of the bootstrap.
const RESAMPLES: usize = 1000;

/// Statistics of a series of runs, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Times {
    /// Number of runs.
    pub runs: usize,
    /// Minimum.
    pub min_ms: f64,
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Maximum.
    pub max_ms: f64,
    /// Standard deviation of the sample.
    pub stddev_ms: f64,
    /// Runs per second, one at a time.
    pub throughput_per_s: f64,
}

/// The ratio of the times of two series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// Median, over the rounds, of the ratio of the two medians of a round.
    pub ratio: f64,
    /// Lower end of the 95 % confidence interval, by a bootstrap over the rounds (percentiles of
    /// 1000 resamples).
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Times {
    /// Computes the statistics of these runs; returns `None` without runs.
    pub fn of(times: impl Iterator<Item = Duration>) -> Option<Self> {
        let mut sorted: Vec<f64> = times.map(|time| time.as_secs_f64() * 1000.0).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / count(sorted.len());
        let squares: f64 = sorted.iter().map(|time| (time - mean).powi(2)).sum();
        let stddev = match sorted.len() {
            1 => 0.0,
            runs => (squares / count(runs - 1)).sqrt(),
        };
        Some(Self {
            runs: sorted.len(),
            min_ms: min,
            mean_ms: mean,
            p50_ms: quantile(&sorted, 0.5),
            p90_ms: quantile(&sorted, 0.9),
            p99_ms: quantile(&sorted, 0.99),
            max_ms: max,
            stddev_ms: stddev,
            throughput_per_s: if mean > 0.0 { 1000.0 / mean } else { 0.0 },
        })
    }
}

impl Ratio {
    /// Computes the ratio of `series` to `baseline`, which were measured in the same rounds.
    pub fn of(series: &Series, baseline: &Series) -> Option<Self> {
        let mut ratios = round_ratios(series, baseline);
        ratios.sort_by(f64::total_cmp);
        let medians = bootstrap(&ratios, 0);
        Self::with_interval(middle(&ratios)?, medians)
    }

    /// Computes the ratio of two sets of [`round_ratios`] that were measured at different times.
    pub fn between(now: &[f64], before: &[f64]) -> Option<Self> {
        let ratio = middle(now)? / middle(before)?;
        let resamples = bootstrap(now, 0).into_iter().zip(bootstrap(before, 1));
        Self::with_interval(ratio, resamples.map(|(now, before)| now / before).collect())
    }

    fn with_interval(ratio: f64, mut resampled: Vec<f64>) -> Option<Self> {
        resampled.sort_by(f64::total_cmp);
        ratio.is_finite().then(|| Self {
            ratio,
            low: quantile(&resampled, 0.025),
            high: quantile(&resampled, 0.975),
        })
    }
}

/// Returns the ratio of the two medians of each round.
pub fn round_ratios(series: &Series, baseline: &Series) -> Vec<f64> {
    let rounds = series.rounds.iter().zip(&baseline.rounds);
    let ratios = rounds.filter_map(|(one, other)| {
        let ratio = median(one)? / median(other)?;
        ratio.is_finite().then_some(ratio)
    });
    ratios.collect()
}

/// Returns how much the medians of the rounds vary: the range of the middle 80 % of them, as a
/// share of their median. `None` without runs.
pub fn round_spread(series: &Series) -> Option<f64> {
    let mut medians: Vec<f64> = series.rounds.iter().filter_map(|it| median(it)).collect();
    medians.sort_by(f64::total_cmp);
    let middle = middle(&medians)?;
    let range = quantile(&medians, 0.9) - quantile(&medians, 0.1);
    (middle > 0.0).then(|| range / middle)
}

/// Returns the median of these values.
fn middle(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| quantile(&sorted, 0.5))
}

/// Returns a quantile of sorted values, interpolated linearly between two neighbours, as NumPy does
/// by default. Returns NaN without values.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = part.clamp(0.0, 1.0) * count(last);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the index is between 0 and the last one"
    )]
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let weight = place - place.floor();
    sorted[below] + (sorted[above] - sorted[below]) * weight
}

fn median(times: &[Duration]) -> Option<f64> {
    let seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    middle(&seconds)
}

/// Returns the medians of resamples with replacement. The seed is fixed, so the same times give the
/// same interval.
fn bootstrap(values: &[f64], seed: u64) -> Vec<f64> {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let size = values.len() as u64;
    let resample = |_| {
        let mut sample: Vec<f64> = values
            .iter()
            .map(|_| {
                // The bias of the remainder is below 2^-32 for any realistic number of rounds.
                let place = chance.next_u64() % size;
                values[usize::try_from(place).unwrap_or(0)]
            })
            .collect();
        sample.sort_by(f64::total_cmp);
        quantile(&sample, 0.5)
    };
    (0..RESAMPLES).map(resample).collect()
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 runs")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(times: &[u64]) -> Vec<Duration> {
        times
            .iter()
            .map(|time| Duration::from_millis(*time))
            .collect()
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    /// The expected numbers are NumPy's (`percentile`, `std(ddof=1)`).
    #[test]
    fn quantiles_are_those_of_numpy() {
        let times = milliseconds(&[7, 1, 3, 2, 10, 4]);
        let times = Times::of(times.into_iter()).expect("there are some");
        near(times.p50_ms, 3.5);
        near(times.p90_ms, 8.5);
        near(times.p99_ms, 9.85);
        near(times.mean_ms, 4.5);
        near(times.stddev_ms, 3.391_164_991_562_634);
        near(times.throughput_per_s, 1000.0 / 4.5);
        assert_eq!(times.runs, 6);
    }

    #[test]
    fn no_runs_have_no_numbers() {
        assert_eq!(Times::of(std::iter::empty()), None);
        assert_eq!(Ratio::of(&Series::default(), &Series::default()), None);
    }

    #[test]
    fn a_ratio_is_taken_within_rounds() {
        // The machine slows down by ten between the rounds; the ratio stays 2.
        let series = |factor: u64| Series {
            rounds: vec![
                milliseconds(&[factor]),
                milliseconds(&[10 * factor, 11 * factor, 10 * factor]),
            ],
        };
        let ratio = Ratio::of(&series(2), &series(1)).expect("there are rounds");
        near(ratio.ratio, 2.0);
        near(ratio.low, 2.0);
        near(ratio.high, 2.0);
    }

    #[test]
    fn a_ratio_between_times_has_an_interval() {
        let now: Vec<f64> = (0..40)
            .map(|round| 2.2 + f64::from(round % 5) / 100.0)
            .collect();
        let before: Vec<f64> = (0..40)
            .map(|round| 2.0 + f64::from(round % 7) / 100.0)
            .collect();
        let ratio = Ratio::between(&now, &before).expect("there are rounds");
        near(ratio.ratio, 2.22 / 2.03);
        assert!(1.05 < ratio.low && ratio.low <= ratio.ratio && ratio.ratio <= ratio.high);
        assert_eq!(Ratio::between(&now, &[]), None);
    }

    #[test]
    fn a_spread_is_a_share_of_the_median() {
        let rounds = (0..11).map(|round| milliseconds(&[95 + round])).collect();
        let spread = round_spread(&Series { rounds }).expect("there are rounds");
        near(spread, 0.08);
        assert_eq!(round_spread(&Series::default()), None);
    }

    #[test]
    fn an_interval_holds_its_ratio() {
        let rounds = |factor: f64| Series {
            rounds: (1..30)
                .map(|round| vec![Duration::from_secs_f64(factor * f64::from(round % 7 + 3))])
                .collect(),
        };
        let mut noisy = rounds(1.5);
        noisy.rounds.rotate_left(2);
        let ratio = Ratio::of(&noisy, &rounds(1.0)).expect("there are rounds");
        assert!(ratio.low <= ratio.ratio && ratio.ratio <= ratio.high);
        assert!(ratio.low < ratio.high);
    }
}
