//! A linear classifier on embedding vectors: multinomial logistic regression, or one regression per label for rows with
//! several labels.
//!
//! Invariant: the same rows, options and seed give bit-identical weights on any number of threads.

mod centroids;
mod choose;
mod fit;
mod folds;
mod loss;
mod metrics;
mod sets;
mod split;

use ndarray::{Array2, ArrayView1, ArrayView2, NdFloat};

pub use centroids::{Centroids, centroids};
pub use choose::{ChosenPenalty, MAX_TRIAL_ROWS, choose, choose_for_sets, trial_options};
pub use fit::{FitError, Fitted, fit, fit_sets};
pub use folds::cross_validate;
pub use metrics::{LabelMetrics, Metrics};
pub use sets::{LabelSet, SetExamples, SetSubset, SetWeights, above, split_sets};
pub use split::{DatasetSplit, split};

/// Vectors with their labels.
#[derive(Debug, Clone, Copy)]
pub struct Examples<'a> {
    /// `rows × width` numbers.
    pub vectors: &'a [f32],
    /// Numbers per row.
    pub width: usize,
    /// Index of each row's label.
    pub labels: &'a [u32],
    /// Number of labels.
    pub count: usize,
}

/// A classifier.
#[derive(Debug, Clone, PartialEq)]
pub struct Classifier {
    /// Numbers per vector.
    pub width: usize,
    /// `labels × width` numbers.
    pub weights: Vec<f32>,
    /// One number per label.
    pub intercepts: Vec<f32>,
    /// True if a row may have several labels: each label has a probability of its own.
    pub multi_label: bool,
}

impl<'a> Examples<'a> {
    /// Returns the vector of a row.
    pub fn vector(&self, row: usize) -> &'a [f32] {
        &self.vectors[row * self.width..(row + 1) * self.width]
    }
}

/// Copies of some rows.
#[derive(Debug)]
pub struct RowSubset {
    /// `rows × width` numbers.
    pub vectors: Vec<f32>,
    /// Index of each row's label.
    pub labels: Vec<u32>,
}

impl RowSubset {
    /// Copies these rows.
    pub fn of(examples: Examples<'_>, rows: &[usize]) -> Self {
        let vectors = rows.iter().flat_map(|row| examples.vector(*row));
        Self {
            vectors: vectors.copied().collect(),
            labels: rows.iter().map(|row| examples.labels[*row]).collect(),
        }
    }

    /// Returns them as examples with the width and labels of `like`.
    pub fn examples<'s>(&'s self, like: Examples<'_>) -> Examples<'s> {
        Examples {
            vectors: &self.vectors,
            labels: &self.labels,
            width: like.width,
            count: like.count,
        }
    }
}

/// Replaces the scores of each row by probabilities.
fn to_probabilities<T: NdFloat>(scores: &mut Array2<T>) {
    for mut row in scores.rows_mut() {
        let most = row.iter().copied().fold(T::neg_infinity(), T::max);
        row.mapv_inplace(|score| (score - most).exp());
        let sum = row.sum();
        row.mapv_inplace(|score| score / sum);
    }
}

/// Returns the index of the greatest score; the first one if several are equal.
pub fn best_label(scores: &ArrayView1<'_, f32>) -> usize {
    let mut best = 0;
    for (place, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = place;
        }
    }
    best
}

impl Classifier {
    /// Returns the probability of each label for each vector: `rows × labels`. With one label per row, the
    /// probabilities of a row sum to 1.
    ///
    /// # Panics
    /// Panics if the length of `vectors` is not a multiple of the width.
    pub fn probabilities(&self, vectors: &[f32]) -> Array2<f32> {
        let labels = self.intercepts.len();
        let rows = vectors.len() / self.width;
        let shape = "each row of vectors has the classifier's width";
        let x = ArrayView2::from_shape((rows, self.width), vectors).expect(shape);
        let w = ArrayView2::from_shape((labels, self.width), &self.weights[..]).expect(shape);
        let mut scores = x.dot(&w.t());
        for mut row in scores.rows_mut() {
            for (score, intercept) in row.iter_mut().zip(&self.intercepts) {
                *score += intercept;
            }
        }
        if self.multi_label {
            scores.mapv_inplace(|score| 1.0 / (1.0 + (-score).exp()));
        } else {
            to_probabilities(&mut scores);
        }
        scores
    }

    /// Returns the index of the most likely label of each vector; the first one if several are
    /// equal.
    pub fn predict(&self, vectors: &[f32]) -> Vec<u32> {
        let probabilities = self.probabilities(vectors);
        let rows = probabilities.rows().into_iter();
        rows.map(|row| u32::try_from(best_label(&row)).unwrap_or(u32::MAX))
            .collect()
    }
}
