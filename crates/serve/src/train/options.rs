//! Training configuration: options for fitting the classifier.
//!
//! Invariant: a parsed configuration is within its bounds; unknown keys are rejected.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::service::Refusal;
use pkgtool_base::source::suggest;

/// JSON path of a config in refusals.
const CONFIG_PATH: &str = "$.config";

/// The known keys.
const KEYS: [&str; 10] = [
    "method",
    "l2",
    "max_iterations",
    "tolerance",
    "validation_fraction",
    "seed",
    "class_weights",
    "truncate",
    "backend",
    "precision",
];

/// Bounds of `l2`. Above the maximum, weights can no longer be distinguished from one another.
const L2_BOUNDS: (f64, f64) = (0.0, 1e9);

/// The smallest positive number.
const MIN_POSITIVE: f64 = f64::from_bits(1);

/// Maximum number of iterations.
const MAX_ITERATIONS: u64 = 100_000;

/// Maximum seed: the largest integer that every JSON reader represents exactly.
const MAX_SEED: u64 = (1 << 53) - 1;

/// How vectors become labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FitMethod {
    /// Logistic regression; for few rows, what is best by cross-validation.
    #[default]
    Auto,
    /// Multinomial logistic regression.
    Logistic,
    /// The nearest centroid of a label's rows.
    Centroids,
}

impl FitMethod {
    const ALL: [Self; 3] = [Self::Auto, Self::Logistic, Self::Centroids];

    /// Returns its name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Logistic => "logistic",
            Self::Centroids => "centroids",
        }
    }
}

/// Weighting of rows by their label.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ClassWeights {
    /// All rows have equal weight.
    #[default]
    Equal,
    /// All labels have equal total weight: a row of a label with `n` of `rows` rows has weight
    /// `rows / (labels · n)`.
    Balanced,
    /// Given weights; a label that is not listed has weight 1.
    Given(BTreeMap<String, f64>),
}

impl ClassWeights {
    /// Returns the JSON form used in a config.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Equal => json!("equal"),
            Self::Balanced => json!("balanced"),
            Self::Given(weights) => json!(weights),
        }
    }
}

/// Options for fitting a classifier.
#[derive(Debug, Clone, PartialEq)]
pub struct FitOptions {
    /// How vectors become labels (`method`).
    pub method: FitMethod,
    /// Strength of the L2 penalty on the weights, without the intercepts (`l2`). The objective is
    /// the sum of the rows' losses + `l2`/2 · the sum of the squared weights. It equals
    /// scikit-learn's `1/C`, for two labels and for more. `None` chooses it by validation rows.
    pub l2: Option<f64>,
    /// Maximum number of L-BFGS iterations (`max_iterations`).
    pub max_iterations: u64,
    /// Stops when no component of the gradient of the mean loss exceeds this (`tolerance`).
    pub tolerance: f64,
    /// Fraction of each label's rows that is reserved for validation (`validation_fraction`).
    pub validation_fraction: f64,
    /// Random seed for choosing the validation rows (`seed`).
    pub seed: u64,
    /// Weighting of rows (`class_weights`). `None` means equal weights if a penalty is given.
    /// Otherwise it chooses between equal rows and balanced labels, together with the penalty.
    pub class_weights: Option<ClassWeights>,
    /// Truncates texts that are too long for the model instead of failing (`truncate`).
    pub truncate: bool,
    /// Backend of the embedding model (`backend`); by default the one that serves requests without
    /// a config.
    pub backend: Option<String>,
    /// Precision of the embedding model (`precision`), with the same default.
    pub precision: Option<String>,
}

impl Default for FitOptions {
    fn default() -> Self {
        Self {
            method: FitMethod::Auto,
            l2: None,
            max_iterations: 200,
            tolerance: 1e-4,
            validation_fraction: 0.2,
            seed: 0,
            class_weights: None,
            truncate: false,
            backend: None,
            precision: None,
        }
    }
}

impl FitOptions {
    /// Parses a config.
    pub fn read(config: &Value) -> Result<Self, Refusal> {
        let Value::Object(members) = config else {
            return Err(Refusal::at(CONFIG_PATH, "expected an object"));
        };
        let mut options = Self::default();
        for (key, value) in members {
            let field = OptionField { key, value };
            match key.as_str() {
                _ if !KEYS.contains(&key.as_str()) => return Err(field.unknown_key()),
                _ if value.is_null() => {}
                "method" => options.method = field.method()?,
                "l2" => options.l2 = Some(field.number(L2_BOUNDS.0, L2_BOUNDS.1)?),
                "max_iterations" => options.max_iterations = field.whole(1, MAX_ITERATIONS)?,
                "tolerance" => options.tolerance = field.number(MIN_POSITIVE, 1.0)?,
                "validation_fraction" => options.validation_fraction = field.number(0.0, 0.9)?,
                "seed" => options.seed = field.whole(0, MAX_SEED)?,
                "class_weights" => options.class_weights = Some(field.weights()?),
                "truncate" => {
                    let truncate = value.as_bool();
                    options.truncate =
                        truncate.ok_or_else(|| field.invalid_value("true or false"))?;
                }
                "backend" => options.backend = Some(field.text()?),
                _ => options.precision = Some(field.text()?),
            }
        }
        Ok(options)
    }

    /// Returns the class weights to choose from.
    pub fn offered_weights(&self) -> Vec<ClassWeights> {
        match (&self.class_weights, self.l2) {
            (Some(given), _) => vec![given.clone()],
            (None, Some(_)) => vec![ClassWeights::Equal],
            (None, None) => vec![ClassWeights::Equal, ClassWeights::Balanced],
        }
    }

    /// Parses a config from JSON text.
    pub fn read_text(config: &str) -> Result<Self, Refusal> {
        let value = serde_json::from_str(config);
        let value =
            value.map_err(|error| Refusal::at(CONFIG_PATH, format!("invalid JSON: {error}")))?;
        Self::read(&value)
    }

    /// Returns the complete config.
    pub fn to_json(&self) -> Value {
        json!({
            "method": self.method.name(),
            "l2": self.l2,
            "max_iterations": self.max_iterations,
            "tolerance": self.tolerance,
            "validation_fraction": self.validation_fraction,
            "seed": self.seed,
            "class_weights": self.class_weights.as_ref().map(ClassWeights::to_json),
            "truncate": self.truncate,
            "backend": self.backend,
            "precision": self.precision,
        })
    }

    /// Returns the predict config for the embedding requests.
    pub fn predict_config(&self) -> Value {
        let mut config = json!({});
        if let Some(backend) = &self.backend {
            config["backend"] = json!(backend);
        }
        if let Some(precision) = &self.precision {
            config["precision"] = json!(precision);
        }
        config
    }
}

/// A member of a config.
struct OptionField<'a> {
    key: &'a str,
    value: &'a Value,
}

impl OptionField<'_> {
    fn number(&self, least: f64, most: f64) -> Result<f64, Refusal> {
        let number = self.value.as_f64();
        let number = number.filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            let from = if least > 0.0 {
                "above 0".to_owned()
            } else {
                format!("from {least}")
            };
            self.invalid_value(&format!("a number {from} to {most}"))
        })
    }

    fn whole(&self, least: u64, most: u64) -> Result<u64, Refusal> {
        // `5.0` is a whole number in JSON, too.
        let written = self.value.to_string();
        let number = written.strip_suffix(".0").unwrap_or(&written).parse().ok();
        let number = number.filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| self.invalid_value(&format!("a whole number from {least} to {most}")))
    }

    fn method(&self) -> Result<FitMethod, Refusal> {
        let mut known = FitMethod::ALL.into_iter();
        let method = known.find(|it| self.value.as_str() == Some(it.name()));
        method.ok_or_else(|| self.invalid_value("\"auto\", \"logistic\" or \"centroids\""))
    }

    fn text(&self) -> Result<String, Refusal> {
        let text = self.value.as_str().map(str::to_owned);
        text.ok_or_else(|| self.invalid_value("a string"))
    }

    fn weights(&self) -> Result<ClassWeights, Refusal> {
        let expected = "null, \"equal\", \"balanced\", or an object with a number above 0 to 1000000 for each \
                        label";
        let weight = |value: &Value| {
            let number = value.as_f64();
            number.filter(|number| *number > 0.0 && *number <= 1e6)
        };
        match self.value {
            Value::String(text) if text == "equal" => Ok(ClassWeights::Equal),
            Value::String(text) if text == "balanced" => Ok(ClassWeights::Balanced),
            Value::Object(members) => {
                let weights = members.iter();
                let weights = weights.map(|(label, value)| Some((label.clone(), weight(value)?)));
                let weights = weights.collect::<Option<_>>();
                weights
                    .map(ClassWeights::Given)
                    .ok_or_else(|| self.invalid_value(expected))
            }
            _ => Err(self.invalid_value(expected)),
        }
    }

    fn invalid_value(&self, expected: &str) -> Refusal {
        let shown = crate::service::json::shown(&self.value.to_string());
        let message = format!("expected {expected}, got {shown}");
        Refusal::at(format!("{CONFIG_PATH}.{}", self.key), message)
    }

    fn unknown_key(&self) -> Refusal {
        let key = crate::service::json::shown(self.key);
        let meant = suggest::nearest(self.key, KEYS.into_iter());
        let meant = meant.map(|meant| format!(", did you mean `{meant}`?"));
        let known = KEYS.map(|key| format!("`{key}`")).join(", ");
        let meant = meant.unwrap_or_default();
        Refusal::at(
            CONFIG_PATH,
            format!("unknown key {key}{meant}; supported keys: {known}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_reads_back() {
        let given = ClassWeights::Given([("a".to_owned(), 2.5)].into());
        for class_weights in [ClassWeights::Equal, ClassWeights::Balanced, given] {
            let options = FitOptions {
                method: FitMethod::Centroids,
                l2: Some(0.25),
                max_iterations: 7,
                tolerance: 1e-9,
                validation_fraction: 0.0,
                seed: 11,
                class_weights: Some(class_weights),
                truncate: true,
                backend: Some("xnnpack".to_owned()),
                precision: Some("fp32".to_owned()),
            };
            assert_eq!(FitOptions::read(&options.to_json()), Ok(options));
        }
        assert_eq!(FitOptions::read_text("{}"), Ok(FitOptions::default()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (config, place, word) in [
            ("[]", "$.config", "an object"),
            ("{", "$.config", "invalid JSON"),
            (r#"{"L2": 1}"#, "$.config", "did you mean `l2`?"),
            (r#"{"l2": -1}"#, "$.config.l2", "from 0"),
            (r#"{"l2": "1"}"#, "$.config.l2", "a number"),
            (
                r#"{"max_iterations": 0}"#,
                "$.config.max_iterations",
                "from 1",
            ),
            (
                r#"{"max_iterations": 1.5}"#,
                "$.config.max_iterations",
                "whole",
            ),
            (r#"{"tolerance": 0}"#, "$.config.tolerance", "above 0"),
            (
                r#"{"validation_fraction": 1}"#,
                "$.config.validation_fraction",
                "0.9",
            ),
            (r#"{"seed": -1}"#, "$.config.seed", "whole"),
            (
                r#"{"class_weights": "even"}"#,
                "$.config.class_weights",
                "balanced",
            ),
            (
                r#"{"class_weights": {"a": 0}}"#,
                "$.config.class_weights",
                "above 0",
            ),
            (r#"{"truncate": 1}"#, "$.config.truncate", "true or false"),
            (r#"{"backend": 1}"#, "$.config.backend", "a string"),
        ] {
            let refusal = FitOptions::read_text(config).expect_err(config);
            assert_eq!(refusal.place.as_deref(), Some(place), "{config}");
            assert!(
                refusal.message.contains(word),
                "{config}: {}",
                refusal.message
            );
        }
    }
}
