//! The tolerances of a comparison: those that the user gave, or the defaults for the lower
//! precision of the two sides.

use std::ops::RangeInclusive;

use super::super::sides::ExecutionSide;
use super::report::JudgedPrecision;
use pkgtool_engine::Provider;
use pkgtool_engine::runtime::precision::Precision;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::agreement::Tolerances;

/// Options for tolerances.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tolerances (default: those for the lower precision of the two)")]
pub(super) struct ToleranceArgs {
    /// Maximum absolute error
    #[arg(long, value_parser = error, allow_hyphen_values = true, value_name = "X")]
    max_abs: Option<f64>,

    /// Maximum error relative to the largest magnitude in the output
    #[arg(long, value_parser = error, allow_hyphen_values = true, value_name = "X")]
    max_rel: Option<f64>,

    /// Minimum cosine similarity
    #[arg(long, value_parser = cosine, allow_hyphen_values = true, value_name = "X")]
    min_cosine: Option<f64>,

    /// Minimum signal-to-noise ratio, in decibels
    #[arg(long, value_parser = number, allow_hyphen_values = true, value_name = "DB")]
    min_snr: Option<f64>,

    /// Minimum fraction of rows whose largest element is at the same position
    #[arg(long, value_parser = share, allow_hyphen_values = true, value_name = "X")]
    min_top1: Option<f64>,
}

/// Parses a bound. NaN is rejected, since every comparison with it is false.
fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if number.is_nan() {
        return Err("expected a number".to_owned());
    }
    Ok(number)
}

fn error(text: &str) -> Result<f64, String> {
    let error = number(text)?;
    if error < 0.0 {
        return Err("expected a number from 0".to_owned());
    }
    Ok(error)
}

fn cosine(text: &str) -> Result<f64, String> {
    within(text, -1.0..=1.0)
}

fn share(text: &str) -> Result<f64, String> {
    within(text, 0.0..=1.0)
}

fn within(text: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    let value = number(text)?;
    if !range.contains(&value) {
        return Err(format!(
            "expected a number from {} to {}",
            range.start(),
            range.end()
        ));
    }
    Ok(value)
}

impl ToleranceArgs {
    /// Returns the given tolerances. Without any, returns those for the lower precision of the two
    /// sides, and why it was chosen. A provider that always computes in half precision counts as
    /// half precision.
    pub(super) fn of(
        &self,
        sides: &[ExecutionSide; 2],
        started: &[Started; 2],
    ) -> (Tolerances, Option<JudgedPrecision>) {
        let given = Tolerances {
            max_abs: self.max_abs,
            max_rel: self.max_rel,
            min_cosine: self.min_cosine,
            min_snr_db: self.min_snr,
            min_top1: self.min_top1,
        };
        if !given.is_empty() {
            return (given, None);
        }
        let precision = |place: usize| {
            let own = Precision::of(&sides[place].selection);
            let half = Precision::half(Provider::Qnn.name());
            let is_half = started[place].placement.has(Provider::Qnn);
            if is_half && half.is_below(&own) {
                half
            } else {
                own
            }
        };
        let (a, b) = (precision(0), precision(1));
        let (side, lower) = if a.is_below(&b) {
            ("A", a)
        } else if b.is_below(&a) {
            ("B", b)
        } else if a.token == b.token {
            ("both", b)
        } else {
            ("B", b)
        };
        let is_reading = |place: usize| {
            let selection = &sides[place].selection;
            let method = &selection.signature.method;
            let candidate = started[place].candidate;
            candidate.reading(&selection.info, method).is_some()
        };
        let one_engine = started[0].candidate.engine == started[1].candidate.engine;
        let tolerances = if one_engine && (is_reading(0) || is_reading(1)) {
            lower.tolerances_of_reading()
        } else {
            lower.tolerances()
        };
        (tolerances, Some(JudgedPrecision::new(side, &lower)))
    }
}
