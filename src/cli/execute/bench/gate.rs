//! The limit on times: the ratios of each series and the verdict on them.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::super::findings::FindingArgs;
use super::baseline::Baseline;
use pkgtool_engine::runtime::measure::Series;
use pkgtool_engine::runtime::statistics::Ratio;

/// Options for limits on times.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Gate")]
pub(super) struct GateArgs {
    /// Exit with code 1 if a model takes more than R times as long as the first one, or as in the
    /// baseline
    #[arg(long, value_name = "R", value_parser = limit)]
    pub(super) max_ratio: Option<f64>,

    /// Compare the times with those in FILE, which `--write-baseline` wrote on the same machine
    #[arg(long, value_name = "FILE", conflicts_with = "write_baseline")]
    pub(super) baseline: Option<PathBuf>,

    /// Write the times to FILE for later comparisons
    #[arg(long, value_name = "FILE", conflicts_with = "max_ratio")]
    pub(super) write_baseline: Option<PathBuf>,

    #[command(flatten)]
    pub(super) findings: FindingArgs,
}

fn limit(text: &str) -> Result<f64, String> {
    let limit = text.parse::<f64>().ok();
    limit
        .filter(|limit| limit.is_finite() && *limit > 0.0)
        .ok_or_else(|| "expected a number above 0, such as 1.05".to_owned())
}

/// How a ratio relates to the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// The whole interval is at or below the limit.
    Within,
    /// The whole interval is above the limit.
    Slower,
    /// The limit is within the interval.
    Undecided,
}

impl Verdict {
    /// Returns the verdict on a ratio.
    pub(super) fn of(ratio: &Ratio, limit: f64) -> Self {
        if ratio.low > limit {
            Self::Slower
        } else if ratio.high <= limit {
            Self::Within
        } else {
            Self::Undecided
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Within => "within the limit",
            Self::Slower => "slower than the limit",
            Self::Undecided => "undecided: the limit is within the interval",
        })
    }
}

/// The limit and the saved times with which ratios are compared.
pub(super) struct GateJudge<'a> {
    /// The limit, if there is one.
    pub(super) limit: Option<f64>,
    /// The saved times, if there are any.
    pub(super) baseline: Option<&'a Baseline>,
    /// The labels of the sides, in order.
    pub(super) labels: &'a [String],
}

/// The ratios of a series, and the verdict on the one that the limit is about.
#[derive(Debug, Default)]
pub(super) struct JudgedRatios {
    /// Ratio to the first series; absent for the first.
    pub(super) to_first: Option<Ratio>,
    /// Ratio to the saved time; absent without a baseline.
    pub(super) to_baseline: Option<Ratio>,
    /// The verdict; absent without a limit.
    pub(super) verdict: Option<Verdict>,
}

impl GateJudge<'_> {
    /// Judges the series of the side at this place. `measured` are those of all sides, then that of
    /// the reference if there is a baseline.
    pub(super) fn judge(&self, measured: &[Series], place: usize) -> JudgedRatios {
        let series = &measured[place];
        let mut judged = JudgedRatios::default();
        if place > 0 {
            judged.to_first = Ratio::of(series, &measured[0]);
        }
        if let (Some(baseline), Some(reference)) = (self.baseline, measured.get(self.labels.len()))
        {
            judged.to_baseline = baseline.ratio(&self.labels[place], series, reference);
        }
        let held = if self.baseline.is_some() {
            &judged.to_baseline
        } else {
            &judged.to_first
        };
        let held = self.limit.zip(held.as_ref());
        judged.verdict = held.map(|(limit, ratio)| Verdict::of(ratio, limit));
        judged
    }

    /// Returns whether a limit is within the interval of a ratio.
    pub(super) fn is_undecided(&self, measured: &[Series]) -> bool {
        let mut verdicts = (0..self.labels.len()).map(|place| self.judge(measured, place).verdict);
        self.limit.is_some() && verdicts.any(|verdict| verdict == Some(Verdict::Undecided))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_interval_decides() {
        let verdict = |low: f64, high: f64| {
            let ratio = f64::midpoint(low, high);
            Verdict::of(&Ratio { ratio, low, high }, 1.05)
        };
        assert_eq!(verdict(0.9, 1.04), Verdict::Within);
        assert_eq!(verdict(1.06, 1.2), Verdict::Slower);
        assert_eq!(verdict(1.04, 1.2), Verdict::Undecided);
        assert!(limit("1.05").is_ok());
        for bad in ["0", "-1", "inf", "NaN", "5%"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
    }
}
