//! Fits a classifier to the rows of a dataset. For rows with several labels, it is one two-class regression per label.
//!
//! Invariant: as for one label per row, see [`super::fitting`].

use serde_json::json;

use super::advice::HeldOutSets;
use super::classifier::{
    self, Fitted, LabelSet, Metrics, SetExamples, SetSubset, SetWeights, above,
};
use super::embed::EmbeddedRows;
use super::error::TrainError;
use super::fitting::{FitTask, Measured, MeasuredClassifier, given_weights};
use super::options::{ClassWeights, FitMethod, FitOptions};
use pkgtool_media::trained::LabelDecision;

/// Least probability of a label that holds, unless another one is clearly better on the held-out rows.
const THRESHOLD: f32 = 0.5;

/// Thresholds to choose from.
const THRESHOLDS: [f32; 6] = [0.4, 0.6, 0.3, 0.7, 0.2, 0.8];

/// Gain in macro F1 for which another threshold is preferred.
const MIN_GAIN: f64 = 0.01;

impl FitTask {
    /// Fits to rows with one label each, or with several.
    pub(super) fn fit_rows(
        &self,
        embedded: &EmbeddedRows,
    ) -> Result<MeasuredClassifier, TrainError> {
        let changed = || TrainError::Dataset("the dataset changed during the training".to_owned());
        let mut sets = Vec::with_capacity(embedded.labels.len());
        for labels in &embedded.labels {
            let places = labels.all().iter().map(|it| self.labels.binary_search(it));
            let mut set: LabelSet = places.collect::<Result<_, _>>().map_err(|_| changed())?;
            set.sort_unstable();
            sets.push(set);
        }
        if self.multi_label {
            return self.fit_sets(embedded, &sets);
        }
        let place = |set: &LabelSet| match set[..] {
            [place] => u32::try_from(place).ok(),
            _ => None,
        };
        let places: Option<Vec<u32>> = sets.iter().map(place).collect();
        self.fit(embedded, &places.ok_or_else(changed)?)
    }

    /// Fits to training rows, measures on validation rows, and fits again to all rows.
    fn fit_sets(
        &self,
        embedded: &EmbeddedRows,
        sets: &[LabelSet],
    ) -> Result<MeasuredClassifier, TrainError> {
        let options = &self.options;
        if options.method == FitMethod::Centroids {
            let message = "`method` is \"centroids\", which needs one `label` per row; leave it out for rows with `labels`";
            return Err(TrainError::Dataset(message.to_owned()));
        }
        let all = SetExamples {
            vectors: &embedded.vectors,
            width: embedded.width,
            sets,
            count: self.labels.len(),
        };
        let split = classifier::split_sets(all, options.validation_fraction, options.seed);
        let training = SetSubset::of(all, &split.training);
        let validation = SetSubset::of(all, &split.validation);
        let lines = split.validation.iter().map(|row| embedded.lines[*row]);
        let lines: Vec<u64> = lines.collect();
        let rows = (training.examples(all), validation.examples(all));
        let chosen = self.settle(&|wanted| self.weights_for(wanted, rows.0), &|weighings| {
            let goes_on = |_: u64| self.goes_on();
            classifier::choose_for_sets(rows, weighings, THRESHOLD, options, &goes_on)
        })?;
        let goes_on = |evaluations: u64| {
            self.progress
                .at(0, 100, evaluations, options.max_iterations);
            self.goes_on()
        };
        let part = |rest| classifier::split_sets(rows.0, rest, options.seed).training;
        let measure = |places: &[usize], options: &FitOptions| {
            let part = SetSubset::of(rows.0, places);
            let part = part.examples(rows.0);
            let weights = self.weights_for(&chosen.class_weights, part)?;
            let goes_on = |_: u64| self.goes_on();
            let fitted = classifier::fit_sets(part, &weights, chosen.l2, options, &goes_on)?;
            let probabilities = fitted.classifier.probabilities(&validation.vectors);
            let taken = above(&probabilities.view(), THRESHOLD);
            Ok(Metrics::of_sets(&self.labels, &validation.sets, &taken))
        };
        let counts = (training.sets.len(), validation.sets.len());
        let curve = self.curve(counts, part, measure)?;
        let Fitted {
            classifier,
            loss,
            evaluations,
            converged,
        } = classifier::fit_sets(rows.0, &chosen.weights, chosen.l2, options, &goes_on)?;
        let probabilities = classifier.probabilities(&validation.vectors);
        let mut held_out = HeldOutSets {
            names: &self.labels,
            sets: &validation.sets,
            lines: &lines,
            probabilities: probabilities.view(),
            threshold: THRESHOLD,
        };
        held_out.threshold = best_threshold(&held_out);
        let threshold = held_out.threshold;
        let on_training = above(
            &classifier.probabilities(&training.vectors).view(),
            threshold,
        );
        let on_training = Metrics::of_sets(&self.labels, &training.sets, &on_training);
        let of_all = if validation.sets.is_empty() {
            classifier
        } else {
            let weights = self.weights_for(&chosen.class_weights, all)?;
            classifier::fit_sets(all, &weights, chosen.l2, options, &goes_on)?.classifier
        };
        let mut measured = self.measured(Measured {
            classifier: of_all,
            method: FitMethod::Logistic,
            rows: sets.len(),
            training_rows: training.sets.len(),
            held_out: &held_out,
            own: json!({
                "dimensions": embedded.width,
                "loss": loss,
                "evaluations": evaluations,
                "converged": converged,
                "training_accuracy": on_training.accuracy,
                "l2": chosen.l2,
                "class_weights": chosen.class_weights.to_json(),
                "compared": chosen.compared,
                "multi_label": true,
                "threshold": threshold,
            }),
            curve,
        });
        measured.decision = Some(LabelDecision {
            threshold,
            multi_label: true,
        });
        Ok(measured)
    }

    /// Returns the weights of rows with and without each label. With balanced weights, the rows with a label weigh as
    /// much as those without it.
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    fn weights_for(
        &self,
        wanted: &ClassWeights,
        rows: SetExamples<'_>,
    ) -> Result<SetWeights, TrainError> {
        let ones = vec![1.0; self.labels.len()];
        Ok(match wanted {
            ClassWeights::Equal => SetWeights {
                with: ones.clone(),
                without: ones,
            },
            ClassWeights::Balanced => {
                let (all, counts) = (rows.sets.len(), rows.rows_by_label());
                let weight = |count: usize| all as f64 / (2 * count.max(1)) as f64;
                SetWeights {
                    with: counts.iter().map(|count| weight(*count)).collect(),
                    without: counts.iter().map(|count| weight(all - count)).collect(),
                }
            }
            ClassWeights::Given(given) => SetWeights {
                with: given_weights(given, &self.labels)?,
                without: ones,
            },
        })
    }
}

/// Returns the threshold with the best macro F1, the usual one unless another is clearly better.
fn best_threshold(held_out: &HeldOutSets<'_>) -> f32 {
    let usual = held_out.metrics_at(THRESHOLD).macro_f1;
    let mut best = (THRESHOLD, usual + MIN_GAIN);
    for threshold in THRESHOLDS {
        let score = held_out.metrics_at(threshold).macro_f1;
        if score > best.1 {
            best = (threshold, score);
        }
    }
    best.0
}
