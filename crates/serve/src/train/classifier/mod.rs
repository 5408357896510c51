//! A linear classifier on embedding vectors: multinomial logistic regression.
//!
//! Invariant: the same rows, options and seed give bit-identical weights on any number of threads.

mod centroids;
mod choose;
mod fit;
mod folds;
mod loss;
mod metrics;
mod split;

use ndarray::{Array2, ArrayView2};

pub use centroids::{Centroids, centroids};
pub use choose::{ChosenPenalty, DEFAULT_L2, choose};
pub use fit::{FitError, Fitted, fit};
pub use folds::cross_validate;
pub use metrics::{LabelMetrics, Metrics};
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
}

impl<'a> Examples<'a> {
    /// Returns the vector of a row.
    pub fn vector(&self, row: usize) -> &'a [f32] {
        &self.vectors[row * self.width..(row + 1) * self.width]
    }
}

impl Classifier {
    /// Returns the probability of each label for each vector: `rows × labels`, with rows that sum
    /// to 1.
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
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.mapv_inplace(|score| (score - most).exp());
            let sum: f32 = row.sum();
            row.mapv_inplace(|score| score / sum);
        }
        scores
    }

    /// Returns the index of the most likely label of each vector; the first one if several are
    /// equal.
    pub fn predict(&self, vectors: &[f32]) -> Vec<u32> {
        let best = |row: ndarray::ArrayView1<'_, f32>| {
            let mut best = 0;
            for (place, score) in row.iter().enumerate() {
                if *score > row[best] {
                    best = place;
                }
            }
            u32::try_from(best).unwrap_or(u32::MAX)
        };
        self.probabilities(vectors)
            .rows()
            .into_iter()
            .map(best)
            .collect()
    }
}
