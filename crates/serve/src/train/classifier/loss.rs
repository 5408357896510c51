//! The objective of the fit (mean loss of the rows plus a penalty on the weights) and its gradient.
//!
//! Invariant: sums are computed in one fixed order, however many threads there are.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use rayon::prelude::*;

use super::sets::{LabelSet, SetExamples, SetWeights};
use super::{Classifier, Examples};

/// Number of rows processed together, so that their numbers stay in the processor's cache.
const BLOCK_ROWS: usize = 128;

/// Number of parts that threads process in parallel, each with its own gradient.
const PARALLEL_PARTS: usize = 16;

/// The loss as a function of weights and intercepts. Parameters are `labels × width` weights,
/// followed by one intercept per label.
#[derive(Debug)]
pub(super) struct Loss<'a> {
    vectors: &'a [f32],
    width: usize,
    count: usize,
    targets: Targets<'a>,
    /// Strength of the penalty relative to weights that sum to 1.
    penalty: f64,
}

/// The labels of the rows and their weights.
#[derive(Debug)]
enum Targets<'a> {
    /// One label per row. The shares are the relative weights of the rows; they sum to 1.
    One { labels: &'a [u32], shares: Vec<f64> },
    /// A set of labels per row.
    Sets {
        sets: &'a [LabelSet],
        weights: &'a SetWeights,
    },
}

/// A loss and its gradient.
#[derive(Debug, Clone)]
pub(super) struct LossAndGradient {
    pub(super) loss: f64,
    pub(super) gradient: Vec<f64>,
}

impl<'a> Loss<'a> {
    /// Creates the loss of rows with one label each; `weights` are the weights of the rows.
    pub(super) fn new(examples: Examples<'a>, weights: Vec<f64>, l2: f64) -> Self {
        let sum: f64 = weights.iter().sum();
        let shares = weights.into_iter().map(|weight| weight / sum).collect();
        // The usual form of a two-label model has a single vector of weights. Here half of that
        // vector appears twice, with both signs, so the sum of its squares is half as large.
        let strength = if examples.count == 2 { 2.0 * l2 } else { l2 };
        Self {
            vectors: examples.vectors,
            width: examples.width,
            count: examples.count,
            targets: Targets::One {
                labels: examples.labels,
                shares,
            },
            penalty: strength / sum,
        }
    }

    /// Creates the loss of rows with sets of labels: the sum of one two-class loss per label.
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    pub(super) fn of_sets(examples: SetExamples<'a>, weights: &'a SetWeights, l2: f64) -> Self {
        Self {
            vectors: examples.vectors,
            width: examples.width,
            count: examples.count,
            targets: Targets::Sets {
                sets: examples.sets,
                weights,
            },
            penalty: l2 / examples.sets.len().max(1) as f64,
        }
    }

    /// Returns the number of rows.
    fn rows(&self) -> usize {
        match &self.targets {
            Targets::One { labels, .. } => labels.len(),
            Targets::Sets { sets, .. } => sets.len(),
        }
    }

    /// Returns the classifier with these parameters.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "weights are stored as binary32, like the other numbers of the model"
    )]
    pub(super) fn classifier(&self, parameters: &[f64]) -> Classifier {
        let (weights, intercepts) = parameters.split_at(self.count * self.width);
        let narrow = |numbers: &[f64]| numbers.iter().map(|it| *it as f32).collect();
        Classifier {
            width: self.width,
            weights: narrow(weights),
            intercepts: narrow(intercepts),
            multi_label: matches!(self.targets, Targets::Sets { .. }),
        }
    }

    /// Returns whether all numbers of the vectors are finite.
    pub(super) fn is_finite(&self) -> bool {
        self.vectors.iter().all(|number| number.is_finite())
    }

    /// Returns the number of parameters.
    pub(super) fn parameters(&self) -> usize {
        self.count * (self.width + 1)
    }

    /// Returns the loss at a point and its gradient.
    pub(super) fn at(&self, parameters: &[f64]) -> LossAndGradient {
        let rows = self.rows();
        let size = rows.div_ceil(PARALLEL_PARTS).max(1);
        let parts: Vec<LossAndGradient> = (0..rows.div_ceil(size))
            .into_par_iter()
            .map(|part| self.part(parameters, part * size, rows.min((part + 1) * size)))
            .collect();
        let mut sum = LossAndGradient {
            loss: 0.0,
            gradient: vec![0.0; self.parameters()],
        };
        for part in parts {
            sum.loss += part.loss;
            for (sum, part) in sum.gradient.iter_mut().zip(&part.gradient) {
                *sum += part;
            }
        }
        let weights = self.count * self.width;
        let mut squares = 0.0;
        for (slope, weight) in sum.gradient.iter_mut().zip(&parameters[..weights]) {
            squares += weight * weight;
            *slope += self.penalty * weight;
        }
        sum.loss += 0.5 * self.penalty * squares;
        sum
    }

    fn part(&self, parameters: &[f64], start: usize, end: usize) -> LossAndGradient {
        let Self { width, count, .. } = *self;
        let shape = "parameters are labels × width weights and one intercept per label";
        let (weights, intercepts) = parameters.split_at(count * width);
        let weights = ArrayView2::from_shape((count, width), weights).expect(shape);
        let mut slope = LossAndGradient {
            loss: 0.0,
            gradient: vec![0.0; parameters.len()],
        };
        let (by_weight, by_intercept) = slope.gradient.split_at_mut(count * width);
        let mut by_weight = ArrayViewMut2::from_shape((count, width), by_weight).expect(shape);
        let mut vectors = Array2::<f64>::zeros((BLOCK_ROWS, width));
        let mut scores = Array2::<f64>::zeros((BLOCK_ROWS, count));
        for first in (start..end).step_by(BLOCK_ROWS) {
            let rows = BLOCK_ROWS.min(end - first);
            let given = &self.vectors[first * width..(first + rows) * width];
            let kept = vectors.as_slice_mut().expect("it is whole");
            for (kept, given) in kept.iter_mut().zip(given) {
                *kept = f64::from(*given);
            }
            let x = vectors.slice(ndarray::s![..rows, ..]);
            let mut z = scores.slice_mut(ndarray::s![..rows, ..]);
            general_mat_mul(1.0, &x, &weights.t(), 0.0, &mut z);
            for (row, mut z) in z.rows_mut().into_iter().enumerate() {
                let z = z.as_slice_mut().expect("rows are whole");
                slope.loss += self.row(first + row, z, intercepts);
                for (sum, residual) in by_intercept.iter_mut().zip(z) {
                    *sum += *residual;
                }
            }
            general_mat_mul(1.0, &z.t(), &x, 1.0, &mut by_weight);
        }
        slope
    }

    /// Returns a row's share of the loss and replaces its scores by the derivative of the loss with
    /// respect to them.
    fn row(&self, row: usize, scores: &mut [f64], intercepts: &[f64]) -> f64 {
        for (score, intercept) in scores.iter_mut().zip(intercepts) {
            *score += intercept;
        }
        match &self.targets {
            Targets::One { labels, shares } => {
                softmax_loss(labels[row] as usize, shares[row], scores)
            }
            Targets::Sets { sets, weights } => self.sigmoid_loss(&sets[row], weights, scores),
        }
    }

    /// The part of a row with a set of labels.
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    fn sigmoid_loss(&self, set: &LabelSet, weights: &SetWeights, scores: &mut [f64]) -> f64 {
        let share = 1.0 / self.rows() as f64;
        let mut loss = 0.0;
        for (label, score) in scores.iter_mut().enumerate() {
            let has = set.binary_search(&label).is_ok();
            let (weight, sign) = if has {
                (weights.with[label], -1.0)
            } else {
                (weights.without[label], 1.0)
            };
            // `ln(1 + e^x)` without overflow.
            let against = sign * *score;
            loss += share * weight * (against.max(0.0) + (-against.abs()).exp().ln_1p());
            *score = share * weight * sign / (1.0 + (-against).exp());
        }
        loss
    }
}

/// The part of a row with one label.
fn softmax_loss(label: usize, share: f64, scores: &mut [f64]) -> f64 {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let own = scores[label] - most;
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - most).exp();
        sum += *score;
    }
    for score in scores.iter_mut() {
        *score *= share / sum;
    }
    scores[label] -= share;
    share * (sum.ln() - own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        let vectors: Vec<f32> = (0_u16..60)
            .map(|it| f32::from(it * 37 % 61) / 30.0 - 1.0)
            .collect();
        for count in [2_usize, 3] {
            let label = |row: usize| u32::try_from(row * 7 % count).expect("a few");
            let labels: Vec<u32> = (0..20).map(label).collect();
            let examples = Examples {
                vectors: &vectors,
                width: 3,
                labels: &labels,
                count,
            };
            let weights = (0..20).map(|row| 1.0 + f64::from(row) / 10.0).collect();
            let sets: Vec<LabelSet> = (0..20)
                .map(|row| (row % count..count - row % 2).collect())
                .collect();
            let examples_of_sets = SetExamples {
                vectors: &vectors,
                width: 3,
                sets: &sets,
                count,
            };
            let set_weights = SetWeights {
                with: vec![1.5; count],
                without: vec![0.75; count],
            };
            for loss in [
                Loss::new(examples, weights, 0.7),
                Loss::of_sets(examples_of_sets, &set_weights, 0.7),
            ] {
                let numbers = (0_u8..).map(|it| f64::from(it).sin());
                let at: Vec<f64> = numbers.take(loss.parameters()).collect();
                let slope = loss.at(&at);
                for place in 0..at.len() {
                    let moved = |by: f64| {
                        let mut at = at.clone();
                        at[place] += by;
                        loss.at(&at).loss
                    };
                    let numeric = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                    assert!((numeric - slope.gradient[place]).abs() < 1e-8);
                }
            }
        }
    }
}
