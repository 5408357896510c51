//! The fitting thread of a training: chooses the method, fits, and measures on held-out rows.
//!
//! Invariant: a row never judges a classifier that was fitted to it. The result is fitted to all
//! rows. The same rows and options give the same result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ndarray::Array2;
use serde_json::{Value, json};

use super::advice::{self, Abstention, CurvePoint, HeldOut, Judged};
use super::classifier::{
    self, ChosenPenalty, Classifier, Examples, FitError, Fitted, Metrics, RowSubset,
};
use super::embed::EmbeddedRows;
use super::error::TrainError;
use super::options::{ClassWeights, FitMethod, FitOptions};
use super::progress::TrainingProgress;
use pkgtool_media::trained::LabelDecision;

/// With fewer rows per label, on average, none are held out: cross-validation chooses among methods, and the classifier
/// is fitted to all rows.
const FEW_ROWS: usize = 8;

/// Penalties of the regressions that compete with centroids.
const FEW_PENALTIES: [f64; 4] = [1.0, 0.1, 0.01, 0.001];

/// Maximum number of labels for which regressions compete.
const MAX_FEW_LABELS: usize = 50;

/// Gain in macro F1 for which a regression is preferred to centroids.
const MIN_FEW_GAIN: f64 = 0.01;

/// Parts of the training rows at which quality is measured, in percent.
const CURVE_PARTS: [usize; 3] = [25, 50, 75];

/// Parameters of the fitting thread.
pub(super) struct FitTask {
    pub(super) options: FitOptions,
    pub(super) labels: Vec<String>,
    /// Number of rows of each label.
    pub(super) rows_by_label: Vec<u64>,
    /// Whether a row may have several labels.
    pub(super) multi_label: bool,
    pub(super) stopped: Arc<AtomicBool>,
    pub(super) progress: Arc<TrainingProgress>,
}

/// A classifier with its quality metrics.
pub(super) struct MeasuredClassifier {
    pub(super) classifier: Classifier,
    pub(super) metrics: Value,
    /// How its probabilities become an answer, if not by the greatest one alone.
    pub(super) decision: Option<LabelDecision>,
}

/// The parts of the metrics that all methods have.
pub(super) struct Measured<'a> {
    pub(super) classifier: Classifier,
    pub(super) method: FitMethod,
    /// Number of rows of the dataset.
    pub(super) rows: usize,
    pub(super) training_rows: usize,
    pub(super) held_out: &'a dyn Judged,
    /// Entries of one method.
    pub(super) own: Value,
    pub(super) curve: Vec<CurvePoint>,
}

impl FitTask {
    /// Returns whether the training is still wanted.
    pub(super) fn goes_on(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed)
    }

    /// Returns all rows.
    fn examples<'a>(&self, embedded: &'a EmbeddedRows, places: &'a [u32]) -> Examples<'a> {
        Examples {
            vectors: &embedded.vectors,
            width: embedded.width,
            labels: places,
            count: self.labels.len(),
        }
    }

    /// Fits to rows with one label each, `places`.
    pub(super) fn fit(
        &self,
        embedded: &EmbeddedRows,
        places: &[u32],
    ) -> Result<MeasuredClassifier, TrainError> {
        let options = &self.options;
        let is_settled = options.l2.is_some() || options.class_weights.is_some();
        let is_few = places.len() < FEW_ROWS * self.labels.len() && !is_settled;
        match options.method {
            FitMethod::Auto if is_few => self.all_rows(embedded, places, &FEW_PENALTIES),
            FitMethod::Centroids => self.all_rows(embedded, places, &[]),
            FitMethod::Auto | FitMethod::Logistic => self.logistic(embedded, places),
        }
    }

    /// Fits to all rows: centroids, or a regression with one of these penalties, if it is better in cross-validation.
    fn all_rows(
        &self,
        embedded: &EmbeddedRows,
        places: &[u32],
        penalties: &[f64],
    ) -> Result<MeasuredClassifier, TrainError> {
        if !embedded.vectors.iter().all(|number| number.is_finite()) {
            return Err(FitError::NotFinite.into());
        }
        let examples = self.examples(embedded, places);
        let judge = |probabilities: &Array2<f32>| {
            let rows = HeldOut {
                names: &self.labels,
                labels: places,
                lines: &embedded.lines,
                probabilities: probabilities.view(),
            };
            rows.metrics().macro_f1
        };
        let goes_on = |_: u64| self.goes_on();
        let fitted = classifier::centroids(examples);
        let (mut judged, mut penalty) = (fitted.without_each, None);
        let mut best = judge(&judged) + MIN_FEW_GAIN;
        let mut compared = 0;
        for (place, l2) in penalties.iter().enumerate() {
            if examples.count > MAX_FEW_LABELS {
                break;
            }
            compared = place + 1;
            let tried = classifier::cross_validate(examples, *l2, &self.options, &goes_on);
            let tried = match tried {
                Ok(tried) => tried,
                // Another penalty may succeed.
                Err(FitError::Failed(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            let score = judge(&tried);
            if score > best {
                (best, judged, penalty) = (score, tried, Some(*l2));
            }
        }
        let (method, classifier, loss, converged) = match penalty {
            None => (FitMethod::Centroids, fitted.classifier, fitted.loss, true),
            Some(l2) => {
                let weights = vec![1.0; places.len()];
                let fitted = classifier::fit(examples, weights, l2, &self.options, &goes_on)?;
                let Fitted {
                    classifier,
                    loss,
                    converged,
                    ..
                } = fitted;
                (FitMethod::Logistic, classifier, loss, converged)
            }
        };
        let taken = classifier.predict(&embedded.vectors);
        let training = Metrics::of(&self.labels, places, &taken);
        Ok(self.measured(Measured {
            classifier,
            method,
            rows: places.len(),
            training_rows: places.len(),
            held_out: &HeldOut {
                names: &self.labels,
                labels: places,
                lines: &embedded.lines,
                probabilities: judged.view(),
            },
            own: json!({
                "dimensions": embedded.width,
                "loss": loss,
                "converged": converged,
                "training_accuracy": training.accuracy,
                "l2": penalty,
                "class_weights": "equal",
                "compared": compared,
                "cross_validated": true,
            }),
            curve: Vec::new(),
        }))
    }

    /// Fits a regression to training rows, measures it on validation rows, and fits it again to all rows.
    fn logistic(
        &self,
        embedded: &EmbeddedRows,
        places: &[u32],
    ) -> Result<MeasuredClassifier, TrainError> {
        let options = &self.options;
        let all = self.examples(embedded, places);
        let fraction = options.validation_fraction;
        let split = classifier::split(places, all.count, fraction, options.seed);
        let training = RowSubset::of(all, &split.training);
        let validation = RowSubset::of(all, &split.validation);
        let lines = split.validation.iter().map(|row| embedded.lines[*row]);
        let lines: Vec<u64> = lines.collect();
        let goes_on = |evaluations: u64| {
            self.progress
                .at(0, 100, evaluations, options.max_iterations);
            self.goes_on()
        };
        let examples = training.examples(all);
        let kept = validation.examples(all);
        let FitSettings {
            l2,
            class_weights,
            weights,
            compared,
        } = self.settle(
            &|wanted| weights_of(wanted, &self.labels, examples.labels),
            &|weighings| {
                classifier::choose((examples, kept), weighings, options, &|_| self.goes_on())
            },
        )?;
        let part = |rest| {
            let (labels, count) = (examples.labels, examples.count);
            classifier::split(labels, count, rest, options.seed).training
        };
        let measure = |rows: &[usize], options: &FitOptions| {
            let part = RowSubset::of(examples, rows);
            let weights = rows.iter().map(|row| weights[*row]).collect();
            let part = part.examples(examples);
            let fitted = classifier::fit(part, weights, l2, options, &|_| self.goes_on())?;
            let taken = fitted.classifier.predict(kept.vectors);
            Ok(Metrics::of(&self.labels, kept.labels, &taken))
        };
        let counts = (examples.labels.len(), kept.labels.len());
        let curve = self.curve(counts, part, measure)?;
        let Fitted {
            classifier,
            loss,
            evaluations,
            converged,
        } = classifier::fit(examples, weights, l2, options, &goes_on)?;
        let probabilities = classifier.probabilities(&validation.vectors);
        let on_training = classifier.predict(&training.vectors);
        let on_training = Metrics::of(&self.labels, &training.labels, &on_training);
        let of_all = if validation.labels.is_empty() {
            classifier
        } else {
            let weights = weights_of(&class_weights, &self.labels, places)?;
            classifier::fit(all, weights, l2, options, &goes_on)?.classifier
        };
        Ok(self.measured(Measured {
            classifier: of_all,
            method: FitMethod::Logistic,
            rows: places.len(),
            training_rows: training.labels.len(),
            held_out: &HeldOut {
                names: &self.labels,
                labels: &validation.labels,
                lines: &lines,
                probabilities: probabilities.view(),
            },
            own: json!({
                "dimensions": embedded.width,
                "loss": loss,
                "evaluations": evaluations,
                "converged": converged,
                "training_accuracy": on_training.accuracy,
                "l2": l2,
                "class_weights": class_weights.to_json(),
                "compared": compared,
            }),
            curve,
        }))
    }

    /// Combines metrics and advice.
    pub(super) fn measured(&self, measured: Measured<'_>) -> MeasuredClassifier {
        let Measured {
            held_out,
            mut curve,
            own,
            ..
        } = measured;
        let mut metrics = json!({
            "method": measured.method.name(),
            "rows": measured.rows,
            "training_rows": measured.training_rows,
            "validation_rows": held_out.rows(),
            "validation": null,
            "warnings": [],
        });
        if let (Some(all), Value::Object(own)) = (metrics.as_object_mut(), own) {
            all.extend(own);
        }
        let mut abstention: Option<Abstention> = None;
        if held_out.rows() > 0 {
            let validation = held_out.metrics();
            if !curve.is_empty() {
                curve.push(CurvePoint {
                    rows: measured.training_rows,
                    macro_f1: validation.macro_f1,
                    accuracy: validation.accuracy,
                });
            }
            abstention = held_out.abstention();
            let counts = self.labels.iter().zip(self.rows_by_label.iter().copied());
            metrics["hints"] = json!(advice::hints(&validation, &curve, counts));
            metrics["warnings"] = json!(Vec::from_iter(validation.warning()));
            metrics["validation"] = json!(validation);
            metrics["worst"] = json!(held_out.worst());
            metrics["abstention"] = json!(abstention);
            metrics["curve"] = json!(curve);
        }
        MeasuredClassifier {
            classifier: measured.classifier,
            metrics,
            decision: abstention.map(|it| LabelDecision {
                threshold: it.threshold,
                multi_label: false,
            }),
        }
    }

    /// Determines the penalty and the class weights: the given ones, or the best on the validation
    /// rows. `weigh` returns the weights of the training rows.
    pub(super) fn settle<W>(
        &self,
        weigh: &dyn Fn(&ClassWeights) -> Result<W, TrainError>,
        choose: &dyn Fn(&[W]) -> Result<ChosenPenalty, FitError>,
    ) -> Result<FitSettings<W>, TrainError> {
        let mut offered = self.options.offered_weights();
        let weighings = offered.iter().map(weigh);
        let mut weighings = weighings.collect::<Result<Vec<_>, _>>()?;
        let (l2, place, compared) = if let Some(l2) = self.options.l2 {
            (l2, 0, 0)
        } else {
            let chosen = choose(&weighings)?;
            (chosen.l2, chosen.weights, chosen.tried)
        };
        Ok(FitSettings {
            l2,
            weights: weighings.swap_remove(place),
            class_weights: offered.swap_remove(place),
            compared,
        })
    }

    /// Measures the quality with parts of the training rows. `split` returns the rows without a fraction of them,
    /// `measure` fits to them.
    pub(super) fn curve(
        &self,
        (training, held_out): (usize, usize),
        split: impl Fn(f64) -> Vec<usize>,
        measure: impl Fn(&[usize], &FitOptions) -> Result<Metrics, TrainError>,
    ) -> Result<Vec<CurvePoint>, TrainError> {
        if held_out == 0 || training < FEW_ROWS * self.labels.len() {
            return Ok(Vec::new());
        }
        let options = classifier::trial_options(&self.options);
        let mut curve = Vec::new();
        for percent in CURVE_PARTS {
            #[expect(clippy::cast_precision_loss, reason = "a percentage")]
            let rows = split(1.0 - percent as f64 / 100.0);
            if rows.len() > classifier::MAX_TRIAL_ROWS {
                break;
            }
            let metrics = match measure(&rows, &options) {
                Ok(metrics) => metrics,
                // The other points remain.
                Err(TrainError::Fit(FitError::Failed(_))) => continue,
                Err(error) => return Err(error),
            };
            curve.push(CurvePoint {
                rows: rows.len(),
                macro_f1: metrics.macro_f1,
                accuracy: metrics.accuracy,
            });
        }
        Ok(curve)
    }
}

/// Penalty and class weights for the final fit.
pub(super) struct FitSettings<W> {
    pub(super) l2: f64,
    pub(super) class_weights: ClassWeights,
    /// Weights of the training rows.
    pub(super) weights: W,
    /// Number of fits that were compared to choose both.
    pub(super) compared: usize,
}

/// Returns the given weight of each label.
pub(super) fn given_weights(
    given: &BTreeMap<String, f64>,
    labels: &[String],
) -> Result<Vec<f64>, TrainError> {
    let mut names = given.keys();
    if let Some(stray) = names.find(|label| labels.binary_search(label).is_err()) {
        let message = format!("`class_weights` names the label `{stray}`, which no row has");
        return Err(TrainError::Dataset(message));
    }
    let weight = |label: &String| given.get(label).copied().unwrap_or(1.0);
    Ok(labels.iter().map(weight).collect())
}

/// Returns the weight of each row.
#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
fn weights_of(
    wanted: &ClassWeights,
    labels: &[String],
    rows: &[u32],
) -> Result<Vec<f64>, TrainError> {
    let by_label: Vec<f64> = match wanted {
        ClassWeights::Equal => vec![1.0; labels.len()],
        ClassWeights::Balanced => {
            let mut counts = vec![0_u64; labels.len()];
            for label in rows {
                counts[*label as usize] += 1;
            }
            let share = rows.len() as f64 / labels.len() as f64;
            counts
                .iter()
                .map(|count| share / (*count).max(1) as f64)
                .collect()
        }
        ClassWeights::Given(given) => given_weights(given, labels)?,
    };
    Ok(rows.iter().map(|label| by_label[*label as usize]).collect())
}
