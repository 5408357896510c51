//! Chooses the L2 penalty and the class weights by their scores on validation rows.
//!
//! Invariant: the same rows and options give the same choice. The number of fits, their iterations
//! and their rows are bounded, whatever the dataset.

use super::super::options::FitOptions;
use super::sets::{SetExamples, SetSubset, SetWeights, above, split_sets};
use super::{Classifier, Examples, FitError, Metrics, RowSubset, fit, fit_sets, split};

/// Candidate penalties. Of equally good ones the first wins.
const PENALTIES: [f64; 8] = [1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3.0];

/// Penalty if validation rows are missing.
const DEFAULT_L2: f64 = 1.0;

/// Maximum number of rows of a trial fit; labels are sampled in proportion.
pub const MAX_TRIAL_ROWS: usize = 4000;

/// Maximum number of iterations of a trial fit.
const MAX_TRIAL_ITERATIONS: u64 = 60;

/// Minimum gain in macro F1 for preferring other class weights, because they cost accuracy.
const MIN_F1_GAIN: f64 = 0.01;

/// The chosen penalty and class weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChosenPenalty {
    /// The penalty.
    pub l2: f64,
    /// Index of the chosen weights among the candidates.
    pub weights: usize,
    /// Number of fits that were compared.
    pub tried: usize,
}

impl Default for ChosenPenalty {
    fn default() -> Self {
        Self {
            l2: DEFAULT_L2,
            weights: 0,
            tried: 0,
        }
    }
}

/// Chooses the penalty and one of the `weighings` (the weight of each training row) by macro F1 on
/// the validation rows, then by accuracy.
pub fn choose(
    (training, validation): (Examples<'_>, Examples<'_>),
    weighings: &[Vec<f64>],
    options: &FitOptions,
    goes_on: &dyn Fn(u64) -> bool,
) -> Result<ChosenPenalty, FitError> {
    if validation.labels.is_empty() {
        return Ok(ChosenPenalty::default());
    }
    let options = trial_options(options);
    let rows = sample_rows(training, options.seed);
    let sample = RowSubset::of(training, &rows);
    best_of(weighings.len(), &mut |place, l2| {
        let weighing = &weighings[place];
        let weights: Vec<f64> = rows.iter().map(|row| weighing[*row]).collect();
        // The penalty is relative to a sum over rows, so it is scaled down for a sample.
        let part = weights.iter().sum::<f64>() / weighing.iter().sum::<f64>();
        let examples = sample.examples(training);
        let fitted = fit(examples, weights, l2 * part, &options, goes_on)?;
        Ok(score(&fitted.classifier, validation))
    })
}

/// Chooses the penalty and one of the `weighings` for rows with sets of labels, as [`choose`]. A label holds from a
/// probability of `threshold` on.
#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
pub fn choose_for_sets(
    (training, validation): (SetExamples<'_>, SetExamples<'_>),
    weighings: &[SetWeights],
    threshold: f32,
    options: &FitOptions,
    goes_on: &dyn Fn(u64) -> bool,
) -> Result<ChosenPenalty, FitError> {
    if validation.sets.is_empty() {
        return Ok(ChosenPenalty::default());
    }
    let options = trial_options(options);
    let kept = (MAX_TRIAL_ROWS as f64 / training.sets.len().max(1) as f64).min(1.0);
    let rows = split_sets(training, 1.0 - kept, options.seed).training;
    let sample = SetSubset::of(training, &rows);
    let part = rows.len() as f64 / training.sets.len().max(1) as f64;
    let names = vec![String::new(); validation.count];
    best_of(weighings.len(), &mut |place, l2| {
        let examples = sample.examples(training);
        let fitted = fit_sets(examples, &weighings[place], l2 * part, &options, goes_on)?;
        let probabilities = fitted.classifier.probabilities(validation.vectors);
        let taken = above(&probabilities.view(), threshold);
        let metrics = Metrics::of_sets(&names, validation.sets, &taken);
        Ok((metrics.macro_f1, metrics.accuracy))
    })
}

/// Compares all penalties with all weighings. `fit` returns macro F1 and accuracy.
fn best_of(
    weighings: usize,
    fit: &mut dyn FnMut(usize, f64) -> Result<(f64, f64), FitError>,
) -> Result<ChosenPenalty, FitError> {
    let mut chosen = ChosenPenalty::default();
    let mut best = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for place in 0..weighings {
        for l2 in PENALTIES {
            let score = match fit(place, l2) {
                Ok(score) => score,
                // Another penalty may succeed.
                Err(FitError::Failed(_)) => continue,
                Err(error) => return Err(error),
            };
            chosen.tried += 1;
            let margin = if place == chosen.weights {
                1e-9
            } else {
                MIN_F1_GAIN
            };
            let is_equal = place == chosen.weights && (score.0 - best.0).abs() <= 1e-9;
            if score.0 > best.0 + margin || is_equal && score.1 > best.1 + 1e-9 {
                best = score;
                (chosen.l2, chosen.weights) = (l2, place);
            }
        }
    }
    Ok(chosen)
}

/// Returns the options of a trial fit.
pub fn trial_options(options: &FitOptions) -> FitOptions {
    FitOptions {
        max_iterations: options.max_iterations.min(MAX_TRIAL_ITERATIONS),
        ..options.clone()
    }
}

/// Returns macro F1 and accuracy.
fn score(classifier: &Classifier, rows: Examples<'_>) -> (f64, f64) {
    let names = vec![String::new(); rows.count];
    let metrics = Metrics::of(&names, rows.labels, &classifier.predict(rows.vectors));
    (metrics.macro_f1, metrics.accuracy)
}

/// Samples the rows of the trial fits.
#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
fn sample_rows(training: Examples<'_>, seed: u64) -> Vec<usize> {
    let rows = training.labels.len();
    if rows <= MAX_TRIAL_ROWS {
        return (0..rows).collect();
    }
    let kept = MAX_TRIAL_ROWS as f64 / rows as f64;
    split(training.labels, training.count, 1.0 - kept, seed).training
}
