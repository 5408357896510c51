//! Limits on figures.

use pkgtool_eval::Figure;

use crate::cli::exit::Failure;

/// Options for limits on figures.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct LimitArgs {
    /// Require a figure to be at least VALUE, such as `top-1=0.7`; may be given several times
    #[arg(long, value_name = "FIGURE=VALUE", value_parser = at_least)]
    at_least: Vec<FigureLimit>,

    /// Require a figure to be at most VALUE, such as `WER=0.1`; may be given several times
    #[arg(long, value_name = "FIGURE=VALUE", value_parser = at_most)]
    at_most: Vec<FigureLimit>,
}

impl LimitArgs {
    /// Returns whether there is no limit.
    pub(super) fn is_empty(&self) -> bool {
        self.at_least.is_empty() && self.at_most.is_empty()
    }

    /// Returns a description of each figure beyond a limit. Each figure has the label of its row.
    pub(super) fn broken(&self, figures: &[(&str, &Figure)]) -> Result<Vec<String>, Failure> {
        let mut broken = Vec::new();
        for limit in self.at_least.iter().chain(&self.at_most) {
            let mut about = figures
                .iter()
                .filter(|(_, it)| limit.is_about(it))
                .peekable();
            if about.peek().is_none() {
                let mut names: Vec<&str> = Vec::new();
                for (_, figure) in figures {
                    if !names.contains(&figure.name) {
                        names.push(figure.name);
                    }
                }
                let (name, names) = (&limit.figure, names.join(", "));
                return Err(Failure::Other(format!(
                    "no figure {name}: expected one of {names}"
                )));
            }
            broken.extend(about.filter_map(|(label, figure)| {
                let reason = limit.broken(figure)?;
                Some(format!("{label}: {reason}"))
            }));
        }
        Ok(broken)
    }
}

/// The least or largest value of a figure.
#[derive(Debug, Clone, PartialEq)]
struct FigureLimit {
    figure: String,
    value: f64,
    is_least: bool,
}

fn at_least(text: &str) -> Result<FigureLimit, String> {
    read(text, true)
}

fn at_most(text: &str) -> Result<FigureLimit, String> {
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
    fn is_about(&self, figure: &Figure) -> bool {
        key(figure.name) == key(&self.figure)
    }

    /// Describes how a figure breaks the limit, or returns `None` if it is within.
    fn broken(&self, figure: &Figure) -> Option<String> {
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

/// Returns the name of a figure as a key of JSON.
pub(super) fn key(name: &str) -> String {
    name.to_lowercase().replace([' ', '-'], "_")
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
