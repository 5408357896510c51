//! What is demanded of an agreement: what the user says, or what suits the lower precision of the two.

use std::ops::RangeInclusive;

use super::super::sides::Side;
use super::report::Judged;
use crate::engine::Provider;
use crate::runtime::precision::Precision;
use crate::runtime::target::Started;
use crate::tensor::agreement::Tolerances;

/// Demands on the agreement.
#[derive(Debug, clap::Args)]
#[command(
    next_help_heading = "Tolerances (without any, those that suit the lower precision of the two)"
)]
pub(super) struct ToleranceArgs {
    /// Largest absolute error
    #[arg(long, value_parser = error, allow_hyphen_values = true, value_name = "X")]
    max_abs: Option<f64>,

    /// Largest error relative to an output's largest magnitude
    #[arg(long, value_parser = error, allow_hyphen_values = true, value_name = "X")]
    max_rel: Option<f64>,

    /// Least cosine similarity
    #[arg(long, value_parser = cosine, allow_hyphen_values = true, value_name = "X")]
    min_cosine: Option<f64>,

    /// Least signal-to-noise ratio, in decibels
    #[arg(long, value_parser = number, allow_hyphen_values = true, value_name = "DB")]
    min_snr: Option<f64>,

    /// Least share of rows whose largest element is at the same place
    #[arg(long, value_parser = share, allow_hyphen_values = true, value_name = "X")]
    min_top1: Option<f64>,
}

/// A bound is a number: nothing is within what is none, and everything, too.
fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_nan() {
        return Err("not a number".to_owned());
    }
    Ok(number)
}

fn error(text: &str) -> Result<f64, String> {
    let error = number(text)?;
    if error < 0.0 {
        return Err("no error is below 0".to_owned());
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
        return Err(format!("it is within {} to {}", range.start(), range.end()));
    }
    Ok(value)
}

impl ToleranceArgs {
    /// Those given; if none is, those that suit the lower precision of the two, whichever it is, and what
    /// says so. A provider that computes in half precision whatever the model says is judged as such.
    pub(super) fn of(
        &self,
        sides: &[Side; 2],
        started: &[Started; 2],
    ) -> (Tolerances, Option<Judged>) {
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
        (tolerances, Some(Judged::new(side, &lower)))
    }
}
