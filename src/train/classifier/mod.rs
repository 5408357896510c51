//! A linear classifier on vectors: multinomial logistic regression.
//!
//! Invariant: the same rows, options and seed give the same weights to the bit, on however many threads.

mod choose;
mod fit;
mod loss;
mod metrics;
mod split;

use ndarray::{Array2, ArrayView2};

pub use choose::{Chosen, DEFAULT_L2, choose};
pub use fit::{FitError, Fitted, fit};
pub use metrics::{LabelMetrics, Metrics};
pub use split::{Split, split};

/// Vectors, row by row, and the label of each.
#[derive(Debug, Clone, Copy)]
pub struct Examples<'a> {
    /// Rows × `width` numbers.
    pub vectors: &'a [f32],
    /// Numbers of a row.
    pub width: usize,
    /// The place of each row's label among the labels.
    pub labels: &'a [u32],
    /// How many labels there are.
    pub count: usize,
}

/// A classifier.
#[derive(Debug, Clone, PartialEq)]
pub struct Classifier {
    /// Numbers of a vector.
    pub width: usize,
    /// Labels × `width` numbers.
    pub weights: Vec<f32>,
    /// One for each label.
    pub intercepts: Vec<f32>,
}

impl<'a> Examples<'a> {
    /// The vector of a row.
    pub fn vector(&self, row: usize) -> &'a [f32] {
        &self.vectors[row * self.width..(row + 1) * self.width]
    }
}

impl Classifier {
    /// How likely each label is for each vector: rows × labels, each row with the sum 1.
    ///
    /// # Panics
    /// If the vectors are no whole number of rows.
    pub fn probabilities(&self, vectors: &[f32]) -> Array2<f32> {
        let labels = self.intercepts.len();
        let rows = vectors.len() / self.width;
        let shape = "vectors are rows of the classifier's width";
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

    /// The most likely label of each vector; the first of several.
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
