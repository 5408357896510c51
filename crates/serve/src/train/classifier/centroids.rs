//! A classifier for few rows: the nearest centroid.
//!
//! The score of a label is the negative squared distance to the mean of its rows, which is linear in the vector up to a
//! part that all labels share. So the result is a [`Classifier`] like any other. Each row is judged without itself.

use ndarray::{Array2, ArrayView2};

use super::{Classifier, Examples, to_probabilities};

/// Candidates for the sharpness of probabilities, relative to the mean squared distance of rows to their centroid.
const SHARPNESS: [f64; 9] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// A nearest-centroid classifier, with its judgement on each row.
#[derive(Debug, Clone)]
pub struct Centroids {
    /// The classifier.
    pub classifier: Classifier,
    /// Probabilities of the labels for each row, `rows × labels`, by a classifier without that row.
    pub without_each: Array2<f32>,
    /// Mean negative logarithm of the right label's probability, by classifiers without the row.
    pub loss: f64,
}

/// Fits the classifier. Every label has at least one row.
///
/// # Panics
/// Panics if the vectors do not have the width.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "row counts are small, and weights are binary32"
)]
pub fn centroids(examples: Examples<'_>) -> Centroids {
    let Examples {
        width,
        count,
        labels,
        ..
    } = examples;
    let rows = labels.len();
    let mut sums = Array2::<f64>::zeros((count, width));
    let mut counts = vec![0.0_f64; count];
    for (row, label) in labels.iter().enumerate() {
        counts[*label as usize] += 1.0;
        let mut sum = sums.row_mut(*label as usize);
        for (sum, value) in sum.iter_mut().zip(examples.vector(row)) {
            *sum += f64::from(*value);
        }
    }
    for (mut sum, count) in sums.rows_mut().into_iter().zip(&counts) {
        sum /= count.max(1.0);
    }
    let means = sums;
    let vectors = ArrayView2::from_shape((rows, width), examples.vectors);
    let vectors = vectors.expect("each row has the width").mapv(f64::from);
    // Half of the negative squared distance, without the part that all labels share.
    let halves: Vec<f64> = means
        .rows()
        .into_iter()
        .map(|it| it.dot(&it) / 2.0)
        .collect();
    let mut scores = vectors.dot(&means.t());
    let mut spread = 0.0;
    for (row, label) in labels.iter().enumerate() {
        let own = *label as usize;
        let vector = vectors.row(row);
        for (score, half) in scores.row_mut(row).iter_mut().zip(&halves) {
            *score -= half;
        }
        let square = vector.dot(&vector);
        spread += square - 2.0 * scores[[row, own]];
        // The centroid of the other rows of the label.
        let n = counts[own];
        scores[[row, own]] = if n > 1.0 {
            let mean = means.row(own);
            let product = (n * mean.dot(&vector) - square) / (n - 1.0);
            let squared = (n * n * mean.dot(&mean) - 2.0 * n * mean.dot(&vector) + square)
                / ((n - 1.0) * (n - 1.0));
            product - squared / 2.0
        } else {
            f64::NEG_INFINITY
        };
    }
    let spread = (spread / rows.max(1) as f64).max(f64::MIN_POSITIVE);
    let judged: Vec<usize> = (0..rows)
        .filter(|row| counts[labels[*row] as usize] > 1.0)
        .collect();
    let loss_at = |sharpness: f64| -> f64 {
        let losses = judged.iter().map(|row| {
            let scores = scores.row(*row);
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores
                .iter()
                .map(|it| ((it - most) * sharpness).exp())
                .sum();
            sum.ln() - (scores[labels[*row] as usize] - most) * sharpness
        });
        losses.sum::<f64>() / judged.len().max(1) as f64
    };
    let candidates = SHARPNESS.map(|it| it / spread);
    let best = candidates
        .into_iter()
        .min_by(|a, b| loss_at(*a).total_cmp(&loss_at(*b)));
    let sharpness = best.unwrap_or(1.0);
    let mut without_each = scores.mapv(|score| score * sharpness);
    to_probabilities(&mut without_each);
    Centroids {
        classifier: Classifier {
            width,
            weights: means.iter().map(|it| (it * sharpness) as f32).collect(),
            intercepts: halves.iter().map(|it| (-it * sharpness) as f32).collect(),
            multi_label: false,
        },
        without_each: without_each.mapv(|it| it as f32),
        loss: loss_at(sharpness),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples<'a>(vectors: &'a [f32], labels: &'a [u32]) -> Examples<'a> {
        Examples {
            vectors,
            width: 1,
            labels,
            count: 3,
        }
    }

    #[test]
    fn each_row_is_judged_without_itself() {
        let vectors = [0.0, 0.1, 0.2, 1.0, 1.1, 5.0_f32];
        let labels = [0, 0, 0, 1, 1, 2];
        let rows = |leave: usize| {
            let kept = (0..6).filter(|row| *row != leave);
            let kept: Vec<usize> = kept.collect();
            let vectors: Vec<f32> = kept.iter().map(|row| vectors[*row]).collect();
            let labels: Vec<u32> = kept.iter().map(|row| labels[*row]).collect();
            (vectors, labels)
        };
        let whole = centroids(examples(&vectors, &labels));
        assert_eq!(whole.classifier.predict(&vectors), labels);
        for leave in 0..5 {
            let (others, others_labels) = rows(leave);
            let without = centroids(examples(&others, &others_labels));
            let best = without.classifier.predict(&vectors[leave..=leave]);
            let judged = whole.without_each.row(leave);
            let place = best[0] as usize;
            assert!(
                judged.iter().all(|it| *it <= judged[place]),
                "{leave}: {judged}"
            );
        }
        // A label with a single row is never found without it.
        assert!(whole.without_each[[5, 2]] == 0.0);
        assert!(whole.loss.is_finite());
    }
}
