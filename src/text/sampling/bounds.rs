//! The bounds of each setting, once: for reading them and for telling them.

use super::SamplingError;

/// A setting that is a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// As requests and `generation_config.json` name it.
    pub name: &'static str,
    /// Smallest value.
    pub least: f64,
    /// Whether the smallest value itself is refused.
    pub above: bool,
    /// Largest value; `None` where only the type bounds it.
    pub most: Option<f64>,
    /// Value where nobody says one.
    pub default: f64,
    /// Whether it counts.
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

/// All of them.
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

/// Most of the likeliest tokens that are told.
pub(super) const MOST_LOGPROBS: u64 = 20;

/// Largest bias.
pub(super) const MOST_BIAS: f64 = 100.0;

impl Bound {
    /// The bound of a setting of [`BOUNDS`].
    pub(super) fn of(name: &str) -> Self {
        let found = BOUNDS.into_iter().find(|bound| bound.name == name);
        found.expect("every setting that is read has its bounds")
    }

    /// The value, if it is within.
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

    /// Type and bounds in words.
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
