//! Limits on figures.

use pkgtool_eval::Figure;
use serde::Serialize;

/// The least or largest value of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FigureLimit {
    /// Name of the figure.
    pub(super) figure: String,
    value: f64,
    is_least: bool,
}

/// Reads the value of `--at-least`.
pub(super) fn at_least(text: &str) -> Result<FigureLimit, String> {
    read(text, true)
}

/// Reads the value of `--at-most`.
pub(super) fn at_most(text: &str) -> Result<FigureLimit, String> {
    read(text, false)
}

fn read(text: &str, is_least: bool) -> Result<FigureLimit, String> {
    let parts = text.rsplit_once('=');
    let value = parts.and_then(|(figure, value)| {
        let number = match value.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok()? / 100.0,
            None => value.parse().ok()?,
        };
        Some((figure, number)).filter(|(_, number)| number.is_finite())
    });
    let (figure, value) = value.ok_or("expected FIGURE=VALUE, such as `top-1=0.7`")?;
    Ok(FigureLimit {
        figure: figure.to_owned(),
        value,
        is_least,
    })
}

impl FigureLimit {
    /// Returns whether the limit is about a figure.
    pub(super) fn is_about(&self, figure: &Figure) -> bool {
        figure.name.eq_ignore_ascii_case(&self.figure)
    }

    /// Describes how a figure breaks the limit, or returns `None` if it is within.
    pub(super) fn broken(&self, figure: &Figure) -> Option<String> {
        let is_within = figure.value.is_some_and(|value| {
            if self.is_least {
                value >= self.value
            } else {
                value <= self.value
            }
        });
        let word = if self.is_least { "at least" } else { "at most" };
        let limit = Figure {
            value: Some(self.value),
            ..figure.clone()
        };
        (!is_within).then(|| {
            let (name, shown, limit) = (figure.name, figure.shown(), limit.shown());
            format!("{name} is {shown}: expected {word} {limit}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_or_percent() {
        for (text, expected) in [("top-1=0.7", 0.7), ("mAP=35%", 0.35), ("AP small=1", 1.0)] {
            assert_eq!(
                at_least(text).map(|limit| limit.value),
                Ok(expected),
                "{text}"
            );
        }
        for text in ["", "top-1", "top-1=", "top-1=much", "a=inf", "=%"] {
            assert!(at_most(text).is_err(), "{text}");
        }
    }
}
