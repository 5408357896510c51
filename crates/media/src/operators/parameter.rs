//! Parameters of operators: their kinds, and the check of values.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// Maximum number of labels in a recipe.
const MAX_LABELS: usize = 100_000;

/// Maximum length of a short text, in bytes.
const MAX_WORD_BYTES: usize = 64;

/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// A parameter of an operator.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ParameterKind,
    /// The value if a step has none, as JSON; `None` for a parameter that every step needs.
    pub(crate) default: Option<&'static str>,
}

/// The values that a parameter accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParameterKind {
    /// A number in this range.
    Number(f64, f64),
    /// A number, or one for each of the three channels.
    Channels,
    /// An integer in this range.
    Whole(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// True or false.
    Flag,
    /// A short text.
    Word,
    /// A text.
    Text,
    /// The name of a set of labels, or a list of labels.
    Labels,
}

impl ParameterKind {
    /// Checks a value.
    pub(crate) fn check(self, value: &Json) -> Result<(), String> {
        let number = value.as_f64().filter(|number| number.is_finite());
        let is_valid = match self {
            Self::Number(least, most) => number.is_some_and(|it| (least..=most).contains(&it)),
            Self::Channels => match value.as_array() {
                Some(values) => values.len() == 3 && values.iter().all(Json::is_number),
                None => number.is_some(),
            },
            Self::Whole(least, most) => value
                .as_u64()
                .is_some_and(|it| (least..=most).contains(&it)),
            Self::Choice(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Flag => value.is_boolean(),
            Self::Word => value
                .as_str()
                .is_some_and(|word| word.len() <= MAX_WORD_BYTES),
            Self::Text => value
                .as_str()
                .is_some_and(|text| text.len() <= MAX_TEXT_BYTES),
            Self::Labels => match value.as_array() {
                Some(labels) => labels.len() <= MAX_LABELS && labels.iter().all(Json::is_string),
                None => value.is_string(),
            },
        };
        if is_valid {
            return Ok(());
        }
        let expected = match self {
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Channels => "a number, or a list of three".to_owned(),
            Self::Whole(least, most) => format!("an integer from {least} to {most}"),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Flag => "true or false".to_owned(),
            Self::Word => "a short text".to_owned(),
            Self::Text => format!("a text of at most {MAX_TEXT_BYTES} bytes"),
            Self::Labels => "the name of a set of labels, or a list of texts".to_owned(),
        };
        let mut found = value.to_string();
        if found.len() > 60 {
            let end = (0..=60)
                .rev()
                .find(|at| found.is_char_boundary(*at))
                .unwrap_or(0);
            found.truncate(end);
            found.push('…');
        }
        Err(format!("expected {expected}, got {found}"))
    }
}

/// The checked values of a step's parameters.
#[derive(Debug, Default)]
pub(crate) struct Arguments(pub(crate) BTreeMap<&'static str, Json>);

impl Arguments {
    /// Creates the arguments of a step: these settings, and defaults for the others.
    #[cfg(test)]
    pub(crate) fn given(parameters: &[Parameter], settings: &[(&'static str, &str)]) -> Self {
        let defaults = parameters.iter();
        let defaults = defaults.map(|it| (it.name, it.default.unwrap_or("null")));
        let all = defaults.chain(settings.iter().copied());
        let all = all.map(|(name, value)| (name, serde_json::from_str(value).expect("JSON")));
        Self(all.collect())
    }

    fn value(&self, name: &str) -> &Json {
        self.0.get(name).unwrap_or(&Json::Null)
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.value(name).as_f64().unwrap_or_default()
    }

    /// Returns a number that needs no more than single precision.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "callers want the nearest number"
    )]
    pub(crate) fn single(&self, name: &str) -> f32 {
        self.number(name) as f32
    }

    pub(crate) fn whole(&self, name: &str) -> usize {
        let number = self.value(name).as_u64().unwrap_or_default();
        usize::try_from(number).unwrap_or(usize::MAX)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.value(name).as_bool().unwrap_or_default()
    }

    pub(crate) fn word(&self, name: &str) -> &str {
        self.value(name).as_str().unwrap_or_default()
    }

    /// Returns the numbers of the three channels.
    pub(crate) fn channels(&self, name: &str) -> [f64; 3] {
        let value = self.value(name);
        let one = value.as_f64();
        let of = |channel: usize| one.or_else(|| value[channel].as_f64()).unwrap_or_default();
        [of(0), of(1), of(2)]
    }

    pub(crate) fn json(&self, name: &str) -> &Json {
        self.value(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_of_a_wrong_kind_are_refused_with_the_right_one() {
        for (kind, good, bad, expected) in [
            (
                ParameterKind::Number(0.0, 1.0),
                json!(0.5),
                json!(2),
                "a number from 0 to 1",
            ),
            (
                ParameterKind::Channels,
                json!([1, 2, 3]),
                json!([1, 2]),
                "a list of three",
            ),
            (
                ParameterKind::Whole(1, 9),
                json!(3),
                json!(0.5),
                "an integer from 1 to 9",
            ),
            (
                ParameterKind::Choice(&["a", "b"]),
                json!("a"),
                json!("c"),
                "one of a, b",
            ),
            (ParameterKind::Flag, json!(true), json!(1), "true or false"),
            (
                ParameterKind::Labels,
                json!(["x"]),
                json!([1]),
                "a list of texts",
            ),
        ] {
            assert_eq!(kind.check(&good), Ok(()));
            let error = kind.check(&bad).expect_err("a wrong value");
            assert!(error.contains(expected), "{error}");
        }
        let long = json!("ä".repeat(100));
        let error = ParameterKind::Flag.check(&long).expect_err("a text");
        assert!(error.ends_with('…'), "{error}");
    }
}
