//! Advice from the held-out rows of a training: the worst rows, a threshold to abstain, and hints.

use ndarray::ArrayView2;
use serde::Serialize;

use super::classifier::{LabelSet, Metrics, above, best_label};

/// Maximum number of rows that are listed.
const MAX_WORST: usize = 50;

/// Share of right answers that an abstaining classifier shall reach.
const WANTED_ACCURACY: f64 = 0.95;

/// Least number of held-out rows that say when to abstain.
const MIN_ROWS: usize = 20;

/// Least share of rows that an abstaining classifier answers.
const MIN_COVERAGE: f64 = 0.1;

/// A curve that rises by this much in its last part promises more with more rows.
const RISE: f64 = 0.02;

/// A label with fewer rows has few.
const FEW_ROWS: u64 = 8;

/// A held-out row with a wrong answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct WrongRow {
    /// Line of the dataset.
    line: u64,
    /// Its label or labels.
    label: String,
    /// The answer.
    predicted: String,
    /// Probability of the answer, with several labels of its surest mistake.
    score: f32,
    /// Probability of its label, with several labels of the truth about the one with the surest mistake.
    label_score: f32,
}

/// When a classifier does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Abstention {
    /// Least probability of an answer.
    pub(super) threshold: f32,
    /// Share of the held-out rows with an answer.
    coverage: f64,
    /// Share of right answers among them.
    accuracy: f64,
}

/// Quality with a part of the training rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct CurvePoint {
    /// Number of training rows.
    pub(super) rows: usize,
    /// Macro F1 on the held-out rows.
    pub(super) macro_f1: f64,
    /// Accuracy on the held-out rows.
    pub(super) accuracy: f64,
}

/// Held-out rows with what a classifier says about them.
pub(super) trait Judged {
    /// Returns the number of rows.
    fn rows(&self) -> usize;

    /// Returns the metrics.
    fn metrics(&self) -> Metrics;

    /// Returns rows with wrong answers, the surest mistakes first.
    fn worst(&self) -> Vec<WrongRow>;

    /// Returns the least probability from which on enough answers are right; `None` if none is sure enough, or for few rows.
    fn abstention(&self) -> Option<Abstention>;
}

/// Held-out rows with one label each.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldOut<'a> {
    /// Names of the labels.
    pub(super) names: &'a [String],
    /// Label of each row.
    pub(super) labels: &'a [u32],
    /// Line of each row.
    pub(super) lines: &'a [u64],
    /// `rows × labels` probabilities.
    pub(super) probabilities: ArrayView2<'a, f32>,
}

impl HeldOut<'_> {
    /// Returns the most likely label of each row, and its probability.
    fn answers(&self) -> impl Iterator<Item = (usize, f32)> + '_ {
        let rows = self.probabilities.rows().into_iter();
        rows.map(|row| {
            let place = best_label(&row);
            (place, row[place])
        })
    }
}

impl Judged for HeldOut<'_> {
    fn rows(&self) -> usize {
        self.labels.len()
    }

    fn metrics(&self) -> Metrics {
        let taken = self
            .answers()
            .map(|(place, _)| u32::try_from(place).unwrap_or(0));
        Metrics::of(self.names, self.labels, &taken.collect::<Vec<_>>())
    }

    fn worst(&self) -> Vec<WrongRow> {
        let rows = self.answers().enumerate();
        let wrong = rows.filter(|(row, (place, _))| self.labels[*row] as usize != *place);
        let mut wrong: Vec<WrongRow> = wrong
            .map(|(row, (place, score))| {
                let label = self.labels[row] as usize;
                WrongRow {
                    line: self.lines[row],
                    label: self.names[label].clone(),
                    predicted: self.names[place].clone(),
                    score,
                    label_score: self.probabilities[[row, label]],
                }
            })
            .collect();
        wrong.sort_by(|a, b| b.score.total_cmp(&a.score));
        wrong.truncate(MAX_WORST);
        wrong
    }

    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    fn abstention(&self) -> Option<Abstention> {
        let rows = self.labels.len();
        if rows < MIN_ROWS {
            return None;
        }
        let mut answers: Vec<(f32, bool)> = self
            .answers()
            .zip(self.labels)
            .map(|((place, score), label)| (score, *label as usize == place))
            .collect();
        answers.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut right, mut found) = (0_usize, None);
        for (place, (score, is_right)) in answers.iter().enumerate() {
            right += usize::from(*is_right);
            let kept = place + 1;
            // Rows of equal probability are kept or dropped together.
            if answers.get(kept).is_some_and(|next| next.0 >= *score) {
                continue;
            }
            let (coverage, accuracy) = (kept as f64 / rows as f64, right as f64 / kept as f64);
            if accuracy >= WANTED_ACCURACY && coverage >= MIN_COVERAGE {
                found = Some(Abstention {
                    threshold: if kept == rows { 0.0 } else { *score },
                    coverage,
                    accuracy,
                });
            }
        }
        found
    }
}

/// Held-out rows with a set of labels each.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldOutSets<'a> {
    /// Names of the labels.
    pub(super) names: &'a [String],
    /// Labels of each row.
    pub(super) sets: &'a [LabelSet],
    /// Line of each row.
    pub(super) lines: &'a [u64],
    /// `rows × labels` probabilities.
    pub(super) probabilities: ArrayView2<'a, f32>,
    /// Least probability of a label that holds.
    pub(super) threshold: f32,
}

impl HeldOutSets<'_> {
    /// Returns the metrics with this threshold.
    pub(super) fn metrics_at(&self, threshold: f32) -> Metrics {
        let taken = above(&self.probabilities, threshold);
        Metrics::of_sets(self.names, self.sets, &taken)
    }

    /// Returns the names of labels, for people.
    fn names_of(&self, set: &LabelSet) -> String {
        let names: Vec<&str> = set.iter().map(|label| &*self.names[*label]).collect();
        names.join(", ")
    }
}

impl Judged for HeldOutSets<'_> {
    fn rows(&self) -> usize {
        self.sets.len()
    }

    fn metrics(&self) -> Metrics {
        self.metrics_at(self.threshold)
    }

    /// The row's most certain mistake counts: the greatest probability against the truth of a label.
    fn worst(&self) -> Vec<WrongRow> {
        let taken = above(&self.probabilities, self.threshold);
        let mut wrong = Vec::new();
        for (row, (set, taken)) in self.sets.iter().zip(&taken).enumerate() {
            let against = |label: &usize| {
                let probability = self.probabilities[[row, *label]];
                if set.binary_search(label).is_ok() {
                    1.0 - probability
                } else {
                    probability
                }
            };
            let missed = set.iter().filter(|it| !taken.contains(it));
            let mistakes = missed.chain(taken.iter().filter(|it| !set.contains(it)));
            if let Some(surest) = mistakes.map(against).max_by(f32::total_cmp) {
                wrong.push(WrongRow {
                    line: self.lines[row],
                    label: self.names_of(set),
                    predicted: self.names_of(taken),
                    score: surest,
                    label_score: 1.0 - surest,
                });
            }
        }
        wrong.sort_by(|a, b| b.score.total_cmp(&a.score));
        wrong.truncate(MAX_WORST);
        wrong
    }

    /// A label without enough probability is left out, so there is an answer for each row.
    fn abstention(&self) -> Option<Abstention> {
        None
    }
}

/// Returns what would help most, the most useful first.
pub(super) fn hints<'a>(
    metrics: &Metrics,
    curve: &[CurvePoint],
    rows_by_label: impl Iterator<Item = (&'a String, u64)>,
) -> Vec<String> {
    let mut hints = Vec::new();
    let labels = &metrics.labels;
    let pairs = metrics
        .confusion_matrix
        .iter()
        .enumerate()
        .flat_map(|(from, row)| {
            let others = row.iter().enumerate();
            others.filter_map(move |(to, count)| {
                (from != to && *count > 0).then_some((*count, from, to))
            })
        });
    let worst = pairs.max_by_key(|(count, from, to)| (*count, std::cmp::Reverse((*from, *to))));
    if let Some((count, from, to)) = worst {
        let (from, to) = (&labels[from], &labels[to]);
        // A single row may be an accident.
        if count > 1 && count * 10 >= from.support {
            hints.push(format!(
                "{count} of {} rows of `{}` are taken for `{}`: check their labels, and add rows that show the difference",
                from.support, from.label, to.label
            ));
        }
    }
    let few: Vec<String> = rows_by_label
        .filter(|(_, rows)| *rows < FEW_ROWS)
        .take(5)
        .map(|(label, rows)| format!("`{label}` ({rows})"))
        .collect();
    if !few.is_empty() {
        hints.push(format!(
            "labels with fewer than {FEW_ROWS} rows: {}; more rows of these help most",
            few.join(", ")
        ));
    }
    if let [.., before, last] = curve {
        let rise = last.macro_f1 - before.macro_f1;
        if rise >= RISE {
            hints.push(format!(
                "macro F1 rose by {rise:.3} from {} to {} training rows: more rows would help",
                before.rows, last.rows
            ));
        } else if metrics.macro_f1 < 0.9 && hints.is_empty() {
            hints.push(
                "macro F1 no longer rises with more rows: another embedding model, or clearer labels, would help"
                    .to_owned(),
            );
        }
    }
    hints
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    #[test]
    fn surest_mistakes_come_first_and_unsure_answers_are_left_out() {
        let names = ["a", "b"].map(str::to_owned);
        // Four times the same six rows.
        let rows = [
            [0.99, 0.01],
            [0.98, 0.02],
            [0.3, 0.7],
            [0.9, 0.1],
            [0.6, 0.4],
            [0.2, 0.8_f32],
        ];
        let probabilities = Array2::from_shape_fn((24, 2), |(row, label)| rows[row % 6][label]);
        let lines: Vec<u64> = (2..26).collect();
        let labels = |of: [u32; 6]| of.repeat(4);
        let held_out = |labels| HeldOut {
            names: &names,
            labels,
            lines: &lines,
            probabilities: probabilities.view(),
        };
        let mixed = labels([0, 0, 0, 0, 1, 1]);
        let worst = held_out(&mixed).worst();
        assert_eq!(
            worst.iter().map(|it| it.line).collect::<Vec<_>>(),
            [4, 10, 16, 22, 6, 12, 18, 24]
        );
        assert_eq!((&*worst[0].label, &*worst[0].predicted), ("a", "b"));
        let abstention = held_out(&mixed).abstention().expect("some are sure");
        assert!((abstention.threshold - 0.8).abs() < 1e-6, "{abstention:?}");
        assert!((abstention.coverage - 4.0 / 6.0).abs() < 1e-9);
        let right = labels([0, 0, 1, 0, 0, 1]);
        let always = held_out(&right).abstention().expect("all are right");
        assert!(always.threshold <= 0.0 && always.coverage >= 1.0);
        let wrong = labels([1, 1, 0, 1, 1, 0]);
        assert_eq!(held_out(&wrong).abstention(), None);
        let few = HeldOut {
            labels: &right[..6],
            lines: &lines[..6],
            probabilities: probabilities.slice(ndarray::s![..6, ..]),
            names: &names,
        };
        assert_eq!(few.abstention(), None);
    }

    #[test]
    fn hints_name_labels_and_numbers() {
        let names = ["a", "b"].map(str::to_owned);
        let metrics = Metrics::of(&names, &[0, 0, 0, 1], &[1, 1, 0, 1]);
        let point = |rows, macro_f1| CurvePoint {
            rows,
            macro_f1,
            accuracy: 0.5,
        };
        let counts = names.iter().zip([40, 3]);
        let hints = hints(&metrics, &[point(10, 0.5), point(20, 0.6)], counts);
        assert_eq!(hints.len(), 3);
        assert!(
            hints[0].contains("2 of 3 rows of `a` are taken for `b`"),
            "{hints:?}"
        );
        assert!(hints[1].contains("`b` (3);"), "{hints:?}");
        assert!(hints[2].contains("0.100 from 10 to 20"), "{hints:?}");
    }

    #[test]
    fn a_row_of_several_labels_is_as_wrong_as_its_surest_mistake() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let probabilities = ndarray::arr2(&[
            [0.9, 0.2, 0.1],
            [0.9, 0.8, 0.1],
            [0.4, 0.1, 0.97],
            [0.1, 0.2, 0.3_f32],
        ]);
        let held_out = HeldOutSets {
            names: &names,
            sets: &[vec![0], vec![0], vec![0], vec![]],
            lines: &[2, 3, 4, 5],
            probabilities: probabilities.view(),
            threshold: 0.5,
        };
        let worst = held_out.worst();
        assert_eq!(worst.len(), 2);
        assert_eq!(
            (worst[0].line, &*worst[0].label, &*worst[0].predicted),
            (4, "a", "c")
        );
        assert_eq!((worst[1].line, &*worst[1].predicted), (3, "a, b"));
        assert!((worst[0].score - 0.97).abs() < 1e-6 && (worst[1].label_score - 0.2).abs() < 1e-6);
        assert!((held_out.metrics().accuracy - 0.5).abs() < 1e-9);
    }
}
