//! The range and default of each sampling setting, used for parsing and for documentation.

use super::SamplingError;

/// A numeric setting with its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Its name in requests and in `generation_config.json`.
    pub name: &'static str,
    /// Smallest value.
    pub least: f64,
    /// True if the minimum itself is excluded.
    pub above: bool,
    /// Largest value; `None` if only the type limits it.
    pub most: Option<f64>,
    /// Default value.
    pub default: f64,
    /// True if the setting is an integer.
    pub whole: bool,
}

const fn number(name: &'static str, least: f64, most: f64, default: f64) -> Bound {
    Bound {
        name,
        least,
        above: false,
        most: Some(most),
        default,
        whole: false,
    }
}

/// All numeric settings.
pub const BOUNDS: [Bound; 7] = [
    number("temperature", 0.0, 2.0, 1.0),
    Bound {
        name: "top_k",
        least: -1.0,
        above: false,
        most: None,
        default: 0.0,
        whole: true,
    },
    Bound {
        above: true,
        ..number("top_p", 0.0, 1.0, 1.0)
    },
    number("min_p", 0.0, 1.0, 0.0),
    Bound {
        above: true,
        ..number("repetition_penalty", 0.0, 10.0, 1.0)
    },
    number("frequency_penalty", -2.0, 2.0, 0.0),
    number("presence_penalty", -2.0, 2.0, 0.0),
];

/// Maximum number of most likely tokens that an answer reports.
pub(super) const MOST_LOGPROBS: u64 = 20;

/// Maximum absolute value of a logit bias.
pub(super) const MOST_BIAS: f64 = 100.0;

impl Bound {
    /// Returns the range of a setting of [`BOUNDS`].
    pub(super) fn of(name: &str) -> Self {
        let found = BOUNDS.into_iter().find(|bound| bound.name == name);
        found.expect("every parsed setting has a range")
    }

    /// Returns the value if it is in range.
    pub(super) fn check(self, value: f64) -> Result<f64, SamplingError> {
        let enough = if self.above {
            value > self.least
        } else {
            value >= self.least
        };
        let within = enough && self.most.is_none_or(|most| value <= most);
        if within && (!self.whole || value.fract() == 0.0) {
            return Ok(value);
        }
        Err(SamplingError::Setting {
            field: self.name.to_owned(),
            expected: self.words(),
            found: value.to_string(),
        })
    }

    /// Describes the type and the range.
    pub(super) fn words(self) -> String {
        let kind = if self.whole {
            "a whole number"
        } else {
            "a number"
        };
        let least = self.least;
        match (self.above, self.most) {
            (false, Some(most)) => format!("{kind} from {least} to {most}"),
            (true, Some(most)) => format!("{kind} above {least} and up to {most}"),
            (false, None) => format!("{kind} of at least {least}"),
            (true, None) => format!("{kind} above {least}"),
        }
    }
}
