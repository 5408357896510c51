//! The range and default of each sampling setting, used for parsing and for documentation.

use super::SamplingError;

/// A numeric setting with its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SettingRange {
    /// Its name in requests and in `generation_config.json`.
    pub name: &'static str,
    /// Smallest value.
    pub least: f64,
    /// True if the minimum itself is excluded.
    pub excludes_minimum: bool,
    /// Largest value; `None` if only the type limits it.
    pub most: Option<f64>,
    /// Default value.
    pub default: f64,
    /// True if the setting is an integer.
    pub is_integer: bool,
}

const fn number(name: &'static str, least: f64, most: f64, default: f64) -> SettingRange {
    SettingRange {
        name,
        least,
        excludes_minimum: false,
        most: Some(most),
        default,
        is_integer: false,
    }
}

/// All numeric settings.
pub const SETTING_RANGES: [SettingRange; 7] = [
    number("temperature", 0.0, 2.0, 1.0),
    SettingRange {
        name: "top_k",
        least: -1.0,
        excludes_minimum: false,
        most: None,
        default: 0.0,
        is_integer: true,
    },
    SettingRange {
        excludes_minimum: true,
        ..number("top_p", 0.0, 1.0, 1.0)
    },
    number("min_p", 0.0, 1.0, 0.0),
    SettingRange {
        excludes_minimum: true,
        ..number("repetition_penalty", 0.0, 10.0, 1.0)
    },
    number("frequency_penalty", -2.0, 2.0, 0.0),
    number("presence_penalty", -2.0, 2.0, 0.0),
];

/// Maximum number of most likely tokens that an answer reports.
pub(super) const MAX_LOGPROBS: u64 = 20;

/// Maximum absolute value of a logit bias.
pub(super) const MAX_LOGIT_BIAS: f64 = 100.0;

impl SettingRange {
    /// Returns the range of a setting of [`SETTING_RANGES`].
    pub(super) fn of(name: &str) -> Self {
        let found = SETTING_RANGES.into_iter().find(|bound| bound.name == name);
        found.expect("every parsed setting has a range")
    }

    /// Returns the value if it is in range.
    pub(super) fn check(self, value: f64) -> Result<f64, SamplingError> {
        let enough = if self.excludes_minimum {
            value > self.least
        } else {
            value >= self.least
        };
        let within = enough && self.most.is_none_or(|most| value <= most);
        if within && (!self.is_integer || value.fract() == 0.0) {
            return Ok(value);
        }
        Err(SamplingError::Setting {
            field: self.name.to_owned(),
            expected: self.describe(),
            found: value.to_string(),
        })
    }

    /// Describes the type and the range.
    pub(super) fn describe(self) -> String {
        let kind = if self.is_integer {
            "a whole number"
        } else {
            "a number"
        };
        let least = self.least;
        match (self.excludes_minimum, self.most) {
            (false, Some(most)) => format!("{kind} from {least} to {most}"),
            (true, Some(most)) => format!("{kind} above {least} and up to {most}"),
            (false, None) => format!("{kind} of at least {least}"),
            (true, None) => format!("{kind} above {least}"),
        }
    }
}
