//! Quality metrics of a classifier, measured on rows that it was not trained on.

use serde::{Deserialize, Serialize};

use super::sets::LabelSet;

/// Quality metrics of a classifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Fraction of the rows with the right prediction: with several labels, those where all are right.
    pub accuracy: f64,
    /// Mean of the labels' F1 scores.
    pub macro_f1: f64,
    /// Metrics per label, in the order of the matrix.
    pub labels: Vec<LabelMetrics>,
    /// Number of rows by true label (row) and predicted label (column); empty with several labels per row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confusion_matrix: Vec<Vec<u64>>,
}

/// Quality metrics of one label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelMetrics {
    /// The label.
    pub label: String,
    /// Fraction of the rows predicted as this label that have it; 0 if it is never predicted.
    pub precision: f64,
    /// Fraction of the label's rows that are predicted as it; 0 if it has zero rows.
    pub recall: f64,
    /// Harmonic mean of precision and recall; 0 if both are 0.
    pub f1: f64,
    /// Number of rows with this label.
    pub support: u64,
}

/// A macro F1 that is lower than the accuracy by more than this triggers a warning.
const MAX_F1_GAP: f64 = 0.1;

/// Maximum number of labels in a warning.
const MAX_NAMED_LABELS: usize = 5;

impl Metrics {
    /// Returns a warning if some labels are predicted badly while most rows are right.
    pub fn warning(&self) -> Option<String> {
        if self.accuracy - self.macro_f1 <= MAX_F1_GAP {
            return None;
        }
        let mut worst: Vec<&LabelMetrics> = self.labels.iter().collect();
        worst.sort_by(|a, b| a.f1.total_cmp(&b.f1));
        let worst = worst.iter().take_while(|it| it.f1 < self.macro_f1);
        let worst: Vec<String> = worst
            .take(MAX_NAMED_LABELS)
            .map(|it| format!("`{}` ({:.2})", it.label, it.f1))
            .collect();
        Some(format!(
            "macro F1 {:.3} is far below accuracy {:.3}; the labels with the lowest F1 are {}: add rows for them, or set \
             `class_weights`",
            self.macro_f1,
            self.accuracy,
            worst.join(", ")
        ))
    }

    /// Computes the metrics from true labels and predicted ones (`taken`).
    pub fn of(names: &[String], labels: &[u32], taken: &[u32]) -> Self {
        let count = names.len();
        let mut confusion_matrix = vec![vec![0_u64; count]; count];
        for (label, taken) in labels.iter().zip(taken) {
            confusion_matrix[*label as usize][*taken as usize] += 1;
        }
        let matrix = &confusion_matrix;
        let found: u64 = (0..count).map(|label| matrix[label][label]).sum();
        let counts = (0..count).map(|label| LabelCounts {
            support: matrix[label].iter().sum(),
            taken: matrix.iter().map(|row| row[label]).sum(),
            hits: matrix[label][label],
        });
        let counts: Vec<LabelCounts> = counts.collect();
        Self {
            accuracy: ratio(found, labels.len() as u64),
            ..Self::of_counts(names, &counts, confusion_matrix)
        }
    }

    /// Computes the metrics from true sets of labels and predicted ones (`taken`). Sets are in ascending order.
    pub fn of_sets(names: &[String], sets: &[LabelSet], taken: &[LabelSet]) -> Self {
        let mut counts = vec![LabelCounts::default(); names.len()];
        let mut right = 0;
        for (set, taken) in sets.iter().zip(taken) {
            right += u64::from(set == taken);
            for label in set {
                counts[*label].support += 1;
                counts[*label].hits += u64::from(taken.binary_search(label).is_ok());
            }
            for label in taken {
                counts[*label].taken += 1;
            }
        }
        Self {
            accuracy: ratio(right, sets.len() as u64),
            ..Self::of_counts(names, &counts, Vec::new())
        }
    }

    /// Computes all but the accuracy.
    fn of_counts(
        names: &[String],
        counts: &[LabelCounts],
        confusion_matrix: Vec<Vec<u64>>,
    ) -> Self {
        let labels = names.iter().zip(counts).map(|(name, counts)| {
            let LabelCounts {
                support,
                taken,
                hits,
            } = *counts;
            LabelMetrics {
                label: name.clone(),
                precision: ratio(hits, taken),
                recall: ratio(hits, support),
                f1: ratio(2 * hits, support + taken),
                support,
            }
        });
        let labels: Vec<LabelMetrics> = labels.collect();
        let sum: f64 = labels.iter().map(|it| it.f1).sum();
        Self {
            accuracy: 0.0,
            macro_f1: sum / ratio_of(names.len()),
            labels,
            confusion_matrix,
        }
    }
}

/// Numbers of rows of a label.
#[derive(Debug, Clone, Copy, Default)]
struct LabelCounts {
    /// Rows with the label.
    support: u64,
    /// Rows that are predicted to have it.
    taken: u64,
    /// Rows of both kinds.
    hits: u64,
}

#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 {
        return 0.0;
    }
    part as f64 / all as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the label count is far below 2^53"
)]
fn ratio_of(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_matrix() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let metrics = Metrics::of(&names, &[0, 0, 0, 1, 1, 2], &[0, 0, 1, 1, 1, 0]);
        assert_eq!(
            metrics.confusion_matrix,
            [vec![2, 1, 0], vec![0, 2, 0], vec![1, 0, 0]]
        );
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12);
        close(metrics.accuracy, 4.0 / 6.0);
        // Equals scikit-learn's `f1_score(average="macro", zero_division=0)`.
        close(metrics.macro_f1, (2.0 / 3.0 + 0.8 + 0.0) / 3.0);
        close(metrics.labels[0].precision, 2.0 / 3.0);
        close(metrics.labels[1].recall, 1.0);
        close(metrics.labels[2].f1, 0.0);
        assert_eq!(metrics.labels[2].support, 1);
    }

    #[test]
    fn sets_are_counted_label_by_label() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let sets = [vec![0, 1], vec![0], vec![], vec![2]];
        let taken = [vec![0], vec![0], vec![1], vec![2]];
        let metrics = Metrics::of_sets(&names, &sets, &taken);
        // Equals scikit-learn's `accuracy_score` and `f1_score(average="macro", zero_division=0)`.
        assert!((metrics.accuracy - 0.5).abs() < 1e-12);
        assert!((metrics.macro_f1 - 2.0 / 3.0).abs() < 1e-12, "{metrics:?}");
        assert!(metrics.confusion_matrix.is_empty());
        assert_eq!(
            (metrics.labels[0].support, metrics.labels[1].support),
            (2, 1)
        );
    }
}
