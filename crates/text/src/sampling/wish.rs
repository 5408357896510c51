//! Sampling settings as given in a request or in a `generation_config.json`.
//!
//! Invariant: parsed values are in range; absent and `null` fields count as not given.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::SamplingError;
use super::bounds::{MAX_LOGIT_BIAS, MAX_LOGPROBS, SettingRange};

/// Maximum length of a value in an error message, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// Optional overrides of [`Sampling`](super::Sampling).
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(missing_docs, reason = "each field is documented in `Sampling`")]
pub struct SamplingOverrides {
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub logit_bias: Option<Vec<(u32, f32)>>,
    pub seed: Option<u64>,
    pub logprobs: Option<usize>,
}

impl SamplingOverrides {
    /// Parses the settings of a request or of a predict config. Other fields are ignored.
    pub fn of_request(fields: &Map<String, Value>) -> Result<Self, SamplingError> {
        let mut wish = Self::numbers(fields)?;
        wish.logit_bias = biases(fields)?;
        wish.seed = seed(fields)?;
        wish.logprobs = logprobs(fields)?;
        Ok(wish)
    }

    /// Parses a model's `generation_config.json`. Its settings apply only if `do_sample` is true;
    /// if it is false, the most likely token is always taken.
    pub fn of_generation_config(config: &Map<String, Value>) -> Result<Self, SamplingError> {
        let all = Self::numbers(config)?;
        Ok(match config.get("do_sample") {
            Some(Value::Bool(true)) => all,
            said => Self {
                repetition_penalty: all.repetition_penalty,
                temperature: (said == Some(&Value::Bool(false))).then_some(0.0),
                ..Self::default()
            },
        })
    }

    /// Returns this override with gaps filled from `other`.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self {
            temperature: self.temperature.or(other.temperature),
            top_k: self.top_k.or(other.top_k),
            top_p: self.top_p.or(other.top_p),
            min_p: self.min_p.or(other.min_p),
            repetition_penalty: self.repetition_penalty.or(other.repetition_penalty),
            frequency_penalty: self.frequency_penalty.or(other.frequency_penalty),
            presence_penalty: self.presence_penalty.or(other.presence_penalty),
            logit_bias: self.logit_bias.or(other.logit_bias),
            seed: self.seed.or(other.seed),
            logprobs: self.logprobs.or(other.logprobs),
        }
    }

    fn numbers(fields: &Map<String, Value>) -> Result<Self, SamplingError> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "values are within small bounds, and logits are no more precise"
        )]
        let number = |name| Ok(number(fields, name)?.map(|value| value as f32));
        Ok(Self {
            temperature: number("temperature")?,
            top_k: self::number(fields, "top_k")?.map(count),
            // A value above zero stays above zero, however small it is.
            top_p: number("top_p")?.map(|value| value.max(f32::MIN_POSITIVE)),
            min_p: number("min_p")?,
            repetition_penalty: number("repetition_penalty")?
                .map(|value| value.max(f32::MIN_POSITIVE)),
            frequency_penalty: number("frequency_penalty")?,
            presence_penalty: number("presence_penalty")?,
            ..Self::default()
        })
    }
}

/// Converts a count; -1 means all, as 0 does.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts beyond the maximum mean all tokens, too"
)]
fn count(value: f64) -> usize {
    value.max(0.0) as usize
}

fn present_field<'v>(fields: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn number(fields: &Map<String, Value>, name: &str) -> Result<Option<f64>, SamplingError> {
    let Some(value) = present_field(fields, name) else {
        return Ok(None);
    };
    let bound = SettingRange::of(name);
    let number = value.as_f64();
    let number = number.ok_or_else(|| wrong(name, &bound.describe(), value))?;
    bound.check(number).map(Some)
}

fn wrong(field: &str, expected: &str, found: &Value) -> SamplingError {
    let mut found = found.to_string();
    if let Some((end, _)) = found.char_indices().nth(MAX_SHOWN_CHARS) {
        found.truncate(end);
        found.push('…');
    }
    SamplingError::Setting {
        field: field.to_owned(),
        expected: expected.to_owned(),
        found,
    }
}

fn seed(fields: &Map<String, Value>) -> Result<Option<u64>, SamplingError> {
    let Some(value) = present_field(fields, "seed") else {
        return Ok(None);
    };
    // Clients also send negative seeds; each is a distinct seed.
    let seed = value
        .as_u64()
        .or_else(|| value.as_i64().map(i64::cast_unsigned));
    let seed = seed.ok_or_else(|| wrong("seed", "a whole number of 64 bits", value))?;
    Ok(Some(seed))
}

/// Parses `{"token id": bias}`.
fn biases(fields: &Map<String, Value>) -> Result<Option<Vec<(u32, f32)>>, SamplingError> {
    let Some(value) = present_field(fields, "logit_bias") else {
        return Ok(None);
    };
    let expected = "an object of token ids, each with a bias";
    let object = value.as_object();
    let object = object.ok_or_else(|| wrong("logit_bias", expected, value))?;
    let mut biases = BTreeMap::new();
    for (token, bias) in object {
        let id = token.parse::<u32>().map_err(|_| SamplingError::Setting {
            field: "logit_bias".to_owned(),
            expected: expected.to_owned(),
            found: format!("an object with the key {}", Value::from(token.as_str())),
        })?;
        let field = format!("logit_bias.{id}");
        let number = bias.as_f64().filter(|bias| bias.abs() <= MAX_LOGIT_BIAS);
        let number = number.ok_or_else(|| wrong(&field, "a number from -100 to 100", bias))?;
        #[expect(clippy::cast_possible_truncation, reason = "the value is at most 100")]
        biases.insert(id, number as f32);
    }
    Ok(Some(biases.into_iter().collect()))
}

/// Parses the number of reported tokens. Chats have a boolean `logprobs` and a number
/// `top_logprobs`; completions have a number `logprobs`.
fn logprobs(fields: &Map<String, Value>) -> Result<Option<usize>, SamplingError> {
    let expected = "a whole number from 0 to 20";
    let count = |name: &str, value: &Value| {
        let count = value.as_u64().filter(|count| *count <= MAX_LOGPROBS);
        let count = count.ok_or_else(|| wrong(name, expected, value))?;
        Ok(usize::try_from(count).expect("it is at most 20"))
    };
    let top = present_field(fields, "top_logprobs");
    let top = top.map(|value| count("top_logprobs", value)).transpose()?;
    match present_field(fields, "logprobs") {
        Some(Value::Bool(true)) => Ok(Some(top.unwrap_or(0))),
        None | Some(Value::Bool(false)) => match top {
            None | Some(0) => Ok(None),
            Some(top) => Err(SamplingError::Setting {
                field: "logprobs".to_owned(),
                expected: "true where `top_logprobs` is given".to_owned(),
                found: format!("absent or false beside `top_logprobs` {top}"),
            }),
        },
        Some(value) if value.is_number() => count("logprobs", value).map(Some),
        Some(value) => Err(wrong("logprobs", "true, false or a whole number", value)),
    }
}
